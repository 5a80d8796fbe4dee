"""`vllm bench serve`: the command and the marks, after vLLM 0.32.0 (vllm/benchmarks/serve.py)."""

import json

from servemap.measure.clients.base import Adapter, Order
from servemap.parsers.clients.vllm_bench import RESULT


def words(order: Order) -> list[str]:
    """Return its command; lengths are exact (range ratio 0), every percentile is asked for."""
    return [
        "-m", "vllm.entrypoints.cli.main", "bench", "serve",
        "--backend", "vllm",
        "--base-url", order.url,
        "--endpoint", order.endpoint,
        "--model", order.model,
        "--tokenizer", order.tokenizer,
        "--dataset-name", "random",
        "--random-input-len", str(order.isl),
        "--random-output-len", str(order.osl),
        "--random-range-ratio", "0",
        "--num-prompts", str(order.num_prompts),
        "--max-concurrency", str(order.concurrency),
        "--seed", str(order.seed),
        "--extra-body", json.dumps(dict(order.request)),
        "--disable-tqdm",
        "--save-result",
        "--save-detailed",
        "--result-dir", order.folder,
        "--result-filename", RESULT,
        "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--metric-percentiles", "50,90,95,99",
    ]  # fmt: skip


# Between its first mark and its first request this version asks /metrics twice and does not wait.
ADAPTER = Adapter(
    package="vllm",
    words=words,
    marks={
        "begin": r"^Starting main benchmark run\.\.\.",
        "end": r"^=+ Serving Benchmark Result =+$",
    },
)
