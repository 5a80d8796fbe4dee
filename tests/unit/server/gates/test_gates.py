import dataclasses
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.attached import AttachedServer
from servemap.engines.llamacpp import LlamaCpp
from servemap.engines.vllm import Vllm
from servemap.model.server_spec import ModelSpec
from servemap.nodes.base import Completed
from servemap.nodes.local import LocalNode
from servemap.onnode.view import Process
from servemap.server.gates.checks import (
    Started,
    check_completion,
    check_module,
    run_gates,
)
from servemap.server.gates.ports import NodeView
from servemap.server.gates.ready import check_ready
from tests.fakes import FarNode

NODE = LocalNode("n1")
MODEL = ModelSpec(name="tiny", path="/m", context=4096, vocab=(300, 1000))
GOOD: dict[str, Any] = {
    "/v1/completions": {"choices": [{"text": "a"}]},
    "/v1/models": {"data": [{"id": "tiny", "meta": {"n_ctx": 8192}}]},
    "/props": {"default_generation_settings": {"n_ctx": 4096}},
}
LOG = 'llamaserve: starting {"module": "/root/engine/llamaserve/__main__.py", "settings": {}}\n'


class Counting(FarNode):
    """Keeps the command lines that ran there."""

    def __init__(self, name: str, home: Path) -> None:
        super().__init__(name, home)
        self.programs: list[Sequence[str]] = []

    def run(self, argv: Sequence[str], **keys: Any) -> Completed:
        self.programs.append(argv)
        return super().run(argv, **keys)


class Fake(ThreadingHTTPServer):
    """Answers each path with what `answers` holds; bytes are sent as they are."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = dict(GOOD)
        self.bodies: list[Any] = []
        super().__init__(("127.0.0.1", 0), FakeHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class FakeHandler(BaseHTTPRequestHandler):
    server: Fake

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.bodies.append(json.loads(self.rfile.read(length)))
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def tcp(port: int, inode: int) -> str:
    return f"0: 0100007F:{port:04X} 00000000:0000 0A 0:0 0:0 0 1000 0 {inode} 1\n"


def started(port: int) -> Started:
    """A launcher (pid 7) whose child (pid 8) listens; pid 50 is someone else's."""
    processes = {
        7: Process(7, 1, 70, "S", "launcher", "alice"),
        8: Process(8, 7, 80, "S", "server", "alice"),
        50: Process(50, 1, 500, "S", "jupyter --port 1", "bob"),
    }
    view = NodeView(tcp(port, 11), "", {11: (8,)}, processes)
    return Started(7, 70, "127.0.0.1", port, "/root/engine", LOG, view)


def gate(fake: Fake, start: Started | None) -> dict[str, tuple[bool | None, str]]:
    result = run_gates(NODE, LlamaCpp(), fake.url, MODEL, start, timeout_s=5)
    assert all(check.remedy for check in result.checks if check.ok is False)
    assert result.ok is all(check.ok is not False for check in result.checks)
    return {check.name: (check.ok, check.evidence) for check in result.checks}


def failed(checks: dict[str, tuple[bool | None, str]]) -> list[str]:
    return [name for name, (ok, _) in checks.items() if ok is False]


def test_all_is_well(fake: Fake) -> None:
    checks = gate(fake, started(fake.server_port))
    assert list(checks) == ["process", "port", "completion", "model", "context", "module"]
    assert failed(checks) == []
    (body,) = fake.bodies
    assert (body["model"], body["max_tokens"]) == ("tiny", 1)
    assert body["prompt"] == [300, 301, 302, 303]


def test_checks_can_be_stored(fake: Fake) -> None:
    result = run_gates(NODE, LlamaCpp(), fake.url, MODEL, started(fake.server_port), timeout_s=5)
    records = json.loads(json.dumps([check.record() for check in result.checks]))
    assert set(records[0]) == {"name", "ok", "evidence", "remedy"}


def test_an_attached_server_is_judged_by_its_answers(fake: Fake) -> None:
    assert list(gate(fake, None)) == ["completion", "model", "context"]
    fake.answers["/v1/models"] = {"data": [{"id": "tiny"}]}
    result = run_gates(NODE, AttachedServer(Vllm()), fake.url, MODEL, timeout_s=5)
    assert [(check.name, check.ok) for check in result.checks] == [
        ("completion", True),
        ("model", True),
        ("context", None),
    ]
    assert result.ok


@pytest.mark.parametrize(
    ("processes", "evidence"),
    [
        ({}, "no process 7"),
        ({7: Process(7, 1, 71, "S", "vim", "bob")}, "another process by now: vim"),
        ({7: Process(7, 1, 70, "Z", "launcher", "alice")}, "has ended (state Z)"),
    ],
)
def test_a_process_that_is_gone_owns_nothing(
    fake: Fake, processes: dict[int, Process], evidence: str
) -> None:
    start = started(fake.server_port)
    others = {pid: item for pid, item in start.view.processes.items() if pid != 7}
    view = dataclasses.replace(start.view, processes={**others, **processes})
    checks = gate(fake, dataclasses.replace(start, view=view))
    assert failed(checks) == ["process", "port"]
    assert evidence in checks["process"][1]


def test_a_foreign_owner_is_named(fake: Fake) -> None:
    start = started(fake.server_port)
    view = dataclasses.replace(start.view, sockets={11: (50,)})
    checks = gate(fake, dataclasses.replace(start, view=view))
    assert failed(checks) == ["port"]
    assert "pid 50 (jupyter --port 1) of user bob" in checks["port"][1]


def test_a_process_inside_the_servers_container_is_ours(fake: Fake) -> None:
    """It is no descendant of the program that started the container."""
    start = started(fake.server_port)
    view = dataclasses.replace(start.view, sockets={11: (50,)})
    inside = dataclasses.replace(start, view=view, also=frozenset({50}))
    assert failed(gate(fake, inside)) == []


def test_a_foreign_socket_beside_ours_is_named(fake: Fake) -> None:
    """Two programs may share a port with SO_REUSEPORT, and then share its connections."""
    start = started(fake.server_port)
    both = start.view.tcp + tcp(fake.server_port, 12)
    view = dataclasses.replace(start.view, tcp=both, sockets={11: (8,), 12: (50,)})
    checks = gate(fake, dataclasses.replace(start, view=view))
    assert failed(checks) == ["port"]
    assert "pid 50" in checks["port"][1]
    assert "pid 8" not in checks["port"][1]


def test_nobody_on_the_port(fake: Fake) -> None:
    start = started(fake.server_port)
    checks = gate(fake, dataclasses.replace(start, view=dataclasses.replace(start.view, tcp="")))
    assert failed(checks) == ["port"]
    assert "nobody listens" in checks["port"][1]


@pytest.mark.parametrize(
    "answer",
    [None, b"", b"<html>", [], {"choices": []}, {"choices": [{}]}, {"choices": [3]}, {"error": 1}],
)
def test_an_answer_that_is_no_completion(fake: Fake, answer: Any) -> None:
    fake.answers["/v1/completions"] = answer
    checks = gate(fake, started(fake.server_port))
    assert failed(checks) == ["completion"]
    assert "/v1/completions" in checks["completion"][1]


def test_a_token_without_text_is_told(fake: Fake) -> None:
    """An engine may serve a model whose folder lacks the tokenizer; it then says nothing."""
    fake.answers["/v1/completions"] = {"choices": [{"text": ""}]}
    checks = gate(fake, started(fake.server_port))
    assert checks["completion"][0] is True
    assert "without any text" in checks["completion"][1]
    fake.answers["/v1/completions"] = {"choices": [{"text": "a"}]}
    assert "without" not in gate(fake, started(fake.server_port))["completion"][1]


@pytest.mark.parametrize("answer", [None, b"garbage", {"data": [{"id": 3}]}, []])
def test_models_that_are_not_said(fake: Fake, answer: Any) -> None:
    fake.answers["/v1/models"] = answer
    checks = gate(fake, started(fake.server_port))
    assert failed(checks) == ["model"]
    assert "/v1/models" in checks["model"][1]


def test_another_model(fake: Fake) -> None:
    fake.answers["/v1/models"] = {"data": [{"id": "a"}, {"id": "b"}]}
    checks = gate(fake, started(fake.server_port))
    assert checks["model"] == (False, "served: a, b; asked: tiny")


def test_context_just_long_enough_and_too_short(fake: Fake) -> None:
    assert gate(fake, None)["context"][0] is True
    fake.answers["/props"] = {"default_generation_settings": {"n_ctx": 4095}}
    assert gate(fake, None)["context"] == (False, "longest sequence 4095 tokens; asked: 4096")


def test_a_started_server_must_say_its_context(fake: Fake) -> None:
    fake.answers["/props"] = b"garbage"
    fake.answers["/v1/models"] = {"data": [{"id": "tiny"}]}
    assert failed(gate(fake, started(fake.server_port))) == ["context"]


def test_nothing_answers() -> None:
    checks = run_gates(NODE, LlamaCpp(), "http://127.0.0.1:9", MODEL, timeout_s=5).checks
    assert [(check.name, check.ok) for check in checks] == [
        ("completion", False),
        ("model", False),
        ("context", None),
    ]
    assert "refused" in checks[0].evidence
    assert checks[0].remedy == (
        "nothing answers at http://127.0.0.1:9: start that server or mend server.attach"
    )


def test_an_attached_server_that_answers_wrongly_is_not_a_dead_one(fake: Fake) -> None:
    fake.answers["/v1/completions"] = b"<html>"
    (check,) = [c for c in run_gates(NODE, LlamaCpp(), fake.url, MODEL).checks if c.ok is False]
    assert check.remedy.startswith("see the server's log")


@pytest.mark.parametrize(
    ("module", "root", "ok"),
    [
        ("/w/engine/llamaserve/__main__.py", "/w/engine", True),
        ("/w/engine/llamaserve/__main__.py", "/w/engine/", True),
        ("/w/engine2/llamaserve/__main__.py", "/w/engine", False),
        ("/w/engine/../other/llamaserve/__main__.py", "/w/engine", False),
        (None, "/w/engine", False),
        ("/w/x.py", "/", True),
    ],
)
def test_imported_module(module: str | None, root: str, ok: bool) -> None:
    check = check_module(module, root)
    assert check.ok is ok
    assert ok or check.remedy


def test_any_module_will_do_where_no_package_is_named(fake: Fake) -> None:
    start = dataclasses.replace(started(fake.server_port), package_root=None, log="")
    assert "module" not in gate(fake, start)


def test_one_token_of_a_server_that_is_starting(fake: Fake) -> None:
    endpoints = LlamaCpp().endpoints(fake.url)
    assert check_completion(NODE, endpoints, MODEL, 5).ok is True
    fake.answers["/v1/completions"] = {"error": "loading"}
    check = check_completion(NODE, endpoints, MODEL, 5)
    assert (check.ok, "loading" in check.evidence) == (False, True)


def test_a_server_that_answers_while_it_warms_up_is_not_ready(fake: Fake) -> None:
    endpoints = LlamaCpp().endpoints(fake.url)
    check = check_ready(NODE, endpoints, MODEL, 5)
    assert (check.name, check.ok, "404" in check.evidence) == ("health", False, True)
    fake.answers["/health"] = {"status": "ok"}
    assert check_ready(NODE, endpoints, MODEL, 5).ok is True
    fake.answers["/v1/completions"] = {"error": "loading"}
    assert check_ready(NODE, endpoints, MODEL, 5).name == "completion"


def test_gates_of_a_far_node_cost_one_process(fake: Fake, tmp_path: Path) -> None:
    node = Counting("w1", tmp_path)
    result = run_gates(node, LlamaCpp(), fake.url, MODEL, started(fake.server_port), timeout_s=5)
    assert [check.name for check in result.checks if check.ok is not True] == []
    assert len(node.programs) == 1
