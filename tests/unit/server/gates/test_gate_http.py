import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from servemap.model.errors import NodeError
from servemap.nodes.base import Node
from servemap.nodes.local import LocalNode
from servemap.onnode import ask as asking
from servemap.onnode.ask import parse_questions, shorten
from servemap.server.gates.ask import Question, Reply, ask
from tests.fakes import FakeNode, FarNode
from tests.waiting import WAIT_S


def fetch(url: str, timeout_s: float) -> Reply:
    (reply,) = ask(LocalNode("n1"), Question(url, timeout_s))
    return reply


Handler = Callable[[socket.socket], None]


@pytest.fixture
def serve() -> Iterator[Callable[[Handler], str]]:
    """Accept one connection with a handler that writes raw bytes; return the address."""
    release = threading.Event()
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []

    def start(handler: Handler) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            try:
                accepted = listener.accept()[0]
            except OSError:
                return
            with closing(accepted) as client:
                client.recv(65536)
                handler(client)
                release.wait(WAIT_S)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1/models"

    yield start
    release.set()
    for listener in listeners:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(WAIT_S)


def answer(status: str, body: bytes) -> Handler:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return lambda client: client.sendall(head.encode() + body)


def test_an_answer(serve: Callable[[Handler], str]) -> None:
    reply = fetch(serve(answer("200 OK", b'{"data": []}')), WAIT_S)
    assert (reply.status, reply.error, reply.json) == (200, None, {"data": []})
    assert reply.evidence.endswith('answered 200: {"data": []}')


def test_a_refusal_keeps_what_the_server_said(serve: Callable[[Handler], str]) -> None:
    reply = fetch(serve(answer("503 Busy", b'{"error": "Loading model"}')), WAIT_S)
    assert reply.status == 503
    assert reply.error == 'HTTP status 503: {"error": "Loading model"}'
    assert reply.json == {"error": "Loading model"}


def test_garbage_is_no_json(serve: Callable[[Handler], str]) -> None:
    reply = fetch(serve(answer("200 OK", b"\xff\xfe<html>")), WAIT_S)
    assert reply.error is None
    assert reply.json is None
    assert Reply("u", 200, "[" * 100_000, None).json is None


def test_no_http_at_all(serve: Callable[[Handler], str]) -> None:
    reply = fetch(serve(lambda client: client.sendall(b"SSH-2.0-OpenSSH_9\r\n")), WAIT_S)
    assert reply.status is None
    assert reply.error is not None
    assert "BadStatusLine" in reply.error


def test_silence_ends_in_time(serve: Callable[[Handler], str]) -> None:
    reply = fetch(serve(lambda client: None), 0.2)
    assert reply.error == "no answer within 0.2 s"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\n\r\n",
    ],
)
def test_an_answer_that_drips_ends_in_time(serve: Callable[[Handler], str], head: bytes) -> None:
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        try:
            client.sendall(head)
            while True:
                client.sendall(b"H")
                threading.Event().wait(0.02)
        except OSError:
            ended.set()

    reply = fetch(serve(drip), 0.3)
    assert (reply.status, reply.error) == (None, "no answer within 0.3 s")
    assert ended.wait(WAIT_S), "the connection is closed, too"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed(serve: Callable[[Handler], str], status: str) -> None:
    other = serve(answer("200 OK", b'{"data": []}'))
    head = f"HTTP/1.1 {status}\r\nLocation: {other}\r\nContent-Length: 0\r\n\r\n"
    reply = fetch(serve(lambda client: client.sendall(head.encode())), WAIT_S)
    assert (reply.status, reply.json) == (int(status[:3]), None)
    assert reply.evidence.endswith(
        f"HTTP status {status[:3]}: a redirect to {other}, which is not followed"
    )


def test_a_body_that_is_cut(serve: Callable[[Handler], str]) -> None:
    def cut(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{")
        client.shutdown(socket.SHUT_RDWR)

    reply = fetch(serve(cut), WAIT_S)
    assert reply.error is not None
    assert "IncompleteRead" in reply.error


def test_an_endless_body_is_cut(
    serve: Callable[[Handler], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "MAX_BYTES", 1000)
    reply = fetch(serve(answer("200 OK", b"x" * 5000)), WAIT_S)
    assert len(reply.text) == 1000


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        reply = fetch(f"http://127.0.0.1:{free.getsockname()[1]}/health", WAIT_S)
    assert (reply.status, reply.error) == (None, "Connection refused")


@pytest.mark.parametrize(
    "url", ["", "file:///etc/hostname", "http://", "http://[::1", "http://x:port/", "http://a b/"]
)
def test_an_address_that_is_none(url: str) -> None:
    reply = fetch(url, 1)
    assert reply.status is None
    assert reply.error


@pytest.fixture(params=["here", "far"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return LocalNode("n1") if request.param == "here" else FarNode("w1", tmp_path)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_proxies_are_not_used(
    node: Node, serve: Callable[[Handler], str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    (reply,) = ask(node, Question(serve(answer("200 OK", b"{}")), WAIT_S))
    assert reply.status == 200


def test_answers_come_in_the_order_of_the_questions(
    node: Node, serve: Callable[[Handler], str]
) -> None:
    good, bad = serve(answer("200 OK", b'"a"')), serve(answer("503 Busy", b"later"))
    silent = serve(lambda client: None)
    replies = ask(
        node,
        Question(good, WAIT_S, {"prompt": [1]}),
        Question(silent, 0.2),
        Question(bad, WAIT_S),
        Question("ftp://x", WAIT_S),
    )
    assert [(one.url, one.status, one.error) for one in replies] == [
        (good, 200, None),
        (silent, None, "no answer within 0.2 s"),
        (bad, 503, "HTTP status 503: later"),
        ("ftp://x", None, "not an http:// or https:// address"),
    ]


@pytest.mark.parametrize(
    "said", ["[]", "hello", "{}", "3", '[{"url": "u"}]', '[["u", 200, "", null]]', "[null]"]
)
def test_an_agent_that_does_not_answer_the_question(said: str) -> None:
    class Chatty(FakeNode):
        here = False

    chatty = Chatty("w1")
    chatty.on_run["ask"] = lambda argv: said
    with pytest.raises(NodeError, match="w1: "):
        ask(chatty, Question("http://127.0.0.1:1", 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '[{"timeout_s": 1}]',
        '[{"url": "u"}]',
        '[{"url": "u", "timeout_s": 0}]',
        '[{"url": "u", "timeout_s": true}]',
        '[{"url": "u", "timeout_s": 1, "body": []}]',
    ],
)
def test_questions_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        parse_questions(text)


def test_shorten() -> None:
    assert shorten(" a\n\tb ") == "a b"
    assert len(shorten("x" * 500)) == 200
