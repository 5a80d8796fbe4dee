"""Builds small synthetic results folders, raw files first, as the measuring side leaves them."""

import hashlib
import json
from pathlib import Path
from typing import Any

T0 = 1_800_000_000_000_000_000
MS = 1_000_000
S = 1_000_000_000


def request(
    index: int = 1,
    *,
    stream: str = "main",
    segment: str = "main",
    sent_ms: float = 0.0,
    ttft_ms: float = 50.0,
    gap_ms: float = 10.0,
    isl: int = 64,
    osl: int = 4,
    status: str = "ok",
    **changes: Any,
) -> dict[str, Any]:
    sent = T0 + int(sent_ms * MS)
    times = [sent + int((ttft_ms + gap_ms * k) * MS) for k in range(osl)]
    record = {
        "id": f"{stream}-{segment}-{index:06d}",
        "segment": segment,
        "stream": stream,
        "warmup": False,
        "isl": isl,
        "osl": osl,
        "scheduled_ns": sent,
        "connect_ns": sent,
        "sent_ns": sent,
        "last_ns": times[-1],
        "status": status,
        "error": None,
        "http_status": 200,
        "attempts": 1,
        "t_ns": [*times, times[-1], times[-1]],
        "kinds": "t" * osl + "ud",
        "tokens": None,
        "usage": {
            "prompt_tokens": isl,
            "completion_tokens": osl,
            "cached_tokens": 0,
            "reasoning_tokens": None,
        },
        "finish_reason": "length",
        "timings": None,
    }
    if status != "ok":
        record["error"] = {"class": "http", "message": "503 overloaded"}
        record["usage"] = None
    record.update(changes)
    return record


def proc_line(
    k: int, *, interval_ms: int = 500, start_ms: int = -500, **changes: Any
) -> dict[str, Any]:
    """Sample k: cpu0 80 % busy, cpu1 20 %, eth0 1000 B/s in, one server process at half a core."""
    at = start_ms + k * interval_ms
    ticks = k * interval_ms // 10
    line = {
        "t_ns": T0 + at * MS,
        "mono_ns": 5 * S + at * MS,
        "hz": 100,
        "page": 4096,
        "cpu": {
            "cpu0": [ticks * 0.6, 0, ticks * 0.2, ticks * 0.2, 0, 0, 0, 0],
            "cpu1": [ticks * 0.2, 0, 0, ticks * 0.7, ticks * 0.1, 0, 0, 0],
        },
        "mem": {"MemTotal": 1000, "MemAvailable": 400, "SwapTotal": 0, "SwapFree": 0},
        "net": {"eth0": [k * interval_ms, k, 0, 0, 2 * k * interval_ms, k, 0, 0]},
        "procs": [
            {
                "pid": 42,
                "ppid": 1,
                "comm": "llama",
                "start": 7,
                "utime": ticks * 0.4,
                "stime": ticks * 0.1,
                "threads": 3,
                "rss_pages": 256,
                "vcsw": 10 * k,
                "ivcsw": k,
            }
        ],
        "ctxt": 100 * k,
        "load": [0.5, 0.4, 0.3],
    }
    line.update(changes)
    return line


def scrape_line(k: int, *, interval_ms: int = 500, start_ms: int = -500) -> dict[str, Any]:
    at = start_ms + k * interval_ms
    body = (
        "# TYPE llamacpp:tokens_predicted_total counter\n"
        f"llamacpp:tokens_predicted_total {50 * k}\n"
        "# TYPE llamacpp:requests_processing gauge\n"
        "llamacpp:requests_processing 2\n"
    )
    return {"t_ns": T0 + at * MS, "mono_ns": 5 * S + at * MS, "ms": 1.0, "text": body}


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def build_repeat(
    run: Path,
    *,
    variant: str = "baseline",
    case: str = "decode_c2",
    repeat: int = 1,
    attempt: int = 1,
    status: str = "ok",
    reasons: list[str] | None = None,
    requests: list[dict[str, Any]] | None = None,
    segments: list[tuple[str, float, float]] | None = None,
    overlaps: dict[str, list[tuple[float, float]]] | None = None,
    telemetry: dict[str, list[dict[str, Any]]] | None = None,
    case_spec: dict[str, Any] | None = None,
    fallback: dict[str, Any] | None = None,
    client: dict[str, Any] | None = None,
    interval_s: float = 0.5,
    stream: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
) -> Path:
    """Write one attempt and its meta.json; segments and overlaps in ms after T0.

    `stream` adds to the load's main stream, `facts` to meta.json.
    """
    if requests is None:
        requests = [request(i, sent_ms=500.0 * i) for i in range(4)]
    if segments is None:
        segments = [("main", 0.0, 2000.0)]
    if telemetry is None:
        telemetry = {
            "proc": [proc_line(k) for k in range(7)],
            "engine_metrics": [scrape_line(k) for k in range(7)],
        }
    folder = run / "cases" / variant / case / f"r{repeat}"
    raw = folder / "attempts" / f"{attempt:03d}" / "raw"
    edges = [
        {
            "name": name,
            "start_ns": T0 + int(begin * MS),
            "end_ns": T0 + int(end * MS),
            "source": "client",
            "error_ns": 0,
            "overlaps": [
                [T0 + int(a * MS), T0 + int(b * MS)] for a, b in (overlaps or {}).get(name, [])
            ],
        }
        for name, begin, end in segments
    ]
    spec = {"isl": 64, "osl": 4, "concurrency": 2, "num_prompts": 4, **(case_spec or {})}
    if status != "not_run":
        write_jsonl(raw / "requests.jsonl", requests)
        measured = [r for r in requests if not r["warmup"]]
        write_json(
            raw / "client.json",
            {
                "schema": 1,
                "status": "ok",
                "reasons": [],
                "started_ns": T0 - S,
                "ended_ns": T0 + 3 * S,
                "segments": edges,
                "counts": {"planned": len(measured), "sent": len(measured)},
                "cpu_s": 0.2 * sum(max(end - begin, 0.0) for _, begin, end in segments) / 1e3,
                "max_lag_ms": 1.5,
                **(client or {}),
            },
        )
        # Requests come at times of their own, so the loop has no concurrency unless one is given.
        shape = {key: value for key, value in spec.items() if key != "concurrency"}
        streams = [{"name": "main", "kind": "closed", **shape, **(stream or {})}]
        if any(r["stream"] == "injected" for r in requests):
            streams.append({"name": "injected", "kind": "at", "isl": 512, "osl": 1, "at_s": [0.5]})
        write_json(
            raw / "load.json",
            {
                "schema": 1,
                "request": {"ignore_eos": True},
                "segments": [{"name": s["name"], "streams": streams} for s in edges],
            },
        )
        for name, lines in telemetry.items():
            write_jsonl(raw / "telemetry" / "head" / f"{name}.jsonl", lines)
    base = raw.parent
    meta = {
        "schema": 1,
        "run": run.name,
        "variant": variant,
        "case": case,
        "repeat": repeat,
        "attempt": attempt,
        "token": attempt,
        "status": status,
        "reasons": reasons or [],
        "spec": {"protocol": 1, "case": spec, "server": {"engine": "llamacpp"}},
        "spec_sha256": "0" * 64,
        "server": {"fingerprint": "f", "boot_id": "b", "engine": "llamacpp", "engine_version": "1"},
        "segments": [{k: v for k, v in e.items() if k != "overlaps"} for e in edges],
        "counts": {"planned": 4, "sent": 4, "ok": 4, "failed": 0, "timed_out": 0, "retried": 0},
        "clock": {"head": {"offset_ns": 0, "error_ns": 0}},
        "collectors": {
            f"head/{name}": {
                "status": "ok",
                "samples": 7,
                "interval_s": interval_s,
                "required": True,
            }
            for name in telemetry
        },
        "fallback": fallback,
        "files": {
            str(p.relative_to(base)): {
                "size": p.stat().st_size,
                "mtime_ns": p.stat().st_mtime_ns,
                "sha256": hashlib.sha256(p.read_bytes()).hexdigest(),
            }
            for p in sorted(raw.rglob("*"))
            if p.is_file()
        },
        "started_ns": T0 - S,
        "ended_ns": T0 + 3 * S,
        "overhead": {"client_s": 0.1},
        **(facts or {}),
    }
    if status == "not_run":
        meta["segments"] = []
        meta["counts"] = None
    base.mkdir(parents=True, exist_ok=True)
    write_json(base / "meta.json", meta)
    write_json(folder / "meta.json", meta)
    return folder
