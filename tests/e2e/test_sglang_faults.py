"""SGLang itself on a CPU: each fault of a server, and two ranks. Too long for CI."""

import signal
import socket
from pathlib import Path

import pytest

from servemap.onnode.ask import ask
from servemap.server.launch import boots
from servemap.server.launch.ensure import ensure_server
from tests.e2e.sglang_here import ARGS, ENV, here, model, sglang
from tests.e2e.started import begun, gate, log_of, named, refused, swept
from tests.parts import need

__all__ = ["here", "model"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


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
        named(context, "sglang::scheduler").send_signal(signal.SIGSTOP)
        assert ask(f"{served.url}/health", 60)["status"] == 200
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
    """It answers, without text; its own warm-up, whose prompt is then empty, ends it."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).symlink_to(model / name)
    context = sglang(folder)
    with swept(context):
        said = str(refused(context))
    assert "A child process of SGLang ended" in said


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
