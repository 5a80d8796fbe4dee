"""Another machine over ssh: programs, files and processes, against a real sshd on loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from servemap.model.errors import NodeError
from servemap.nodes import ssh_reach, ssh_talk
from servemap.nodes.base import Node, ProcessId
from servemap.nodes.identity import identify, machine_boot_id
from servemap.nodes.ssh import SshNode
from tests.parts import need
from tests.unit.nodes.sshd import Sshd
from tests.unit.nodes.test_local import gone, has_line, python, wait_for_text
from tests.waiting import WAIT_S, longer, wait_for

BOUNDED = (ssh_talk,)


def test_it_is_a_node_of_another_machine(node: SshNode, sshd: Sshd) -> None:
    as_protocol: Node = node
    assert (as_protocol.name, as_protocol.here, as_protocol.python) == ("far", False, "python3")
    # the home's name holds a space
    assert node.state_dir() == f"{sshd.home}/.local/state/servemap"


def test_run_returns_what_the_program_did(node: SshNode, tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.environ['A'], os.environ['LC_ALL'], os.getcwd(), input());"
        "print('bad \\udc80', file=open(2, 'w', errors='surrogateescape')); sys.exit(3)"
    )
    folder = tmp_path / "a b"
    folder.mkdir()
    env = {"A": "two\nlines ' \" \\ $HOME !x"}
    done = node.run(python(code), timeout_s=WAIT_S, env=env, input="in", cwd=str(folder))
    assert (done.code, done.stdout) == (3, f"{env['A']} C {folder} in\n")
    assert done.stderr == "bad \ufffd\n"
    assert done.seconds > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_the_code_of_a_signal_is_negative(node: SshNode, number: signal.Signals) -> None:
    done = node.run(["sh", "-c", f"echo out; kill -{int(number)} $$"], timeout_s=WAIT_S)
    assert (done.code, done.stdout) == (-number, "out\n")


@pytest.mark.parametrize("code", [0, 1, 126, 127, 137, 255])
def test_a_code_is_a_code(node: SshNode, code: int) -> None:
    assert node.run(["sh", "-c", f"exit {code}"], timeout_s=WAIT_S).code == code


def test_arguments_never_meet_a_shell(node: SshNode) -> None:
    nasty = ["$(touch x); `id` && 'q' \"*\"", "a\nb\n", "", "-n", "~", "é\udc80", "\\n\\"]
    code = "import os, sys; sys.stdout.write(repr(sys.argv[1:]))"
    done = node.run([*python(code), *nasty], timeout_s=WAIT_S, env={"PYTHONUTF8": "1"})
    assert done.stdout == repr(nasty)


def test_much_input_and_much_output_do_not_hold_each_other_up(node: SshNode) -> None:
    code = (
        "import sys\n"
        "while True:\n"
        "    data = sys.stdin.read(65536)\n"
        "    if not data: break\n"
        "    sys.stderr.write(data); sys.stdout.write(data)\n"
    )
    text = "x" * 12_000_000
    done = node.run(python(code), timeout_s=60, input=text)
    assert (done.stdout == text, done.stderr == text) == (True, True)


def test_input_that_nobody_reads_is_no_error(node: SshNode) -> None:
    assert node.run(["true"], timeout_s=WAIT_S, input="x" * 8_000_000).code == 0


def test_without_input_a_reader_sees_the_end(node: SshNode) -> None:
    done = node.run(python("import sys; print(repr(sys.stdin.read()))"), timeout_s=WAIT_S)
    assert done.stdout == "''\n"


def test_time_out_kills_the_children_too(node: SshNode, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        f"import os, time; child = os.fork()\n"
        f"if child: print(child, file=open({str(pid_file)!r}, 'w'), flush=True)\n"
        f"time.sleep(600)"
    )
    for limit_s in longer(2):
        with pytest.raises(NodeError) as caught:
            node.run(python(code), timeout_s=limit_s)
        if has_line(pid_file):
            break
    assert f"did not end within {limit_s:g} s" in caught.value.what
    assert "far" in caught.value.where
    assert gone(int(wait_for_text(pid_file)))


@pytest.mark.parametrize(
    ("argv", "cwd", "named"),
    [
        (["/no/such/program"], None, "/no/such/program"),
        (["no-such-program"], None, "no-such-program"),
        (["/etc"], None, "/etc"),
        ([sys.executable], "/no/such/folder", "/no/such/folder"),
    ],
)
def test_what_cannot_start_is_named(
    node: SshNode, argv: list[str], cwd: str | None, named: str
) -> None:
    with pytest.raises(NodeError) as caught:
        node.run(argv, timeout_s=WAIT_S, cwd=cwd)
    assert "cannot start" in caught.value.what
    assert named in caught.value.where


def test_what_cannot_be_passed_is_refused(node: SshNode) -> None:
    with pytest.raises(NodeError, match="NUL"):
        node.run(["echo", "a\0b"], timeout_s=WAIT_S)
    with pytest.raises(NodeError, match="is no name"):
        node.run(["true"], timeout_s=WAIT_S, env={"A B": "1"})


def test_spawn_outlives_the_connection_and_is_stopped(node: SshNode, tmp_path: Path) -> None:
    log = tmp_path / "logs of it" / "out.log"
    code = (
        "import os, time\n"
        "print(os.environ['LC_ALL'], os.environ['TOKEN'], os.getcwd(), flush=True)\n"
        "time.sleep(600)"
    )
    process = node.spawn(python(code), log=str(log), env={"TOKEN": "s3cret"}, cwd=str(tmp_path))
    assert wait_for_text(log) == f"C s3cret {tmp_path}\n"
    node.close()
    assert node.alive(process)
    assert process == identify(process.pid)
    assert os.getsid(process.pid) == process.pid
    assert node.stop(process, WAIT_S)
    assert not node.alive(process)
    assert gone(process.pid)


def test_no_command_line_shows_the_environment(node: SshNode, sshd: Sshd, tmp_path: Path) -> None:
    secret = "hush-hush-4711"
    log, watched = tmp_path / "log", tmp_path / "watched"
    until_watched = ["sh", "-c", f"until [ -e '{watched}' ]; do sleep 0.05; done"]
    seen: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            for process in psutil.process_iter(["cmdline"]):
                seen.extend(process.info["cmdline"] or [])
            if until_watched[-1] in seen:
                watched.touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        process = node.spawn(["sleep", "600"], log=str(log), env={"KEY": secret})
        node.run(until_watched, timeout_s=WAIT_S, env={"KEY": secret})
    finally:
        ended.set()
        watcher.join()
    assert not any(secret in word for word in seen)
    assert secret not in (sshd.folder / "log").read_text()
    assert node.stop(process, 0)


def test_spawn_says_what_cannot_start(node: SshNode, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="cannot start /no/such: No such file") as caught:
        node.spawn(["/no/such"], log=str(tmp_path / "log"))
    assert "/no/such" in caught.value.where
    with pytest.raises(NodeError) as caught:
        node.spawn(["true"], log="/proc/no/log")
    assert "/proc/no" in caught.value.where


def test_spawned_program_that_ends_at_once_is_not_alive(node: SshNode, tmp_path: Path) -> None:
    process = node.spawn(["true"], log=str(tmp_path / "log"))
    assert gone(process.pid)
    assert not node.alive(process)
    assert node.stop(process, 0)


def test_stop_kills_what_ignores_term_and_its_session(node: SshNode, tmp_path: Path) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(600)"
    )
    process = node.spawn(python(code), log=str(tmp_path / "log"))
    child = int(wait_for_text(tmp_path / "log"))
    assert node.stop(process, 0.1)
    assert gone(child)


def test_stop_leaves_another_process_with_the_same_pid_alone(node: SshNode) -> None:
    other = subprocess.Popen(python("import time; time.sleep(600)"), start_new_session=True)
    try:
        identity = identify(other.pid)
        assert identity is not None
        later = ProcessId(identity.pid, identity.start + 1, identity.boot_id)
        elsewhere = ProcessId(identity.pid, identity.start, "another-boot")
        for stranger in (later, elsewhere):
            assert not node.alive(stranger)
            assert node.stop(stranger, 0)
        assert node.alive(identity)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert not node.alive(identity)


def test_a_process_is_alive_whatever_its_name(node: SshNode, tmp_path: Path) -> None:
    code = "import time; open('/proc/self/comm', 'w').write('a) S\\n1 ('); print('up', flush=True)"
    process = node.spawn(python(f"{code}; time.sleep(600)"), log=str(tmp_path / "log"))
    wait_for_text(tmp_path / "log")
    assert node.alive(process)
    assert node.stop(process, 0)


def test_text_of_files(node: SshNode, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "it's"
    node.write_text(str(path), "é\nend")
    assert path.read_text() == "é\nend"
    assert node.read_text(str(path)) == "é\nend"
    assert node.read_since(str(path), 3) == b"end"
    assert node.read_since(str(path), 99) == b""
    assert node.read_since(str(tmp_path / "no"), 0) == b""
    assert node.read_text(str(tmp_path / "no")) is None
    assert node.read_text("/no/such/folder/file") is None
    assert [entry.name for entry in path.parent.iterdir()] == ["it's"]


def test_files_that_cannot_be_read_or_written_are_named(node: SshNode, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = tmp_path / "file"
    file.touch()
    for call in (
        lambda: node.read_text(str(tmp_path / "pipe")),
        lambda: node.read_since(str(tmp_path), 0),
        lambda: node.write_text(str(tmp_path), "x"),
        lambda: node.write_text(f"{file}/below", "x"),
        lambda: node.get(str(tmp_path / "no"), tmp_path / "here"),
        lambda: node.put(tmp_path / "no", str(tmp_path / "there")),
        lambda: node.put(file, "/proc/no/there"),
    ):
        with pytest.raises(NodeError) as caught:
            call()
        assert "file operation failed" in caught.value.what
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "pipe"]


def test_put_and_get_move_the_whole_file_or_nothing(node: SshNode, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(5_000_000))
    source.chmod(0o750)
    there = tmp_path / "there" / "a file"
    node.put(source, str(there))
    assert there.read_bytes() == source.read_bytes()
    assert there.stat().st_mode & 0o777 == 0o750
    back = tmp_path / "back" / "file"
    node.get(str(there), back)
    assert back.read_bytes() == source.read_bytes()
    node.put(Path(os.devnull), str(there))
    assert there.read_bytes() == b""
    assert [entry.name for entry in there.parent.iterdir()] == ["a file"]
    assert [entry.name for entry in back.parent.iterdir()] == ["file"]


def test_a_full_disk_is_said_and_leaves_the_old_file(node: SshNode, tmp_path: Path) -> None:
    need("mount")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        node.write_text(str(small / "file"), "old")
        big = tmp_path / "big"
        big.write_bytes(bytes(4_000_000))
        for call in (
            lambda: node.put(big, str(small / "file")),
            lambda: node.write_text(str(small / "file"), "x" * 4_000_000),
        ):
            with pytest.raises(NodeError, match="the disk is full") as caught:
                call()
            assert "make room" in caught.value.remedy
        with pytest.raises(NodeError, match="failed here: No space left"):
            node.get(str(big), small / "copy")
        assert {path.name: path.read_text() for path in small.iterdir()} == {"file": "old"}
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_threads_share_the_connection(node: SshNode, sshd: Sshd) -> None:
    node.state_dir()
    before = sshd.logins()
    with ThreadPoolExecutor(20) as pool:
        argvs = [["sh", "-c", f"sleep 0.1; echo {number}"] for number in range(40)]
        done = list(pool.map(lambda argv: node.run(argv, timeout_s=60), argvs))
    assert [one.stdout for one in done] == [f"{number}\n" for number in range(40)]
    assert sshd.logins() == before


def test_the_agent_is_put_once_and_mended(node: SshNode, sshd: Sshd) -> None:
    argv = node.agent_argv("no-such")
    done = node.run(argv, timeout_s=WAIT_S)
    assert done.code == 2
    assert "spawn" in done.stderr
    agent = Path(argv[1])
    whole = agent.read_bytes()
    assert agent.parent == Path(node.state_dir())
    agent.write_bytes(whole[:-1] + b"x")
    assert Path(sshd.node().agent_argv()[1]).read_bytes() == whole


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 3 7", "is Python 3.7, too old"),
        ("echo Welcome; echo 3 12", "prints more than it was asked for: 'Welcome"),
        ("echo broken library >&2; exit 1", "does not run: broken library"),
    ],
)
def test_python_that_is_of_no_use_is_said(
    sshd: Sshd, tmp_path: Path, script: str, said: str
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    with pytest.raises(NodeError, match=said) as caught:
        sshd.node(python=str(fake)).agent_argv()
    assert "nodes.far.python" in caught.value.remedy


def test_a_node_without_python_runs_programs_but_no_agent(sshd: Sshd) -> None:
    node = sshd.node(python="/no/python3")
    assert node.run(["true"], timeout_s=WAIT_S).code == 0
    with pytest.raises(NodeError, match="there is no /no/python3"):
        node.spawn(["true"], log="/dev/null")


def test_exchange_is_a_conversation(node: SshNode) -> None:
    argv = python("import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)")
    found = node.exchange(argv, ["a", "b"])
    assert [one.answer for one in found] == ["aa", "bb"]
    assert found[0].sent_ns <= found[0].received_ns <= found[1].sent_ns
    for bad in (["true"], ["sh", "-c", "read line"], ["no-such-program"]):
        with pytest.raises(NodeError):
            node.exchange(bad, ["a"])


def test_exchange_with_a_program_that_never_answers_ends(
    node: SshNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    for limit_s in longer(0.5):
        monkeypatch.setattr("servemap.nodes.ssh.EXCHANGE_S", limit_s)
        with pytest.raises(NodeError, match="did not answer in time"):
            node.exchange(["sh", "-c", f"echo $$ > '{pid}'; exec sleep 600"], ["a"])
        if has_line(pid):
            break
    assert gone(int(wait_for_text(pid)))


def test_greeting_is_of_four_lines() -> None:
    found = ssh_reach.parse_greeting("/home/x y\n\nx\nboot\n")
    assert (found.home, found.state_home, found.user, found.boot_id) == (
        "/home/x y",
        "",
        "x",
        "boot",
    )
    for bad in ("", "home\n\nx\nb\n", "/h\n\nx\n\n", "/h\n\nx\n"):
        with pytest.raises(ValueError, match="four lines"):
            ssh_reach.parse_greeting(bad)
    with pytest.raises(ValueError, match="HOME is not set"):
        ssh_reach.parse_greeting("\n\nx\nboot\n")


def test_the_request_of_spawn_is_checked(node: SshNode) -> None:
    done = node.run(node.agent_argv("spawn"), timeout_s=WAIT_S, input=json.dumps({"argv": []}))
    assert (done.code, "bad request" in done.stderr) == (2, True)
    assert machine_boot_id()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_prints_without_an_end_is_ended(
    node: SshNode, stream: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in BOUNDED:
        monkeypatch.setattr(module, "MAX_OUTPUT_BYTES", 1 << 20)
    code = f"""
import os, sys
open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
while True:
    sys.{stream}.write("x" * 65536)
"""
    with pytest.raises(NodeError, match="printed without an end and was killed"):
        node.run([sys.executable, "-c", code], timeout_s=60)
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "its end")
    done = node.run(["head", "-c", "1000000", "/dev/zero"], timeout_s=60)
    assert len(done.stdout) == 1_000_000


def test_a_file_that_is_too_large_is_not_read(
    node: SshNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in BOUNDED:
        monkeypatch.setattr(module, "MAX_OUTPUT_BYTES", 1 << 20)
    path = tmp_path / "file"
    with path.open("wb") as handle:
        handle.truncate(2 << 20)
    with pytest.raises(NodeError, match="MiB are not taken"):
        node.read_text(str(path))
    assert len(node.read_since(str(path), 5, 10)) == 10
    with path.open("wb") as handle:
        handle.truncate(1 << 20)
    assert len(node.read_text(str(path)) or "") == 1 << 20
