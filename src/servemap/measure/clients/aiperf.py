"""aiperf: command and marks, after aiperf 0.13.0 (`aiperf profile --help`, aiperf/config/flags)."""

import json

from servemap.measure.clients.base import Adapter, Order


def words(order: Order) -> list[str]:
    """Return its command; what it would read from /metrics the collectors read already."""
    return [
        "-m", "aiperf", "profile",
        "--model", order.model,
        "--url", order.url,
        "--endpoint-type", "completions",
        "--streaming",
        "--tokenizer", order.tokenizer,
        "--isl", str(order.isl),
        "--osl", str(order.osl),
        "--request-count", str(order.num_prompts),
        "--concurrency", str(order.concurrency),
        "--random-seed", str(order.seed),
        "--extra-inputs", json.dumps(dict(order.request)),
        "--request-timeout-seconds", f"{order.timeout_s:g}",
        "--export-level", "records",
        "--no-gpu-telemetry",
        "--no-server-metrics",
        "--ui", "none",
        "--output-artifact-dir", order.folder,
    ]  # fmt: skip


# With any value in one of the first two it does not even read a tokenizer from a folder; its
# summary gives times without a zone. The marks serve its processor time: its files have stamps.
ADAPTER = Adapter(
    package="aiperf",
    words=words,
    marks={
        "begin": r"Phase profiling \(profiling\) started",
        "end": r"Phase profiling \(profiling\) complete ",
    },
    env={"HF_HUB_OFFLINE": "", "TRANSFORMERS_OFFLINE": "", "TZ": "UTC"},
)
