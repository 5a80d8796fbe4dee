"""What the logs of a lost server are taken to say."""

from pathlib import Path

import pytest

from servemap.server.gates.checks import Check
from servemap.server.launch import process
from servemap.server.launch.diagnosis import diagnose, to_do, why_failed, why_lost
from tests.fakes import FakeNode, campaign, fake_context

CAUSE = "worker 1 died unexpectedly (exit code: -9)\n"
STOPPED = "llamaserve: stopped by SIGTERM\n"
SAID = "A process of the server was killed with SIGKILL"


@pytest.mark.parametrize(
    ("log", "end", "begins"),
    [
        (CAUSE, None, [SAID]),
        (STOPPED, None, []),
        ("hello\n", None, []),
        (CAUSE, {"signal": 9}, [SAID]),
        (STOPPED, {"signal": 9}, []),
        ("hello\n", {"signal": 9}, []),
        ("hello\n", {"code": 1}, ["last lines of its log: hello"]),
        (STOPPED, {"code": 1}, ["The server was told to stop"]),
    ],
)
def test_who_tells_why_a_server_was_lost(
    log: str,
    end: dict[str, int] | None,
    begins: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    node.server_log = log
    context = fake_context(node, campaign())
    running = process.start(
        node, context.workdir("n1"), boot_id="b", variant="baseline", fingerprint="f", port=1,
        argv=["serve"], env={}, secrets={}, cwd=None, ttl_s=60, grace_s=1,
    )  # fmt: skip
    if end is not None:
        node.server_dies(**end)
    said = why_lost(context, "baseline", {"n1": running})
    assert len(said) == len(begins)
    for text, begin in zip(said, begins, strict=True):
        assert text.startswith(begin)


def test_a_failed_start_says_what_its_log_asks_for_as_what_is_to_do() -> None:
    ready = Check("ready", False, "the process ended after 0.1 s")
    log = "supervise: cannot start the server: [Errno 2] No such file or directory: '/no/python'\n"
    one = {"n1": diagnose(log, "vllm", exit_words="it exited with code 127", ready=False)}
    assert "server.python" in to_do(one, [ready])
    assert "server.python" not in why_failed(one, [ready])
    said = why_failed(one, [ready])
    assert said.startswith("The server's interpreter, or server.cwd, is not on the node")
    assert said.count(log.strip()) == 1, "the line that tells it is shown"
    shown = Check("ready", False, f"the process ended; last line of its log: {log.strip()}")
    assert why_failed(one, [shown]).count(log.strip()) == 1, "and not twice"
    assert to_do({**one, "n2": one["n1"]}, [ready]) == to_do(one, [ready]), "once for all ranks"
    silent = {"n1": diagnose("hello\n", "vllm", exit_words="it exited with code 1", ready=False)}
    assert to_do(silent, [ready]) == "read the log there"
    gate = Check("model", False, "it serves another one", "mend model.name")
    assert to_do(one, [gate]) == "mend model.name"
