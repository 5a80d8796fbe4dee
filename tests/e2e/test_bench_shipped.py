"""The load client as it is shipped to a node: one .pyz, the oldest Python there, any death."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import zipapp
from pathlib import Path

import pytest

import servemap.onnode
from tests.parts import need

START = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":2}}\n\ndata: [DONE]\n\n'


@pytest.fixture
def pyz(tmp_path):
    """The package as one file, with an entry that knows the one command."""
    package = tmp_path / "build" / "onnode"
    shutil.copytree(
        Path(servemap.onnode.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__", "__main__.py"),
    )
    (package.parent / "__main__.py").write_text(
        "import sys\nfrom onnode.bench import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    zipapp.create_archive(package.parent, tmp_path / "bench.pyz")
    return tmp_path / "bench.pyz"


@pytest.fixture
def server():
    """A server that sends two tokens and ends, or hangs after the first (`hang` set)."""
    listener = socket.create_server(("127.0.0.1", 0))
    hang = threading.Event()
    reached = threading.Event()

    def answer(sock: socket.socket) -> None:
        with sock:
            data = b""
            while b"max_tokens" not in data or not data.endswith(b"]}"):
                more = sock.recv(65536)
                if not more:
                    return
                data += more
            sock.sendall(START + b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN))
            reached.set()
            if hang.is_set():
                sock.recv(1)
                return
            rest = TOKEN + LAST
            sock.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1], hang, reached
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def command(python: str, pyz: Path, port: int, out: Path) -> list[str]:
    line = f"--url http://127.0.0.1:{port} --model m --isl 8 --osl 2 --num-prompts 3 --warmup 0"
    return [python, str(pyz), *line.split(), "--out", str(out)]


def test_it_runs_under_python_3_8(pyz, server, tmp_path):
    done = subprocess.run(
        command(need("python38"), pyz, server[0], tmp_path / "out"),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")
    client = json.loads((tmp_path / "out" / "client.json").read_text())
    assert client["python"].startswith("3.8.")
    assert client["counts"]["ok"] == 3


def test_proxy_variables_are_ignored(pyz, server, tmp_path):
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:1")
    done = subprocess.run(
        command("python3", pyz, server[0], tmp_path / "out"),
        env={**os.environ, **proxies},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0
    assert "3 ok" in done.stdout


@pytest.mark.parametrize(("number", "whole"), [(signal.SIGKILL, False), (signal.SIGTERM, True)])
def test_a_killed_client_leaves_nothing_that_looks_whole(pyz, server, tmp_path, number, whole):
    port, hang, reached = server
    hang.set()
    out = tmp_path / "out"
    process = subprocess.Popen(command("python3", pyz, port, out), stderr=subprocess.PIPE)
    assert reached.wait(60)
    # Time for the client to read the token that was sent.
    time.sleep(0.5)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (out / "client.json").exists() is whole
    if whole:
        assert process.returncode == 1
        assert said == b"bench: terminated\n"
        client = json.loads((out / "client.json").read_text())
        assert (client["status"], client["reasons"]) == ("failed", ["terminated"])
        (line,) = (out / "requests.jsonl").read_text().splitlines()
        assert json.loads(line)["kinds"] == "t"
