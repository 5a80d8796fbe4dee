"""The embedded engine as it is really started: gates, faults and patches."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from servemap.engines.base import Placement, last_json_line, python_env
from servemap.engines.embedded.tiny_model import install
from servemap.engines.failures import explain
from servemap.engines.llamacpp import LlamaCpp
from servemap.model.server_spec import ArgValue, ModelSpec, NodeSpec, Package, ServerSpec, Settings
from servemap.nodes.local import LocalNode
from servemap.onnode.ask import ask
from servemap.onnode.view import read_process
from servemap.server.gates.checks import (
    Check,
    GateResult,
    Started,
    check_completion,
    run_gates,
)
from servemap.server.gates.dirty import wait_clean
from servemap.server.gates.holders import look
from servemap.server.gates.ready import Ready, probe_marks, wait_ready
from servemap.server.launch.node_log import log_reader

pytestmark = pytest.mark.e2e
pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")

ENGINE = LlamaCpp()
NODE = LocalNode("n1")
PATCH = Path(__file__).parents[2] / "config" / "patches" / "ubatch-64.diff"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    install(folder)
    return folder


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Server:
    """A started server and how its log is read."""

    process: subprocess.Popen[bytes]
    start: int
    log: Path
    port: int
    root: Path
    model: ModelSpec

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait(self) -> Ready:
        read = log_reader(NODE, str(self.log))
        endpoints = ENGINE.endpoints(self.url)
        return wait_ready(
            lambda: check_completion(NODE, endpoints, self.model, 20),
            lambda: self.process.poll() is None,
            read,
            start_timeout_s=90,
            own_lines=probe_marks(endpoints),
        )

    def started(self) -> Started:
        return Started(
            pid=self.process.pid,
            start=self.start,
            bind="127.0.0.1",
            port=self.port,
            package_root=os.path.realpath(self.root),
            log=self.log_text,
            view=look(NODE, []).view,
        )

    def gates(self) -> GateResult:
        return run_gates(NODE, ENGINE, self.url, self.model, self.started(), timeout_s=20)


@contextmanager
def server(
    demo: Path,
    port: int,
    folder: Path,
    *,
    model_file: Path | None = None,
    root: Path | None = None,
    settings: Settings = Settings(context=8192, max_active=4),  # noqa: B008 - frozen
    alias: str = "tiny",
    cwd: Path | None = None,
    args: dict[str, ArgValue] = {"n_threads": 1, "n_batch": 512},  # noqa: B006 - read only
) -> Iterator[Server]:
    root = root or demo / "engine"
    model = ModelSpec(
        name="tiny",
        path=str(model_file or demo / "tiny.gguf"),
        context=8192,
        vocab=(300, 1000),
    )
    spec = ServerSpec(
        engine="llamacpp",
        port=port,
        package=Package(name="llamaserve", root=str(root)),
        settings=settings,
        args=args,
    )
    served = model.model_copy(update={"name": alias})
    place = Placement("local")
    argv = ENGINE.argv(spec, served, place, python=sys.executable, workdir=str(demo))
    own = python_env(spec, str(demo))
    env = {**os.environ, **{k: str(v) for k, v in own.items()}}
    log = folder / "server.log"
    with log.open("ab") as handle:
        process = subprocess.Popen(
            argv, env=env, cwd=cwd or folder, stdout=handle, stderr=handle, stdin=subprocess.DEVNULL
        )
    try:
        seen = read_process(process.pid)
        yield Server(process, seen.start if seen else 0, log, port, root, model)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def port_check(port: int) -> Check:
    """Whether the node is clean for a server on that port."""
    return wait_clean(NODE, NodeSpec(id="n1"), [], ports=[(port, "127.0.0.1")], grace_s=0)


def failed(result: GateResult) -> list[str]:
    return [check.name for check in result.checks if check.ok is False]


def check(result: GateResult, name: str) -> Check:
    return next(check for check in result.checks if check.name == name)


def test_start_gates_stop(demo: Path, port: int, tmp_path: Path) -> None:
    assert port_check(port).ok is not False
    with server(demo, port, tmp_path) as running:
        ready = running.wait()
        assert ready.ok, ready.reason
        result = running.gates()
        assert failed(result) == []
        names = [check.name for check in result.checks]
        assert names == ["process", "port", "completion", "model", "context", "module"]
        assert result.effective.context == 8192
        assert result.effective.settings["n_ubatch"] == 512
        assert result.effective.engine_version == f"xllamacpp {version('xllamacpp')}"
        taken = port_check(port)
        assert taken.ok is False
        assert f"pid {running.process.pid} of user" in taken.evidence
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
        assert running.log_text.splitlines()[-1].startswith("llamaserve: stopped by SIGTERM")
        assert [finding.id for finding in explain(running.log_text)] == ["llamacpp-stopped"]
        assert failed(running.gates()) == ["process", "port", "completion", "model", "context"]


def test_stop_does_not_wait_for_running_requests(demo: Path, port: int, tmp_path: Path) -> None:
    body = {"model": "tiny", "prompt": [400, 401], "max_tokens": 8000, "ignore_eos": True}
    with server(demo, port, tmp_path) as running:
        assert running.wait().ok
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            text = json.dumps(body)
            head = (
                f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
            )
            client.sendall((head + text).encode())
            while "processing task" not in running.log_text.rpartition("release: ")[2]:
                assert running.process.poll() is None
            running.process.terminate()
            assert running.process.wait(60) == 0


def test_tokens_arrive_one_by_one_as_text(demo: Path, port: int, tmp_path: Path) -> None:
    body = {
        "model": "tiny",
        "prompt": list(range(300, 364)),
        "max_tokens": 200,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with server(demo, port, tmp_path) as running:
        assert running.wait().ok
        reply = ask(f"{running.url}/v1/completions", 60, body)
    events = [
        json.loads(line.removeprefix("data: "))
        for line in reply["text"].splitlines()
        if line.startswith("data: {")
    ]
    texts = [choice["text"] for event in events for choice in event["choices"]]
    usage = [event["usage"] for event in events if event.get("usage")]
    # The seed of the sampling is random, but no token is an end or part of a character.
    assert usage[-1]["completion_tokens"] == 200
    assert len([text for text in texts if text]) == 200
    assert all(text.isascii() for text in texts)


@pytest.mark.parametrize(
    ("size", "signature"),
    [
        (None, "llamacpp-model-unreadable"),
        (4_000_000, "llamacpp-model-incomplete"),
        (0, "llamacpp-model-incomplete"),
    ],
)
def test_model_file_that_cannot_be_loaded(
    demo: Path, port: int, tmp_path: Path, size: int | None, signature: str
) -> None:
    model = tmp_path / "broken.gguf"
    if size is not None:
        model.write_bytes((demo / "tiny.gguf").read_bytes()[:size])
    with server(demo, port, tmp_path, model_file=model) as running:
        ready = running.wait()
        assert not ready.ok
        assert "the process ended" in ready.reason
        assert str(model) in ready.reason
        assert running.process.wait(60) == 1
        last = running.log_text.splitlines()[-1]
        assert last.startswith("llamaserve: error: ")
        findings = explain(running.log_text)
        assert (findings[0].id, findings[0].role) == (signature, "cause")
        assert failed(running.gates())[:3] == ["process", "port", "completion"]


def test_port_taken_by_another_program(demo: Path, tmp_path: Path) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        before = port_check(port)
        assert before.ok is False
        assert f"pid {os.getpid()} of user" in before.evidence
        with server(demo, port, tmp_path) as running:
            assert running.process.wait(60) == 1
            assert running.log_text.splitlines()[-1].startswith(
                f"llamaserve: error: cannot listen on 127.0.0.1 port {port}: "
            )
            assert explain(running.log_text)[0].id == "llamacpp-port"
            result = run_gates(
                NODE, ENGINE, running.url, running.model, running.started(), timeout_s=0.5
            )
            assert failed(result) == ["process", "port", "completion", "model", "context"]
            assert f"pid {os.getpid()} (" in check(result, "port").evidence


def test_another_server_on_the_port_is_not_taken_for_ours(
    demo: Path, port: int, tmp_path: Path
) -> None:
    """A server of the same model answers, but the process that we started is not its owner."""
    with server(demo, port, tmp_path) as foreign:
        assert foreign.wait().ok
        with subprocess.Popen(["sleep", "60"]) as ours:
            seen = read_process(ours.pid)
            assert seen is not None
            started = dataclasses.replace(foreign.started(), pid=ours.pid, start=seen.start)
            result = run_gates(NODE, ENGINE, foreign.url, foreign.model, started)
            ours.kill()
    assert failed(result) == ["port"]
    assert f"pid {foreign.process.pid} (" in check(result, "port").evidence


def test_start_folder_that_shadows_the_package(demo: Path, port: int, tmp_path: Path) -> None:
    shadow = tmp_path / "elsewhere"
    shutil.copytree(demo / "engine" / "llamaserve", shadow / "llamaserve")
    with server(demo, port, tmp_path, cwd=shadow) as running:
        assert running.wait().ok
        result = running.gates()
    assert failed(result) == ["module"]
    evidence = check(result, "module").evidence
    assert str(shadow / "llamaserve") in evidence
    assert str(demo / "engine") in evidence


def test_a_package_that_a_patch_links_to_is_no_shadow(
    demo: Path, port: int, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "llamaserve").symlink_to(demo / "engine" / "llamaserve")
    root = tmp_path / "linked"
    root.symlink_to(tmp_path / "real")
    with server(demo, port, tmp_path, root=root) as running:
        assert running.wait().ok
        assert failed(running.gates()) == []


def test_other_model_name_and_shorter_context(demo: Path, port: int, tmp_path: Path) -> None:
    settings = Settings(context=4096, max_active=2)
    with server(demo, port, tmp_path, alias="other", settings=settings) as running:
        assert running.wait().ok
        result = running.gates()
    assert failed(result) == ["model", "context"]
    assert "served: other; asked: tiny" in check(result, "model").evidence
    assert "4096" in check(result, "context").evidence


def test_patched_setting_is_in_effect(demo: Path, port: int, tmp_path: Path) -> None:
    root = tmp_path / "engine"
    shutil.copytree(demo / "engine" / "llamaserve", root / "llamaserve")
    subprocess.run(["git", "apply", str(PATCH)], cwd=root, check=True)
    with server(demo, port, tmp_path, root=root) as running:
        assert running.wait().ok
        result = running.gates()
        start = last_json_line(running.log_text, "llamaserve: starting ")
    assert failed(result) == []
    assert result.effective.settings["n_ubatch"] == 64
    assert start["settings"]["n_ubatch"] == 64
    assert start["module"] == str(root / "llamaserve" / "__main__.py")
    assert not list(root.rglob("__pycache__"))


def test_finished_prompts_leave_the_shared_cache(demo: Path, port: int, tmp_path: Path) -> None:
    """Else what is measured depends on what was measured before it."""
    settings = Settings(context=2048, max_active=4)
    with server(demo, port, tmp_path, settings=settings) as running:
        assert running.wait().ok
        for start in (300, 400, 500, 600):
            prompt = [start, *range(start, start + 99)] * 6
            body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
            assert ask(f"{running.url}/v1/completions", 60, body)["error"] is None
        assert "failed to find a memory slot" not in running.log_text


def test_wrong_option_is_named(demo: Path, port: int, tmp_path: Path) -> None:
    with server(demo, port, tmp_path, args={"n_thread": 1}) as running:
        assert running.process.wait(60) == 2
        assert "unrecognized arguments: --n-thread 1" in running.log_text.splitlines()[-1]
        assert explain(running.log_text)[0].id == "llamacpp-option"
