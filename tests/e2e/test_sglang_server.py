"""SGLang itself on a CPU, driven as a campaign does: launch, gates, a case, faults, the end."""

import json
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded import tiny_hf
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.onnode.ask import ask
from servemap.server.context import Context
from servemap.server.launch import boots
from servemap.server.launch.ensure import ensure_server
from servemap.server.not_run import NotRunError
from tests.e2e.started import begun, gate, log_of, named, refused, swept
from tests.fakes import campaign
from tests.parts import need
from tests.workflow.harness import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ARGS = {"device": "cpu", "dtype": "float32", "max-total-tokens": 16384}
ENV = {"HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo", "SGLANG_CPU_OMP_THREADS_BIND": "0"}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "tiny"
    tiny_hf.write_folder(folder)
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # It leaves files among the temporary ones; sockets are there, whose paths must be short.
    temporary = tempfile.mkdtemp(prefix="s")
    monkeypatch.setenv("TMPDIR", temporary)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    shutil.rmtree(temporary)


def sglang(model: Path, **server: Any) -> Context:
    """A campaign of one variant and one small case."""
    spec = {
        "engine": "sglang",
        "port": free_port(),
        "python": need("sglang"),
        "settings": {"max_active": 4, "prefix_cache": True, "cuda_graph": False},
        "args": ARGS,
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
            policy={"stop_grace_s": 15, "start_timeout_s": 120, "on_unhealthy": "relaunch"},
        )
    )


def completion(url: str, tokens: list[int]) -> dict[str, Any]:
    answer = ask(f"{url}/v1/completions", 30, {"model": "tiny", "prompt": tokens, "max_tokens": 1})
    found: dict[str, Any] = json.loads(answer["text"])
    return found


def test_launch_gates_a_case_and_the_end(model: Path, tmp_path: Path) -> None:
    context = sglang(model)
    with begun(context):
        served = ensure_server(context, "baseline")
        assert served.engine_version == "0.5.23"
        assert [check for check in served.checks if check["ok"] is False] == []
        record = gate(context, served)
        said = record["effective"]["settings"]
        asked = {"context": 2048, "max_active": 4, "prefix_cache": True, "cuda_graph": False}
        assert {key: said[key] for key in asked} == asked
        assert (said["tp"], said["kv_tokens"]) == (1, 16384)
        assert said["attention_backend"] == "torch_native"
        (rank,) = record["memory"]["n1"]
        assert rank["kv_bytes"] > 0
        meta = run_case(
            context, Job("baseline", "c", 1, 1), context.run_dir / "cases/baseline/c/r1/meta.json"
        )
        assert meta["status"] == "ok", meta["reasons"]
        assert meta["counts"]["ok"] == 4
        assert meta["server"]["boot_id"] == served.boot_id
        tokens = list(range(400, 500))
        used = [completion(served.url, tokens)["usage"] for _ in range(2)]
        assert used[1]["prompt_tokens_details"]["cached_tokens"] == 99
        assert ask(f"{served.url}/flush_cache", 10, {})["status"] == 200
        emptied = completion(served.url, tokens)["usage"]["prompt_tokens_details"]
        assert emptied["cached_tokens"] == 0
        asked_for = {"output_dir": str(tmp_path / "traces"), "activities": ["CPU"]}
        assert ask(f"{served.url}/start_profile", 30, asked_for)["status"] == 200
        completion(served.url, tokens)
        assert ask(f"{served.url}/stop_profile", 60, {})["status"] == 200
        assert list((tmp_path / "traces").glob("*TP-0.trace.json.gz"))


def test_two_ranks_on_one_machine(model: Path) -> None:
    two = {"topology": {"tp": 2}, "env": {**ENV, "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}}
    context = sglang(model, **two)
    with begun(context):
        served = ensure_server(context, "baseline")
        record = gate(context, served)
        assert record["effective"]["settings"]["tp"] == 2
        assert [rank["rank"] for rank in record["memory"]["n1"]] == ["TP0", "TP1"]
        named(context, "scheduler_TP1").kill()
        again = ensure_server(context, "baseline")
        assert again.boot_id != served.boot_id
        first, second = boots.read_boots(context.run_dir, "baseline")
        assert (first.status, second.status) == ("died", "ready")


def test_one_killed_process_is_the_end_of_the_server(model: Path) -> None:
    context = sglang(model)
    with begun(context):
        served = ensure_server(context, "baseline")
        for name in ("sglang::scheduler", "sglang::detokenizer"):
            named(context, name).kill()
            again = ensure_server(context, "baseline")
            assert (again.boot_id != served.boot_id, again.reused) == (True, False)
            served = again
        known = boots.read_boots(context.run_dir, "baseline")
        assert [boot.status for boot in known] == ["died", "died", "ready"]


def test_health_without_completions_is_no_health_and_a_deaf_server_is_ended(model: Path) -> None:
    """Stopped processes answer nothing and ignore SIGTERM, as a hung collective does."""
    context = sglang(model, env={**ENV, "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"})
    with begun(context):
        served = ensure_server(context, "baseline")
        # It answers 503 until its own warm-up is over, which may be after the gates.
        while ask(f"{served.url}/health", 10)["status"] == 503:
            time.sleep(0.1)
        named(context, "sglang::scheduler").send_signal(signal.SIGSTOP)
        assert ask(f"{served.url}/health", 10)["status"] == 200
        again = ensure_server(context, "baseline")
        assert again.boot_id != served.boot_id
        first, _ = boots.read_boots(context.run_dir, "baseline")
        assert first.status == "died"
        assert "no answer within" in (first.reason or "")


def test_a_port_in_use_is_refused_before_anything_is_loaded(model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(sglang(model, port=port))
    assert f"port {port}" in str(said)


def test_a_model_folder_without_a_tokenizer(model: Path, tmp_path: Path) -> None:
    """It answers, without text; its own warm-up, whose prompt is then empty, ends it.

    The gates may be before or after that.
    """
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).symlink_to(model / name)
    context = sglang(folder)
    with begun(context):
        try:
            served = ensure_server(context, "baseline")
        except NotRunError as error:
            said = str(error)
        else:
            said = str(served.checks)
        assert "without any text" in said or "A child process of SGLang ended" in said


def test_more_memory_than_there_is(model: Path, tmp_path: Path) -> None:
    """The limit is a real one of the kernel, below what the cache asks for at once."""
    limited = tmp_path / "python"
    limited.write_text(f'#!/bin/sh\nulimit -v 6291456\nexec {need("sglang")} "$@"\n')
    limited.chmod(0o755)
    args = {name: value for name, value in ARGS.items() if name != "max-total-tokens"}
    settings = {"memory_fraction": 0.95, "cuda_graph": False}
    context = sglang(model, python=str(limited), args=args, settings=settings)
    with swept(context):
        said = str(refused(context))
    assert "The host's memory is used up" in said
    assert "can't allocate memory" in log_of(context)
