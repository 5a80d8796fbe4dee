from collections.abc import Callable
from pathlib import Path

from servemap.engines.llamacpp import LlamaCpp
from servemap.nodes.local import LocalNode
from servemap.server.gates.checks import Check
from servemap.server.gates.ready import Ready, log_reader, probe_marks, wait_ready

MARKS = probe_marks(LlamaCpp().endpoints("http://127.0.0.1:1"))


def wait(
    at: dict[float, str] | Callable[[float], str],
    *,
    ready_at: float = 1e9,
    dead_at: float = 1e9,
    start_timeout_s: float = 10,
) -> tuple[Ready, float]:
    """Wait in made-up time: `at` gives the log's lines by second, or by a function of it."""
    now = 0.0
    told: set[float] = set()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def new_log() -> str:
        if callable(at):
            return at(now)
        due = [second for second in at if second <= now and second not in told]
        told.update(due)
        return "".join(at[second] + "\n" for second in due)

    result = wait_ready(
        lambda: Check("completion", now >= ready_at, "Connection refused"),
        lambda: now < dead_at,
        new_log,
        start_timeout_s=start_timeout_s,
        own_lines=MARKS,
        clock=lambda: now,
        sleep=sleep,
    )
    return result, now


def test_ready_at_once() -> None:
    result, now = wait({0: "hello"}, ready_at=0)
    assert (result.ok, result.reason, now) == (True, "", 0)


def test_a_slow_start_that_goes_on_is_waited_for() -> None:
    result, now = wait({second: f"loading {second}" for second in range(0, 345, 8)}, ready_at=340)
    assert result.ok
    assert now >= 340
    assert result.waited_s == now


def test_silence_ends_the_wait() -> None:
    result, now = wait({0: "a", 5: "Capturing CUDA graphs"})
    assert not result.ok
    assert 15 <= now < 17
    assert "no new line in its log for 10 s" in result.reason
    assert "Capturing CUDA graphs" in result.reason
    assert "Connection refused" in result.reason


def test_the_echo_of_our_own_probes_is_no_progress() -> None:
    result, now = wait(lambda now: '127.0.0.1 - "POST /v1/completions HTTP/1.1" 503\n')
    assert not result.ok
    assert now < 12
    assert "its log is empty" in result.reason


def test_a_death_ends_the_wait_at_once_with_its_last_words() -> None:
    result, now = wait({0: "a", 2: "llamaserve: error: no file"}, dead_at=2)
    assert not result.ok
    assert now < 3
    assert "the process ended after 2." in result.reason
    assert "llamaserve: error: no file" in result.reason


def test_a_dead_process_is_not_ready_though_another_server_answers() -> None:
    result, _ = wait({}, ready_at=0, dead_at=0)
    assert not result.ok


def test_log_reader_gives_what_is_new(tmp_path: Path) -> None:
    log = tmp_path / "log"
    read = log_reader(LocalNode("n1"), str(log))
    assert read() == ""
    log.write_text("old\n")
    assert read() == "old\n"
    assert read() == ""
    with log.open("a") as handle:
        handle.write("new\n")
    assert read() == "new\n"
    assert read() == ""


def test_log_reader_puts_a_cut_letter_together(tmp_path: Path) -> None:
    log = tmp_path / "log"
    read = log_reader(LocalNode("n1"), str(log))
    data = "模型 loaded\n".encode()
    log.write_bytes(data[:2])
    first = read()
    log.write_bytes(data)
    assert first + read() == "模型 loaded\n"
