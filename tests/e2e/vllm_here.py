"""vLLM on this machine as a campaign drives it: its spec, its processes, what it leaves behind."""

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.engines.embedded import tiny_hf
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.onnode.ask import ask
from servemap.server.context import Context
from servemap.server.hold import session
from servemap.server.launch import boots, process
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from tests.e2e.started import marked, start_ids
from tests.fakes import campaign
from tests.parts import need
from tests.workflow.harness import free_port

ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
}
TWO_ENV = {**ENV, "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
SETTINGS = {"max_active": 4, "prefix_cache": True, "cuda_graph": False}
CASES: list[dict[str, Any]] = [
    {"id": "short", "isl": 64, "osl": 8, "concurrency": 2, "num_prompts": 4},
    {"id": "decode", "isl": 64, "osl": 1900, "concurrency": 2, "num_prompts": 4},
    {"id": "prefill", "isl": 1900, "osl": 1, "concurrency": 1, "num_prompts": 4},
]


def vllm(
    model: Path,
    *,
    policy: dict[str, Any] | None = None,
    cases: Sequence[dict[str, Any]] = CASES,
    **server: Any,
) -> Context:
    """A campaign of one variant on a port of its own; `server` overrides keys of its spec."""
    spec: dict[str, Any] = {
        "engine": "vllm",
        "port": free_port(),
        "python": need("vllm"),
        "settings": SETTINGS,
        "args": {"kv-cache-memory-bytes": 134217728, "dtype": "float32"},
        "env": ENV,
        **server,
    }
    # What it knows of models is kept between starts, as on a node that started it before.
    cache = model.parent / "cache"
    kept = {"VLLM_CACHE_ROOT": f"{cache}/vllm", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    return load_context(
        campaign(
            model={"name": "tiny", "path": str(model), "context": 2048, "vocab": [300, 1000]},
            server={**spec, "env": {**kept, **spec["env"]}},
            variables=[],
            variants=[{"id": "baseline"}],
            cases=list(cases),
            phases=[{"id": "phase1", "cases": [case["id"] for case in cases]}],
            policy={"stop_grace_s": 15, "start_timeout_s": 300, "max_deaths": 20, **(policy or {})},
        )
    )


@contextmanager
def project(base: Path, name: str) -> Iterator[tuple[Path, Path]]:
    """Work in a folder of its own below pytest's `base`, with the state that all tests share.

    Yields the model's folder and an empty one for the server's temporary files.
    """
    need("vllm")
    folder, model = base / name, base / "hf" / "tiny"
    folder.mkdir()
    if not model.exists():
        tiny_hf.write_folder(model)
    # Sockets lie there, whose paths may have 107 characters.
    short = Path(tempfile.mkdtemp(prefix="v"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SERVEMAP_LEASE_DIR", str(base / "lease"))
        patch.setenv("XDG_STATE_HOME", str(base / "state"))
        patch.setenv("XDG_CACHE_HOME", str(base / "cache"))
        patch.setenv("TMPDIR", str(short))
        try:
            yield model, short
        finally:
            shutil.rmtree(short)


@contextmanager
def begun(context: Context, temporary: Path) -> Iterator[None]:
    """A session; after it nothing of its servers is left, whatever happened to them."""
    session._ended.clear()
    session.begin(context)
    used: set[Path] = set()
    try:
        with watching(context, used):
            yield
    finally:
        session.end(context, "the campaign ended", [])
        while session._run_lock:
            session._run_lock.pop().close()
    left = [*serving(context), *(path for path in used if path.exists()), *temporary.iterdir()]
    assert left == [], left


@contextmanager
def watching(context: Context, used: set[Path]) -> Iterator[None]:
    """Note the shared memory that servers map, as seen from outside while they run."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(1):
            for one in family(context):
                try:
                    maps = {Path(area.path) for area in one.memory_maps()}
                except psutil.Error:
                    continue
                used.update(path for path in maps if path.parent == Path("/dev/shm"))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def serving(context: Context) -> list[str]:
    """Command lines of all processes that carry the mark of a start of this run."""
    return [" ".join(one.cmdline()) for one in marked(start_ids(context))]


def family(context: Context) -> list[psutil.Process]:
    """The processes of the newest start, its first one first."""
    known = boots.read_boots(context.run_dir, "baseline")
    return marked({known[-1].boot_id}) if known else []


def front_end(context: Context) -> psutil.Process:
    """The process that answers requests."""
    boot = boots.read_boots(context.run_dir, "baseline")[-1]
    state = process.supervisor_state(context.head, context.workdir("n1"), boot.boot_id)
    return psutil.Process(state["server"]["pid"])


def wait_for_requests(url: str) -> None:
    """Return when requests are being served."""
    running = re.compile(r"^vllm:num_requests_running\{.*\} [1-9]", re.MULTILINE)
    while not running.search(ask(f"{url}/metrics", 60)["text"] or ""):
        time.sleep(0.05)


def measured(context: Context, case: str, repeat: int = 1) -> dict[str, Any]:
    """Run a case; return its record."""
    output = context.run_dir / f"cases/baseline/{case}/r{repeat}/meta.json"
    return run_case(context, Job("baseline", case, repeat, 1), output)


def starts(context: Context) -> list[boots.Boot]:
    """The records of all starts, oldest first."""
    return boots.read_boots(context.run_dir, "baseline")


def whole_log(context: Context) -> str:
    """What the newest server has said until now, on its node."""
    boot = starts(context)[-1]
    return Path(process.log_path(context.workdir("n1"), boot.boot_id)).read_text()


def assert_replaced_while_health_says_200(context: Context, served: Served) -> None:
    """Check that a server that hangs, and calls itself healthy, is noticed and replaced."""
    assert ask(f"{served.url}/health", 60)["status"] == 200
    again = ensure_server(context, "baseline")
    assert again.boot_id != served.boot_id
    assert not again.reused
    lost = starts(context)[-2]
    assert (lost.boot_id, lost.status) == (served.boot_id, "died")
    assert "/v1/completions: no answer within 10 s" in (lost.reason or "")
