"""vLLM itself on a CPU, driven as a campaign does: launch, gates, a case, faults, the end."""

import json
import signal
import socket
from collections.abc import Iterator
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
from servemap.server.launch import boots
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError
from tests.fakes import campaign
from tests.parts import need
from tests.workflow.harness import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
}
TWO = {"topology": {"tp": 2}, "env": {**ENV, "VLLM_CPU_OMP_THREADS_BIND": "0|1"}}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "tiny"
    tiny_hf.write_folder(folder)
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def vllm(model: Path, **server: Any) -> Context:
    """A campaign of one variant and one small case."""
    spec = {
        "engine": "vllm",
        "port": free_port(),
        "python": need("vllm"),
        "settings": {"max_active": 4, "prefix_cache": True, "cuda_graph": False},
        "args": {"kv-cache-memory-bytes": 134217728, "dtype": "float32"},
        "env": ENV,
        **server,
    }
    return load_context(
        campaign(
            model={"name": "tiny", "path": str(model), "context": 2048, "vocab": [300, 1000]},
            server=spec,
            variables=[],
            variants=[{"id": "baseline"}],
            cases=[{"id": "c", "isl": 64, "osl": 8, "concurrency": 2, "num_prompts": 4}],
            policy={"stop_grace_s": 15, "start_timeout_s": 120},
        )
    )


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


@contextmanager
def begun(context: Context) -> Iterator[None]:
    """A session; after it nothing of the server is left, whatever happened to it."""
    before = shared_memory()
    session._ended.clear()
    session.begin(context)
    known: set[psutil.Process] = set()
    ours = psutil.Process().children
    try:
        yield
    finally:
        known |= set(ours(recursive=True)) | set(family(context))
        session.end(context, "the campaign ended", [])
        while session._run_lock:
            session._run_lock.pop().close()
    left = [one for one in known if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    assert [one.cmdline() for one in left if "supervise" in str(one.cmdline())] == []
    assert serving(context) == []
    assert shared_memory() - before == set()


def serving(context: Context) -> list[str]:
    """Command lines of all processes that carry the mark of a start of this run."""
    starts = {boot.boot_id for boot in boots.read_boots(context.run_dir, "baseline")}
    found = []
    for process in psutil.process_iter():
        try:
            marks = set(process.environ().values())
            if marks & starts and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def family(context: Context) -> list[psutil.Process]:
    """The processes of the server that runs, its first one first."""
    known = boots.read_boots(context.run_dir, "baseline")
    if not known:
        return []
    found = []
    for process in psutil.process_iter():
        try:
            if known[-1].boot_id in process.environ().values():
                found.append(process)
        except psutil.Error:
            continue
    return sorted(found, key=lambda one: one.create_time())


def named(context: Context, name: str) -> psutil.Process:
    """The server's process that calls itself so."""
    return next(one for one in family(context) if name in " ".join(one.cmdline()))


def gate(context: Context, served: Served) -> dict[str, Any]:
    assert served.boot_id is not None
    folder = boots.boot_dir(context.run_dir, "baseline", served.boot_id)
    found: dict[str, Any] = json.loads((folder / "gate.json").read_text())
    return found


def log_of(context: Context) -> str:
    boot = boots.read_boots(context.run_dir, "baseline")[-1]
    return boots.log_file(context.run_dir, "baseline", boot.boot_id, "n1").read_text()


def test_launch_gates_a_case_and_the_end(model: Path) -> None:
    context = vllm(model)
    with begun(context):
        served = ensure_server(context, "baseline")
        assert served.engine_version == "0.32.0"
        assert [check for check in served.checks if check["ok"] is False] == []
        record = gate(context, served)
        said = record["effective"]["settings"]
        assert {key: said[key] for key in ("context", "max_active", "prefix_cache", "tp")} == {
            "context": 2048, "max_active": 4, "prefix_cache": True, "tp": 1,
        }  # fmt: skip
        assert said["cuda_graph"] is False
        assert said["kv_tokens"] > 2048
        (rank,) = record["memory"]["n1"]
        assert rank["kv_bytes"] == pytest.approx(134217728, rel=0.05)
        (command,) = served.ranks
        assert command["env"]["VLLM_SERVER_DEV_MODE"] == "1"
        meta = run_case(
            context, Job("baseline", "c", 1, 1), context.run_dir / "cases/baseline/c/r1/meta.json"
        )
        assert meta["status"] == "ok", meta["reasons"]
        assert meta["counts"]["ok"] == 4
        assert meta["server"]["boot_id"] == served.boot_id
        flushed = ask(f"{served.url}/reset_prefix_cache", 10, {})
        assert flushed["status"] == 200
        assert len(family(context)) > 1


def test_a_rank_that_is_gone_is_noticed_whatever_health_says(model: Path) -> None:
    context = vllm(model, **TWO)
    with begun(context):
        served = ensure_server(context, "baseline")
        record = gate(context, served)
        assert record["effective"]["settings"]["tp"] == 2
        assert len(record["memory"]["n1"]) == 2
        named(context, "Worker_TP1").kill()
        again = ensure_server(context, "baseline")
        assert again.boot_id != served.boot_id
        assert not again.reused
        first, second = boots.read_boots(context.run_dir, "baseline")
        assert (first.status, second.status) == ("died", "ready")


def test_health_without_completions_is_no_health_and_a_deaf_server_is_ended(model: Path) -> None:
    """Stopped processes answer nothing and ignore SIGTERM, as a hung collective does."""
    context = vllm(model)
    with begun(context):
        served = ensure_server(context, "baseline")
        named(context, "EngineCore").send_signal(signal.SIGSTOP)
        health = ask(f"{served.url}/health", 10)
        assert health["status"] == 200
        again = ensure_server(context, "baseline")
        assert again.boot_id != served.boot_id
        first, _ = boots.read_boots(context.run_dir, "baseline")
        assert first.status == "died"
        assert "no answer within" in (first.reason or "")


def refused(context: Context) -> str:
    """What a launch that must fail says."""
    with begun(context), pytest.raises(NotRunError) as caught:
        ensure_server(context, "baseline")
    return str(caught.value)


def test_a_port_in_use_is_refused_before_anything_is_loaded(model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(vllm(model, port=port))
    assert f"port {port}" in said


def test_a_model_folder_without_a_tokenizer(model: Path, tmp_path: Path) -> None:
    """This version serves it all the same, and its tokens have no text."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).symlink_to(model / name)
    context = vllm(folder)
    with begun(context):
        served = ensure_server(context, "baseline")
        said = {check["name"]: check["evidence"] for check in served.checks}
        assert "without any text" in said["completion"]


def test_more_memory_than_there_is(model: Path) -> None:
    context = vllm(
        model, args={"dtype": "float32"}, settings={"memory_fraction": 1.0, "cuda_graph": False}
    )
    assert "the process ended" in refused(context)
    assert "memory" in log_of(context)
