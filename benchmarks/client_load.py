"""One load against the emitter: our client on one core, what it is compared with on the other.

The emitter is a small program in C, compiled here. Server and client are each bound to a core, and
run at SCHED_RR where this is root, since other programs on the machine are not what is measured.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servemap.onnode.calibrate import read_errors
from servemap.onnode.load_summary import percentile

SOURCE = Path(__file__).with_name("client_emitter.c")
FIRST_MS = 100.0
SERVER_CORE, CLIENT_CORE = 0, 1
LIMIT_S = 60
SAID = ("window_cpu_share", "max_lag_ms", "late_ms", "waited_s")
"""What the client says of itself."""

Json = dict[str, Any]


def compiled(folder: Path) -> Path:
    """Compile the emitter into `folder`; RuntimeError where there is no `cc` or it refuses."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("there is no C compiler `cc`; install one")
    target = folder / "emitter"
    subprocess.run([compiler, "-O2", "-o", str(target), str(SOURCE)], check=True)
    return target


def priority() -> str:
    """Say at which priority server and client run."""
    return "SCHED_RR" if os.geteuid() == 0 and shutil.which("chrt") else "as all"


def bound(core: int, argv: list[str]) -> list[str]:
    """Return a command that runs on one core, at raised priority where that is allowed."""
    first = ["chrt", "-r", "10"] if priority() == "SCHED_RR" else []
    return [*first, "taskset", "-c", str(core), *argv]


@contextmanager
def emitting(program: Path, log: Path, gap_ms: float) -> Iterator[str]:
    """Run the emitter; gives its URL. The log is whole afterwards."""
    argv = bound(SERVER_CORE, [str(program), str(log), str(FIRST_MS), str(gap_ms)])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)


def timed(argv: list[str], env: dict[str, str], log: Path) -> tuple[int, float, float, float]:
    """Run a client on its core; returns exit code, wall s, processor s, peak resident MB."""
    begun = time.monotonic()
    with log.open("w") as handle:
        process = subprocess.Popen(
            bound(CLIENT_CORE, argv),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
        )
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
    wall_s = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = usage.ru_utime + usage.ru_stime
    return process.returncode, wall_s, cpu_s, usage.ru_maxrss * 1024 / 1e6


def spread(values: list[float]) -> Json:
    """Return mean, median, P99 and maximum."""
    points = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    found = {name: round(percentile(values, share), 4) for name, share in points.items()}
    return {"mean": round(sum(values) / len(values), 4), **found}


def ours(
    program: Path, folder: Path, streams: int, gap_ms: float, tokens: int, rate_rps: float | None
) -> Json:
    """Measure servemap's own client once.

    Args:
        program: the emitter.
        folder: new, for all files.
        streams: requests; all at once, or where `rate_rps` is given one after the other.
        gap_ms: between two tokens of a stream.
        tokens: of each answer.
        rate_rps: arrivals per second at constant gaps.

    Returns:
        Errors in ms against what the emitter did, cost, and what the client says of itself.

    Raises:
        RuntimeError: not every request succeeded.
    """
    folder.mkdir()
    log, out = folder / "server.jsonl", folder / "out"
    loop = ["--concurrency", str(streams)]
    if rate_rps is not None:
        loop = ["--rate", str(rate_rps), "--arrivals", "constant"]
    argv = [sys.executable, "-m", "servemap.onnode", "bench", "--model", "reference"]
    argv += ["--isl", "16", "--osl", str(tokens), "--num-prompts", str(streams), "--warmup", "0"]
    with emitting(program, log, gap_ms) as url:
        code, wall_s, cpu_s, peak_mb = timed(
            [*argv, "--url", url, *loop, "--out", str(out)], dict(os.environ), folder / "lines"
        )
    if code:
        raise RuntimeError(f"the client ended with {code}: {(folder / 'lines').read_text()[-500:]}")
    client = json.loads((out / "client.json").read_text())
    if client["counts"]["ok"] != streams:
        raise RuntimeError(f"not every request succeeded: {client['counts']} {client['reasons']}")
    records = [json.loads(line) for line in (out / "requests.jsonl").open()]
    ttft, gaps, late = read_errors(str(out / "requests.jsonl"), str(log), client)
    window_s = sum(item["end_ns"] - item["start_ns"] for item in client["segments"]) / 1e9
    events = streams * tokens
    return {
        "streams": streams,
        "gap_ms": gap_ms,
        "rate_rps": rate_rps,
        "events_per_s": events_per_s([json.loads(line) for line in log.open()][1:]),
        "ttft_error_ms": spread(ttft),
        "gap_error_ms": spread([abs(gap) for gap in gaps]),
        "server_late_ms": spread(late),
        "sent_late_ms": spread([(r["sent_ns"] - r["scheduled_ns"]) / 1e6 for r in records]),
        "said": {name: client[name] for name in SAID},
        "us_per_event": round(client["cpu_s"] / events * 1e6, 2),
        "overhead_s": round(wall_s - window_s, 3),
        "process_cpu_s": round(cpu_s, 3),
        "peak_mb": round(peak_mb, 1),
        "load_average": round(os.getloadavg()[0], 2),
    }


def events_per_s(served: list[Json]) -> int:
    """Return how many tokens a second the emitter really wrote, from its first to its last."""
    first = min(line["t_ns"][0] for line in served)
    last = max(line["t_ns"][-1] for line in served)
    return round(sum(len(line["t_ns"]) - 1 for line in served) / (last - first) * 1e9)
