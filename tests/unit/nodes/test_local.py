"""The local transport and the on-node program it carries."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from servemap.model.errors import NodeError
from servemap.nodes import local, local_pipes
from servemap.nodes.agent_zip import agent_sources, archive, build_agent
from servemap.nodes.base import Node, ProcessId
from servemap.nodes.identity import from_record, identify, machine_boot_id
from servemap.nodes.local import LocalNode
from servemap.nodes.parallel import each
from servemap.onnode.ident import is_alive, read_stat
from tests.waiting import WAIT_S, longer, wait_for

BOUNDED = (local, local_pipes)


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    return LocalNode("head", agent_dir=tmp_path / "agent")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def has_line(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def wait_for_text(path: Path) -> str:
    wait_for(lambda: has_line(path), f"a line in {path}")
    return path.read_text()


def gone(pid: int) -> bool:
    """Wait until a killed process has ended; that takes a moment on a busy machine."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        stat = read_stat(pid)
        if stat is None or stat.state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_it_is_a_node(node: LocalNode) -> None:
    as_protocol: Node = node
    assert as_protocol.name == "head"


def test_run_returns_what_the_program_did(node: LocalNode, tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.environ['A'], os.environ['LC_ALL'], os.getcwd(), input());"
        "print('bad \\udc80', file=open(2, 'w', errors='surrogateescape')); sys.exit(3)"
    )
    done = node.run(python(code), timeout_s=WAIT_S, env={"A": "1"}, input="in", cwd=str(tmp_path))
    assert (done.code, done.stdout) == (3, f"1 C {tmp_path} in\n")
    assert done.stderr == "bad \ufffd\n"
    assert done.seconds > 0


def test_arguments_never_meet_a_shell(node: LocalNode) -> None:
    nasty = "$(touch x); `id` && 'q' \"*\""
    done = node.run([*python("import sys; print(sys.argv[1])"), nasty], timeout_s=WAIT_S)
    assert done.stdout == nasty + "\n"


def test_without_input_a_reader_sees_the_end(node: LocalNode) -> None:
    done = node.run(python("import sys; print(repr(sys.stdin.read()))"), timeout_s=WAIT_S)
    assert done.stdout == "''\n"


def test_time_out_kills_the_children_too(node: LocalNode, tmp_path: Path) -> None:
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
    assert "head" in caught.value.where
    assert gone(int(wait_for_text(pid_file)))


@pytest.mark.parametrize(
    ("argv", "cwd"), [(["/no/such/program"], None), ([sys.executable], "/no/such/folder")]
)
def test_what_cannot_start_is_named(node: LocalNode, argv: list[str], cwd: str | None) -> None:
    with pytest.raises(NodeError) as caught:
        node.run(argv, timeout_s=1, cwd=cwd)
    assert "cannot start" in caught.value.what
    assert "/no/such" in caught.value.where


def test_spawn_survives_and_is_stopped(node: LocalNode, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "out.log"
    process = node.spawn(
        python("import time; print('up', flush=True); time.sleep(600)"), log=str(log)
    )
    assert wait_for_text(log) == "up\n"
    assert node.alive(process)
    assert os.getsid(process.pid) == process.pid
    assert node.stop(process, WAIT_S)
    assert not node.alive(process)
    assert read_stat(process.pid) is None, "our zombie was not collected"


def test_spawned_program_that_ends_at_once_is_not_alive(node: LocalNode, tmp_path: Path) -> None:
    process = node.spawn(python("print('x')"), log=str(tmp_path / "log"))
    wait_for_text(tmp_path / "log")
    wait_for(lambda: not node.alive(process), "its end")
    assert node.stop(process, 0)


def test_stop_kills_what_ignores_term_and_its_group(node: LocalNode, tmp_path: Path) -> None:
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


def test_stop_ends_the_session_of_a_dead_leader(node: LocalNode, tmp_path: Path) -> None:
    code = (
        "import os, time; child = os.fork()\n"
        "if child: print(child, flush=True); os._exit(0)\n"
        "time.sleep(600)"
    )
    process = node.spawn(python(code), log=str(tmp_path / "log"))
    child = int(wait_for_text(tmp_path / "log"))
    assert node.stop(process, 0.1)
    assert gone(child)


def test_stop_leaves_another_process_with_the_same_pid_alone(node: LocalNode) -> None:
    other = subprocess.Popen(python("import time; time.sleep(600)"), start_new_session=True)
    try:
        identity = identify(other.pid)
        assert identity is not None
        later = ProcessId(identity.pid, identity.start + 1, identity.boot_id)
        elsewhere = ProcessId(identity.pid, identity.start, "another-boot")
        for stranger in (later, elsewhere):
            assert not node.alive(stranger)
            assert node.stop(stranger, 0)
        assert is_alive(other.pid, identity.start)
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


def test_texts_and_files_go_there_and_back(node: LocalNode, tmp_path: Path) -> None:
    remote = tmp_path / "a" / "b" / "text"
    assert node.read_text(str(remote)) is None
    node.write_text(str(remote), "größe\n")
    assert node.read_text(str(remote)) == "größe\n"
    node.get(str(remote), tmp_path / "c" / "copy")
    node.put(tmp_path / "c" / "copy", str(tmp_path / "d" / "again"))
    assert (tmp_path / "d" / "again").read_bytes() == remote.read_bytes()
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == ["again"]


def test_file_errors_are_node_errors(node: LocalNode, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="absent"):
        node.get(str(tmp_path / "absent"), tmp_path / "copy")
    with pytest.raises(NodeError):
        node.read_text(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_agent_runs_from_its_archive_outside_the_package(node: LocalNode, tmp_path: Path) -> None:
    argv = node.agent_argv("supervise", "--spec", "absent.json")
    done = node.run(argv, timeout_s=WAIT_S, env={"PYTHONPATH": ""}, cwd=str(tmp_path))
    assert done.code == 2
    assert done.stderr.startswith("supervise: cannot read the spec absent.json")


def test_stopped_supervisor_records_the_end_of_its_server(node: LocalNode, tmp_path: Path) -> None:
    heartbeat, state = tmp_path / "heartbeat", tmp_path / "state.json"
    heartbeat.touch()
    spec = {
        "argv": python("import time; print('up', flush=True); time.sleep(600)"),
        "env": {},
        "cwd": str(tmp_path),
        "log": str(tmp_path / "server.log"),
        "state": str(state),
        "heartbeat": str(heartbeat),
        "ttl_s": 60,
        "boot_id": "b",
        "grace_s": 5,
    }
    node.write_text(str(tmp_path / "spec.json"), json.dumps(spec))
    argv = node.agent_argv("supervise", "--spec", str(tmp_path / "spec.json"))
    supervisor = node.spawn(argv, log=str(tmp_path / "supervisor.log"))
    wait_for_text(tmp_path / "server.log")
    running = json.loads(state.read_text())
    server = from_record(running["server"], running["machine_boot_id"])
    assert from_record(running["supervisor"], running["machine_boot_id"]) == supervisor
    assert node.alive(server)
    assert node.stop(supervisor, WAIT_S)
    assert not node.alive(server)
    assert json.loads(state.read_text())["exit"]["reason"] == "stopped"


def test_unknown_agent_command_lists_the_known_ones(node: LocalNode) -> None:
    done = node.run(node.agent_argv("no-such"), timeout_s=WAIT_S)
    assert done.code == 2
    assert "supervise" in done.stderr


def test_damaged_agent_is_replaced(tmp_path: Path) -> None:
    first = Path(LocalNode(agent_dir=tmp_path).agent_argv()[1])
    whole = first.read_bytes()
    first.write_bytes(whole[:100])
    again = Path(LocalNode(agent_dir=tmp_path).agent_argv()[1])
    assert again == first
    assert again.read_bytes() == whole


def test_archive_depends_on_the_contents_only() -> None:
    name, data = build_agent()
    assert (name, data) == build_agent()
    changed = archive({**agent_sources(), "onnode/extra.py": b""})
    assert changed != data
    with zipfile.ZipFile(BytesIO(data)) as opened:
        assert "onnode/supervise.py" in opened.namelist()
        assert {entry.date_time for entry in opened.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_identity_from_a_state_record() -> None:
    assert from_record({"pid": 1, "start": 2}, "b") == ProcessId(1, 2, "b")
    with pytest.raises(NodeError):
        from_record({"pid": 1, "start": None}, "b")


def test_identity_of_this_process() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me.boot_id == machine_boot_id()
    assert is_alive(me.pid, me.start)
    assert identify(2**22 + 1) is None


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_program_that_prints_without_an_end_is_ended(
    node: LocalNode, stream: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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


def test_the_agent_is_put_there_once_also_when_several_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []

    def build() -> tuple[str, bytes]:
        built.append(1)
        time.sleep(0.05)
        return "agent.pyz", b"agent"

    monkeypatch.setattr(local, "build_agent", build)
    node = LocalNode(agent_dir=tmp_path)
    argvs = each(range(4), lambda _: node.agent_argv("x"))
    assert {argv[1] for argv in argvs.values()} == {str(tmp_path / "agent.pyz")}
    assert len(built) == 1


def test_a_file_below_proc_sys_is_read() -> None:
    """The kernel refuses one read of it that asks for many megabytes."""
    text = LocalNode("n1").read_text("/proc/sys/kernel/random/boot_id")
    assert text is not None
    assert len(text.strip()) == 36
