"""A whole synthetic run: two variants, a small map, repeats, a mixed case, failures, records."""

import math
from pathlib import Path
from typing import Any

from runbuilder import MS, T0, build_repeat, proc_line, request, scrape_line, write_json

from servemap.analysis.derive import derive_attempt

CASES = {
    "short_prefill_latency_1k_c1": (64, 1, 1),
    "mid_prefill_latency_32k_c1": (2048, 1, 1),
    "decode_latency_1k_to_1k_c1": (64, 64, 1),
    "decode_throughput_1k_to_1k_c16": (64, 64, 16),
    "decode_throughput_1k_to_1k_c32": (64, 64, 32),
    "balanced_32k_to_1k_c8": (2048, 64, 8),
}


def case_requests(isl: int, osl: int, concurrency: int, speed: float) -> list[dict[str, Any]]:
    """One wave, later requests later, as a server that batches shows it."""
    ttft = (10 + isl / 20) * (1 + concurrency / 16) / speed
    gap = 4 * (1 + concurrency / 24) / speed
    return [
        request(
            k,
            ttft_ms=ttft * (0.6 + 0.8 * k / max(concurrency, 2)),
            gap_ms=gap * (1 + 0.1 * math.sin(k)),
            isl=isl,
            osl=osl,
        )
        for k in range(concurrency)
    ]


def window_ms(requests: list[dict[str, Any]]) -> float:
    return (max(r["last_ns"] for r in requests) - T0) / MS


def telemetry(until_ms: float) -> dict[str, list[dict[str, Any]]]:
    step = max(int(until_ms / 12), 10) // 10 * 10
    count = int(until_ms / step) + 4
    return {
        "proc": [proc_line(k, interval_ms=step, start_ms=-step) for k in range(count)],
        "engine_metrics": [scrape_line(k, interval_ms=step, start_ms=-step) for k in range(count)],
    }


def build_run(run: Path) -> list[dict[str, Any]]:
    """Write the run and return its planned rows."""
    rows: list[dict[str, Any]] = []
    for variant, speed in (("baseline", 1.0), ("ubatch-64", 0.9)):
        for case, (isl, osl, concurrency) in CASES.items():
            for repeat in range(1, 4 if case == "decode_latency_1k_to_1k_c1" else 2):
                requests = case_requests(isl, osl, concurrency, speed * (1 + 0.02 * (repeat - 2)))
                end = window_ms(requests)
                folder = build_repeat(
                    run,
                    variant=variant,
                    case=case,
                    repeat=repeat,
                    requests=requests,
                    segments=[("main", 0.0, end)],
                    telemetry=telemetry(end),
                    interval_s=max(int(end / 12), 10) // 10 / 100,
                    case_spec={"kind": "fixed", "isl": isl, "osl": osl, "concurrency": concurrency},
                )
                derive_attempt(folder, {})
                rows.append({"variant": variant, "case": case, "repeat": repeat})
        rows.append({"variant": variant, "case": "decode_with_long_prefill", "repeat": 1})
        build_mixed(run, variant, speed)
    broken = build_repeat(
        run,
        case="mid_prefill_throughput_32k_c16",
        requests=[request(k, status="failed" if k % 2 else "ok") for k in range(8)],
        case_spec={"kind": "fixed", "concurrency": 16},
    )
    derive_attempt(broken, {})
    rows.append({"variant": "baseline", "case": "mid_prefill_throughput_32k_c16", "repeat": 1})
    rows.append({"variant": "ubatch-64", "case": "mid_prefill_throughput_32k_c16", "repeat": 1})
    skipped = build_repeat(
        run, variant="broken", case="decode_latency_1k_to_1k_c1", status="not_run",
        reasons=["launch failed: the server exited with 1 before it answered"],
    )  # fmt: skip
    derive_attempt(skipped, {})
    rows.append({"variant": "broken", "case": "decode_latency_1k_to_1k_c1", "repeat": 1})
    build_records(run)
    return [
        row | {"compared_with": [] if row["variant"] == "baseline" else ["baseline"]}
        for row in rows
    ]


def build_mixed(run: Path, variant: str, speed: float) -> None:
    steady = [
        request(k, stream="background", segment="control", gap_ms=10 / speed, isl=64, osl=64)
        for k in range(16)
    ]
    slowed = [
        request(k, stream="background", segment="injected", sent_ms=1500, gap_ms=13 / speed, osl=64)
        for k in range(16)
    ]
    long = request(0, stream="injected", segment="injected", sent_ms=1700, ttft_ms=350, osl=1)
    ends = [window_ms(steady), window_ms(slowed)]
    folder = build_repeat(
        run,
        variant=variant,
        case="decode_with_long_prefill",
        requests=[*steady, *slowed, long],
        segments=[("control", 0.0, ends[0]), ("injected", 1500.0, ends[1])],
        overlaps={"injected": [(1700, 2050)]},
        telemetry=telemetry(ends[1]),
        interval_s=max(int(ends[1] / 12), 10) // 10 / 100,
        case_spec={
            "kind": "mixed",
            "background": {"isl": 64, "osl": 64, "concurrency": 16, "num_prompts": 16},
        },
    )
    derive_attempt(folder, {})


def build_records(run: Path) -> None:
    spec = {"name": "tiny", "path": "models/tiny.gguf"}
    write_json(
        run / "run_manifest.json",
        {
            "schema": 1,
            "run": run.name,
            "created_ns": T0,
            "campaign": {
                "title": "Quick map of the embedded engine",
                "model": spec,
                "nodes": [{"id": "head", "role": "head"}],
                "server": {"engine": "llamacpp"},
            },
        },
    )
    checks = [
        {"name": "process alive", "ok": True, "evidence": "pid 42", "remedy": ""},
        {"name": "one token", "ok": True, "evidence": {"tokens": 1, "ms": 3.2}, "remedy": ""},
    ]
    for variant in ("baseline", "ubatch-64"):
        write_json(
            run / "server" / variant / "launch.json",
            {
                "schema": 1,
                "variant": variant,
                "status": "ok",
                "reasons": [],
                "argv": ["python", "-m", "llamaserve", "--model", "models/tiny.gguf"],
                "engine": "llamacpp",
                "engine_version": "2026.10.11549",
                "gate": {"checks": checks},
                "start_s": 0.42,
                "log_tail": [],
            },
        )
    write_json(
        run / "server/broken/launch.json",
        {
            "schema": 1,
            "variant": "broken",
            "status": "failed",
            "reasons": ["the server exited with 1 before it answered"],
            "argv": ["python", "-m", "llamaserve", "--model", "missing.gguf"],
            "engine": "llamacpp",
            "gate": {"checks": [{**checks[0], "ok": False, "remedy": "read the log"}]},
            "start_s": None,
            "log_tail": ["loading model", "error: failed to open missing.gguf: No such file"],
        },
    )
    write_json(
        run / "server/ubatch-64/patches/head.json",
        {
            "schema": 1,
            "status": "ok",
            "patches": {
                "ubatch": {
                    "target": "settings.py",
                    "files": [
                        {"path": "settings.py", "sha256_before": "a" * 64, "sha256_after": "b" * 64}
                    ],
                    "verified": [{"kind": "marker", "ok": True}, {"kind": "python", "ok": True}],
                }
            },
        },
    )
    rtt = {"p50": 18.2, "p95": 25.0, "p99": 61.3, "max": 210.0, "n": 500}
    write_json(
        run / "baselines/loopback.json",
        {
            "schema": 1,
            "name": "loopback",
            "kind": "tcp",
            "status": "ok",
            "reasons": [],
            "results": [
                {"from": "head", "to": "head", "rtt_us": rtt, "bandwidth_bytes_per_s": 4.1e9}
            ],
            "simulated": False,
        },
    )
    write_json(
        run / "captures/baseline/decode_throughput_1k_to_1k_c16/capture.json",
        {
            "schema": 1,
            "kind": "torch",
            "status": "not_available",
            "reasons": ["llama.cpp has no profiler"],
        },
    )
    write_json(
        run / "freeze/head.json",
        {
            "schema": 1,
            "node": "head",
            "facts": {
                "kernel": {"release": "6.1.0", "machine": "x86_64"},
                "cpu": {"model": "Example CPU", "cores": 2, "sockets": 1},
                "memory": {"total_bytes": 25_000_000_000},
                "accelerators": {"found": [], "reason": "no tool for cards"},
                "env": {"OMP_NUM_THREADS": "1"},
                "models": {
                    "models": [
                        {
                            "path": "models",
                            "files": [
                                {"name": "tiny.gguf", "size": 10_600_000, "sha256": "c" * 64}
                            ],
                            "errors": [],
                        }
                    ]
                },
                "workflow": {
                    "servemap": "0.1.0",
                    "commit": "98c8405",
                    "tree_clean": True,
                    "packages": {"numpy": "2.4.6"},
                },
            },
        },
    )
    for when, state in (("before", "up"), ("after", "down")):
        write_json(
            run / f"snapshots/head-{when}.json",
            {
                "schema": 1,
                "node": "head",
                "taken_ns": T0,
                "state": {
                    "cards": [],
                    "network": {"interfaces": {"eth0": {"operstate": state, "counters": {"x": 1}}}},
                },
            },
        )
