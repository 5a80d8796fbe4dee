"""Launch and stop cycles of an engine: what is left after each, and what the gates cost.

`python -m benchmarks.cycles --engine vllm --count 20` prints a line of JSON for each cycle, adds it
to `results/cycles-ENGINE.jsonl`, and ends with 1 where something is left or the limit is broken.
vLLM takes turns with one process and with two (tensor parallelism). A probe of its own asks for a
completion every 20 ms from the launch on: `engine_s` is the time from the start of the server's
process to the first answer, and `over_s` what the launch and its gates took beyond that.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.sandbox import ROOT, free_port
from servemap.engines.embedded import tiny_hf, tiny_model
from servemap.measure.setup import load_context
from servemap.onnode.ask import ask
from servemap.server.context import Context
from servemap.server.hold import session
from servemap.server.launch import boots, process
from servemap.server.launch.ending import stop_server
from servemap.server.launch.ensure import ensure_server

RESULTS = Path(__file__).parent / "results"
LIMIT_S = 2.0
PROBE_S = 0.02
SEGMENTS = Path("/dev/shm")


def llamacpp(folder: Path) -> dict[str, Any]:
    tiny_model.install(folder / "demo")
    return {
        "model": {"path": str(folder / "demo/tiny.gguf")},
        "server": {
            "engine": "llamacpp",
            "python": sys.executable,
            "package": {"name": "llamaserve", "root": str(folder / "demo/engine")},
            "args": {"n_threads": 1},
        },
    }


def vllm(folder: Path) -> dict[str, Any]:
    tiny_hf.write_folder(folder / "tiny")
    installed = str(ROOT / ".vllm/venv/bin/python")
    return {
        "model": {"path": str(folder / "tiny")},
        "server": {
            "engine": "vllm",
            "python": os.environ.get("SERVEMAP_VLLM", installed),
            "settings": {"max_active": 4, "cuda_graph": False},
            "args": {"kv-cache-memory-bytes": 134217728, "dtype": "float32"},
            "env": {
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "VLLM_CPU_OMP_THREADS_BIND": "0",
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            },
        },
        "variables": [{"id": "ranks", "keys": ["topology.tp", "env.VLLM_CPU_OMP_THREADS_BIND"]}],
        "variants": [
            {"id": "baseline"},
            {
                "id": "tp2",
                "variable": "ranks",
                "set": {"topology.tp": 2, "env.VLLM_CPU_OMP_THREADS_BIND": "0|1"},
            },
        ],
    }


ENGINES: dict[str, Callable[[Path], dict[str, Any]]] = {"llamacpp": llamacpp, "vllm": vllm}


def campaign(engine: str, folder: Path) -> dict[str, Any]:
    """Return a campaign of that engine with the tiny model and no measurement."""
    own = ENGINES[engine](folder)
    model = {"name": "tiny", "context": 2048, "vocab": [300, 1000], **own["model"]}
    return {
        "run": "cycles",
        "nodes": [{"id": "here"}],
        "variants": [{"id": "baseline"}],
        "cases": [{"id": "c", "isl": 64, "osl": 8, "concurrency": 1}],
        "phases": [{"id": "phase1", "cases": ["c"]}],
        "policy": {"start_timeout_s": 180},
        **own,
        "model": model,
        "server": {**own["server"], "port": free_port()},
    }


@contextmanager
def moved(folder: Path, temporary: Path) -> Iterator[None]:
    """Work in a folder, with state, leases, caches and temporary files of its own."""
    names = ("SERVEMAP_LEASE_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    own = {name: str(folder / name.lower()) for name in names} | {"TMPDIR": str(temporary)}
    before, kept = Path.cwd(), {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Probe:
    """Asks for a completion until there is one; `first_ns` is then its epoch time."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        self.first_ns: int | None = None
        self._url, self._body = url, body
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Probe":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._ended.wait(PROBE_S):
            if ask(self._url, 10, self._body)["status"] == 200:
                self.first_ns = time.time_ns()
                return


def cycle(context: Context, variant: str, temporary: Path) -> dict[str, Any]:
    """Launch, gate and stop a server once; return what it took and what is left of it."""
    model, port = context.plan.campaign.model, context.server(variant).port
    body = {"model": model.name, "prompt": [model.vocab[0]], "max_tokens": 1}
    load = os.getloadavg()[0]
    begun_ns = time.time_ns()
    with Probe(f"http://127.0.0.1:{port}/v1/completions", body) as probe:
        served = ensure_server(context, variant)
        passed_ns = time.time_ns()
    assert served.boot_id is not None
    state = process.supervisor_state(context.head, context.workdir("here"), served.boot_id)
    segments = {area for one in carrying(context, variant) for area in mapped(one)}
    stop_server(context, "a cycle ends")
    stopped_ns = time.time_ns()
    times: dict[str, float | None] = {"engine_s": None, "over_s": None}
    if probe.first_ns is not None:
        engine_ns = probe.first_ns - state["started_ns"]
        over_ns = passed_ns - begun_ns - engine_ns
        times = {"engine_s": round(engine_ns / 1e9, 3), "over_s": round(over_ns / 1e9, 3)}
    return {
        "variant": variant,
        **times,
        "launch_to_gate_s": round((passed_ns - begun_ns) / 1e9, 3),
        "stop_s": round((stopped_ns - passed_ns) / 1e9, 3),
        "load_average": round(load, 2),
        "segments": len(segments),
        "left": {
            "processes": [str(one) for one in carrying(context, variant)],
            "segments": sorted(str(path) for path in segments if path.exists()),
            "ports": listening(port),
            "temporary": sorted(path.name for path in temporary.iterdir()),
        },
    }


def carrying(context: Context, variant: str) -> list[psutil.Process]:
    """Return the processes that carry the mark of a start of a variant."""
    starts = {boot.boot_id for boot in boots.read_boots(context.run_dir, variant)}
    found = []
    for one in psutil.process_iter():
        try:
            if starts & set(one.environ().values()) and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
        except psutil.Error:
            continue
    return found


def mapped(one: psutil.Process) -> list[Path]:
    """Return the segments of shared memory that a process maps; others on the machine have some."""
    try:
        areas = [Path(area.path) for area in one.memory_maps()]
    except psutil.Error:
        return []
    return [path for path in areas if path.parent == SEGMENTS]


def listening(port: int) -> list[int]:
    """Return the port where somebody listens on it."""
    seen = psutil.net_connections("tcp")
    return [one.laddr.port for one in seen if one.status == "LISTEN" and one.laddr.port == port]


def measure(engine: str, count: int) -> Iterator[dict[str, Any]]:
    """Yield the record of each cycle."""
    temporary = Path(tempfile.mkdtemp(prefix="c"))  # short: sockets lie there
    try:
        with tempfile.TemporaryDirectory() as name, moved(Path(name), temporary):
            context = load_context(campaign(engine, Path(name)))
            session.begin(context)
            try:
                for number in range(count):
                    variants = list(context.plan.variants)
                    yield cycle(context, variants[number % len(variants)], temporary)
            finally:
                session.end(context, "the cycles ended", [])
    finally:
        shutil.rmtree(temporary)


def broken(cycles: list[dict[str, Any]]) -> list[str]:
    """Return the limits that cycles break; times say nothing on a machine that is overloaded."""
    found = [
        f"{len(left)} {kind} left after cycle {number}: {left}"
        for number, one in enumerate(cycles, 1)
        for kind, left in one["left"].items()
        if left
    ]
    cores = os.cpu_count() or 1
    for variant in dict.fromkeys(one["variant"] for one in cycles):
        over = [
            one["over_s"]
            for one in cycles
            if one["variant"] == variant and one["load_average"] <= cores and one["over_s"]
        ]
        if over and statistics.median(over) > LIMIT_S:
            found.append(f"{variant}: {statistics.median(over)} s over the engine, limit {LIMIT_S}")
    return found


def main(argv: list[str]) -> int:
    """Run the cycles; return 1 where a limit is broken."""
    parser = argparse.ArgumentParser(prog="benchmarks.cycles")
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args(argv)
    RESULTS.mkdir(exist_ok=True)
    cycles = []
    with (RESULTS / f"cycles-{given.engine}.jsonl").open("a") as file:
        for one in measure(given.engine, given.count):
            cycles.append(one)
            line = json.dumps({"at_ns": time.time_ns(), **one})
            print(line, flush=True)
            file.write(f"{line}\n")
            file.flush()
    failures = broken(cycles)
    for failure in failures:
        print(f"LIMIT BROKEN: {failure}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
