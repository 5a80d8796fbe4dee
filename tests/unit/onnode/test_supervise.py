"""The supervisor, run as a program: what it records and that it leaves nothing behind."""

import getpass
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import WAIT_S, Supervised, agent_argv, wait_for

from servemap.onnode.ident import is_alive, machine_boot_id, read_stat
from servemap.onnode.reaping import exit_record
from servemap.onnode.sweep import marked, noted, remove_temporary, sweep
from servemap.onnode.temporary import make

IGNORE_TERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
# A daemon as daemon(7) makes it: a grandchild in a session of its own, its parent gone.
DAEMONISE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    one = Supervised(tmp_path)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.process.terminate()
        one.process.wait(WAIT_S)
    sweep(f"boot-{tmp_path}", 0)
    remove_temporary(str(one.state_path))


def test_exit_code_log_and_environment_are_kept(supervised: Supervised) -> None:
    supervised.python("import os; print(os.environ['ADDED'], os.getcwd()); raise SystemExit(7)")
    state = supervised.ended()
    assert state["exit"] == {"code": 7, "signal": None, "reason": "exited"}
    assert state["boot_id"] == f"boot-{supervised.folder}"
    assert state["started_ns"] < state["ended_ns"]
    log = (supervised.folder / "server.log").read_text()
    assert log == f"by the spec {supervised.folder}\n"
    mode = (supervised.folder / "server.log").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600, "a log may say what is secret"


@pytest.mark.parametrize("given", ["/of/the/spec", "inherited"])
def test_a_hook_comes_first_on_the_path(
    supervised: Supervised, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the spec, a secret or the node's own environment says of the path stays behind it."""
    known = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", f"{known}:/of/the/node" if known else "/of/the/node")
    env = {"PYTHONPATH": given} if given.startswith("/") else {}
    code = "import os; print(os.environ['PYTHONPATH'])"
    supervised.python(code, env=env, hook="/the/hook")
    supervised.ended()
    behind = given if given.startswith("/") else os.environ["PYTHONPATH"]
    assert (supervised.folder / "server.log").read_text() == f"/the/hook:{behind}\n"


def test_death_by_signal_is_recorded_as_one(supervised: Supervised) -> None:
    supervised.python("import os; os.abort()")
    exit_state = supervised.ended()["exit"]
    assert exit_state == {"code": None, "signal": signal.SIGABRT, "reason": "exited"}


def test_running_state_identifies_server_and_supervisor(supervised: Supervised) -> None:
    process = supervised.python("import time; print('up', flush=True); time.sleep(600)")
    server = supervised.server()
    state = supervised.state()
    stat = read_stat(server["pid"])
    assert stat is not None
    assert (stat.start, stat.pgrp, stat.ppid) == (server["start"], server["pgid"], process.pid)
    assert is_alive(process.pid, state["supervisor"]["start"])
    assert state["exit"] is None
    assert state["ended_ns"] is None


def test_stop_reaches_a_server_that_ignores_term(supervised: Supervised) -> None:
    process = supervised.python(IGNORE_TERM + "print('up', flush=True); time.sleep(600)")
    supervised.said("up")
    process.terminate()
    state = supervised.ended()
    assert state["exit"] == {"code": None, "signal": signal.SIGKILL, "reason": "stopped"}
    assert not is_alive(state["server"]["pid"], state["server"]["start"])


def test_server_that_leaves_in_good_order_keeps_its_exit_code(supervised: Supervised) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(4));"
        "print('up', flush=True); time.sleep(600)"
    )
    process = supervised.python(code, grace_s=WAIT_S)
    supervised.said("up")
    process.terminate()
    assert supervised.ended()["exit"] == {"code": 4, "signal": None, "reason": "stopped"}


def test_daemonised_grandchild_is_killed_with_its_server(supervised: Supervised) -> None:
    pid_file = supervised.folder / "daemon.pid"
    supervised.python(DAEMONISE, str(pid_file))
    state = supervised.ended()
    assert state["exit"] == {"code": 0, "signal": None, "reason": "exited"}
    assert read_stat(int(pid_file.read_text())) is None


def test_workers_of_a_killed_server_are_ended(supervised: Supervised) -> None:
    code = (
        "import os, time; child = os.fork()\n"
        "if child: print('worker', child, 'forked', flush=True)\n"
        "time.sleep(600)"
    )
    supervised.python(code)
    supervised.said("forked")
    worker = int((supervised.folder / "server.log").read_text().split()[1])
    os.kill(supervised.server()["pid"], signal.SIGKILL)
    exit_state = supervised.ended()["exit"]
    assert exit_state == {"code": None, "signal": signal.SIGKILL, "reason": "exited"}
    assert read_stat(worker) is None


def test_lease_that_nobody_renews_ends_the_server(supervised: Supervised) -> None:
    supervised.python("import time; time.sleep(600)", ttl_s=0.5)
    state = supervised.ended()
    assert state["exit"]["reason"] == "lease_expired"
    assert not is_alive(state["server"]["pid"], state["server"]["start"])


def test_heartbeat_older_than_the_lease_ends_a_running_server(supervised: Supervised) -> None:
    supervised.python("import time; time.sleep(600)", ttl_s=60)
    supervised.server()
    os.utime(supervised.heartbeat, (1, 1))
    assert supervised.ended()["exit"]["reason"] == "lease_expired"


def test_killed_supervisor_takes_its_server_along(supervised: Supervised) -> None:
    process = supervised.python("import time; print('up', flush=True); time.sleep(600)")
    server = supervised.server()
    supervised.said("up")
    process.kill()
    wait_for(lambda: not is_alive(server["pid"], server["start"]), "the server's end")


LEAVES = """
import os, socket, tempfile, time
socket.socket(socket.AF_UNIX).bind(tempfile.gettempdir() + "/left")
print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"), flush=True)
"""


def test_temporary_files_go_with_their_server_and_compiled_kernels_stay(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    supervised.python(LEAVES)
    folder = Path(supervised.ended()["temporary"])
    assert folder.parent == Path("/tmp")
    assert not folder.exists()
    said = (supervised.folder / "server.log").read_text().strip()
    assert said == f"/tmp/torchinductor_{getpass.getuser()}"


def test_a_folder_for_temporary_files_that_the_spec_names_is_left_alone(
    supervised: Supervised,
) -> None:
    supervised.python(LEAVES, env={"TMPDIR": str(supervised.folder)})
    assert supervised.ended()["temporary"] is None
    assert (supervised.folder / "left").exists()


def test_what_a_killed_supervisor_left_in_its_folder_is_swept(
    supervised: Supervised, tmp_path: Path
) -> None:
    process = supervised.python(LEAVES + "time.sleep(600)")
    supervised.said("torchinductor")
    folder = Path(supervised.state()["temporary"])
    process.kill()
    process.wait()
    assert (folder / "left").exists()
    argv = agent_argv("sweep", "--boot-id", f"boot-{supervised.folder}", "--grace", "0.2", "--bare")
    subprocess.run([*argv, "--state", str(supervised.state_path)], check=True, capture_output=True)
    assert not folder.exists()


def test_where_no_folder_can_be_made_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert make({}) is None
    long = tmp_path / ("x" * 50)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert make({}) is None, "a socket's path would be too long"


@pytest.mark.parametrize("named", [None, "", 5, "elsewhere"])
def test_a_state_that_names_another_folder_has_none_removed(tmp_path: Path, named: Any) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"temporary": str(other) if named == "elsewhere" else named}))
    remove_temporary(str(state))
    remove_temporary(str(tmp_path / "none"))
    assert other.exists()


@pytest.mark.parametrize(
    ("argv", "changes", "code"),
    [
        (["/no/such/program"], {}, 127),
        ([sys.executable], {"cwd": "/no/such/folder"}, 127),
        (["/etc/passwd"], {}, 126),
    ],
)
def test_server_that_cannot_start_is_recorded_and_logged(
    supervised: Supervised, argv: list[str], changes: dict[str, Any], code: int
) -> None:
    supervised.start(argv, **changes)
    state = supervised.ended()
    assert (state["exit"]["code"], state["exit"]["reason"]) == (code, "exited")
    assert state["server"] is None
    assert "cannot start the server" in (supervised.folder / "server.log").read_text()


def test_server_that_cannot_be_recorded_is_not_left_running(supervised: Supervised) -> None:
    (supervised.folder / "file").touch()
    process = supervised.python(
        "import time; time.sleep(600)", state=str(supervised.folder / "file" / "state.json")
    )
    assert process.wait(WAIT_S) == 3
    assert marked(f"boot-{supervised.folder}") == []


def test_server_starts_with_default_signals(supervised: Supervised) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        supervised.python(
            "import signal; print(signal.getsignal(signal.SIGINT), signal.pthread_sigmask(0, []))"
        )
    finally:
        signal.signal(signal.SIGINT, before)
    supervised.ended()
    log = (supervised.folder / "server.log").read_text()
    assert "default_int_handler" in log
    assert log.strip().endswith("set()")


@pytest.mark.parametrize("text", ["{", "[]", '{"argv": "sleep"}'])
def test_bad_spec_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text)
    result = subprocess.run(
        agent_argv("supervise", "--spec", str(path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("supervise: ")
    assert result.stderr.count("\n") == 1


def test_a_stuck_server_has_neither_code_nor_signal() -> None:
    assert exit_record(None, "stopped") == {"code": None, "signal": None, "reason": "stopped"}


def test_sweep_ends_a_daemon_whose_supervisor_was_killed(supervised: Supervised) -> None:
    pid_file = supervised.folder / "daemon.pid"
    process = supervised.python(DAEMONISE + "time.sleep(600)", str(pid_file))
    daemon = wait_for(lambda: pid_file.exists() and pid_file.read_text(), "the daemon")
    process.kill()
    process.wait()
    boot_id = f"boot-{supervised.folder}"
    argv = agent_argv("sweep", "--boot-id", boot_id, "--grace", "0.2")
    assert read_stat(int(daemon)) is not None
    result = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert int(daemon) in [one["pid"] for one in result["met"]]
    assert result["left"] == []
    stat = read_stat(int(daemon))
    assert stat is None or stat.state == "Z"


def test_sweep_touches_no_other_boot(supervised: Supervised) -> None:
    supervised.python("import time; print('up', flush=True); time.sleep(600)")
    supervised.said("up")
    server = supervised.server()
    other = f"boot-{supervised.folder}"[:-1]
    result = subprocess.run(
        agent_argv("sweep", "--boot-id", other), capture_output=True, check=True
    )
    assert json.loads(result.stdout)["met"] == []
    assert is_alive(server["pid"], server["start"])


# Like a worker that cleans up behind itself: no session, no group and no environment is left.
ESCAPE = """
import os, sys, time
argv = ["env", "-i", sys.executable, "-c",
        "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("env", [*argv, sys.argv[1]])
    os._exit(0)
time.sleep(600)
"""


def test_sweep_ends_one_that_left_session_group_and_environment(supervised: Supervised) -> None:
    pid_file = supervised.folder / "escaped.pid"
    process = supervised.python(ESCAPE, str(pid_file))
    pid = int(wait_for(lambda: pid_file.exists() and pid_file.read_text(), "the escaped one"))
    stat = read_stat(pid)
    assert stat is not None
    try:
        assert pid not in [one.pid for one in marked(f"boot-{supervised.folder}")]
        escaped = {"pid": pid, "start": stat.start}
        wait_for(lambda: escaped in supervised.state()["descendants"], "a note of it")
        process.kill()
        process.wait()
        argv = agent_argv("sweep", "--boot-id", f"boot-{supervised.folder}", "--grace", "0.2")
        argv += ["--bare", "--state", str(supervised.state_path)]
        result = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
        assert pid in [one["pid"] for one in result["met"]]
        assert result["left"] == []
        assert not is_alive(pid, stat.start)
    finally:
        if is_alive(pid, stat.start):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "damage",
    [
        {"descendants": "many"},
        {"descendants": [{"pid": 1}]},
        {"descendants": [{"pid": [], "start": {}}]},
        {"machine_boot_id": "another"},
        [],
    ],
)
def test_a_damaged_state_file_names_nobody(tmp_path: Path, damage: Any) -> None:
    me = {"pid": os.getpid(), "start": read_stat(os.getpid()).start}  # type: ignore[union-attr]
    state = {"machine_boot_id": machine_boot_id(), "descendants": [me]}
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state))
    assert noted(str(path)) == {(me["pid"], me["start"])}
    path.write_text(json.dumps({**state, **damage} if isinstance(damage, dict) else damage))
    assert noted(str(path)) == set()
    assert noted(str(tmp_path / "none")) == set()
