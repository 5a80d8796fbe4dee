"""Made-up Kineto traces: events in us, written the way PyTorch does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servemap.analysis.traces.analyse import Analysis, analyse


def event(cat: str, name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    """One event; `pid`, `tid` and anything of `args` may be named."""
    top = {key: more.pop(key) for key in ("pid", "tid") if key in more}
    found = {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 100, "ts": ts, "dur": dur}
    return {**found, **top, "args": more}


def kernel(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return event("kernel", name, ts, dur, **{"pid": 0, "tid": 7, "device": 0, "stream": 7, **more})


def launch(ts: float, dur: float, correlation: int, name: str = "cudaLaunchKernel") -> Any:
    return event("cuda_runtime", name, ts, dur, correlation=correlation)


def document(events: list[Any], rank: int | None = 0, world: int = 2, **top: Any) -> dict[str, Any]:
    info = {"distributedInfo": {"rank": rank, "world_size": world}} if rank is not None else {}
    return {"schemaVersion": 1, **info, "baseTimeNanoseconds": 0, **top, "traceEvents": events}


def write(path: Path, events: list[Any], **top: Any) -> Path:
    path.write_text(json.dumps(document(events, **top)), encoding="utf-8")
    return path


def analysis_of(paths: Sequence[Path]) -> Analysis:
    return analyse(paths).analysis
