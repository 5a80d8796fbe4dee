"""The lab itself: each operation does what it says, and nothing of a lab outlives it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.lab import faults
from tests.lab.keeper import port_of
from tests.lab.lab import BENCH, FILES, NOKEY, ROOT, SECOND, SKEW_FILE, SPACED, Lab, LabError, User
from tests.lab.traces import TOKEN, leaks, sweep, with_token
from tests.parts import need

Done = subprocess.CompletedProcess[str]
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(autouse=True)
def _possible() -> None:
    need("lab")


def ssh_argv(lab: Lab, node: str, user: User, command: str, known: Path | None = None) -> list[str]:
    """OpenSSH's own client, strict, with short time-outs."""
    options = {
        "UserKnownHostsFile": known or lab.known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": 2,
        "ServerAliveInterval": 1,
        "ServerAliveCountMax": 2,
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    target = f"{user.name}@{lab.machines[node].address}"
    return ["ssh", "-F", "/dev/null", "-i", str(lab.key_file), *words, target, command]


def ssh(lab: Lab, node: str, command: str, user: User = BENCH, known: Path | None = None) -> Done:
    return lab.controller_exec(ssh_argv(lab, node, user, command, known))


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.02)


def identities(processes: list[psutil.Process]) -> set[tuple[int, float]]:
    return {(process.pid, process.create_time()) for process in processes}


def alive(processes: set[tuple[int, float]]) -> set[tuple[int, float]]:
    """Those of some processes that still run; a zombie does not."""
    return {
        (process.pid, process.create_time())
        for process in psutil.process_iter()
        if (process.pid, process.create_time()) in processes
        and process.status() != psutil.STATUS_ZOMBIE
    }


def everything(lab: Lab) -> set[tuple[int, float]]:
    nodes = [process for node in lab.inits for process in lab.processes(node)]
    return identities([*nodes, *with_token(lab.folder)])


def test_nodes_are_machines_of_their_own(lab: Lab) -> None:
    assert {node: ssh(lab, node, "hostname").stdout.strip() for node in lab.machines} == {
        "head": "head",
        "worker": "worker",
    }
    boots = {ssh(lab, node, BOOT_ID).stdout for node in lab.machines}
    assert len(boots | {Path("/proc/sys/kernel/random/boot_id").read_text()}) == 3
    # /tmp, homes, disks, processes and host keys are apart.
    ssh(lab, "head", "touch /tmp/here ~/here")
    assert ssh(lab, "head", "ls /tmp ~").stdout.count("here") == 2
    assert "here" not in ssh(lab, "worker", "ls -a /tmp ~").stdout
    assert not Path("/tmp/here").exists()
    ours = f"/proc/{os.getpid()}"
    start = f"awk '{{print $22}}' {ours}/stat 2>/dev/null"
    assert ssh(lab, "head", start).stdout != Path(ours, "stat").read_text().split()[21] + "\n"
    assert len({line.split()[2] for line in lab.known_hosts.read_text().splitlines()}) == 2
    # They reach each other by name.
    peer = "exec 3<>/dev/tcp/worker/22 && head -c 7 <&3"
    assert ssh(lab, "head", f"bash -c '{peer}'").stdout == "SSH-2.0"


def test_users_log_in_by_key_only(lab: Lab) -> None:
    assert ssh(lab, "head", "sudo -n id -u").stdout == "0\n"
    assert ssh(lab, "head", "sudo -n id -u", SECOND).returncode == 1
    assert ssh(lab, "head", "pwd", SPACED).stdout == f"{SPACED.home}\n"
    refused = ssh(lab, "head", "true", NOKEY)
    assert refused.returncode == 255
    assert "Permission denied (publickey)" in refused.stderr


def test_engine_of_this_interpreter_runs_on_a_node(lab: Lab) -> None:
    """The interpreter of these tests is there, for any user, with the seed's engine and model."""
    files = ssh(lab, "worker", f"ls {FILES}").stdout.split()
    assert {"engine", "tiny.gguf"} <= set(files)
    python = f"{sys.prefix}/bin/python"
    code = "import xllamacpp, llamaserve; print(llamaserve.__file__)"
    done = ssh(lab, "worker", f"cd / && PYTHONPATH={FILES}/engine {python} -c '{code}'", SECOND)
    assert done.stdout == f"{FILES}/engine/llamaserve/__init__.py\n", done.stderr
    assert ssh(lab, "worker", f"touch {FILES}/engine/of-bench").returncode == 0


def test_controller_reaches_the_nodes_and_nothing_else(lab: Lab) -> None:
    assert lab.controller_exec(["ip", "route"]).stdout.split()[0] == "10.77.0.0/24"
    assert len(lab.controller_exec(["ip", "route"]).stdout.splitlines()) == 1
    outside = lab.controller_exec(["ip", "route", "get", "192.0.2.1"])
    assert "unreachable" in outside.stderr
    assert lab.exec_in("head", ["ip", "route", "get", "192.0.2.1"]).returncode != 0
    # This machine has no way into the lab either.
    assert "lab0" not in subprocess.run(["ip", "link"], capture_output=True, text=True).stdout


def test_commands_in_a_node_and_its_files(lab: Lab) -> None:
    assert lab.exec_in("head", ["id", "-un"]).stdout == "root\n"
    assert lab.exec_in("head", ["sh", "-c", "id -un; echo $HOME"], user=SECOND).stdout == (
        "second\n/home/second\n"
    )
    lab.path("worker", "/etc/motd").write_text("hello\n")
    assert ssh(lab, "worker", "cat /etc/motd").stdout == "hello\n"
    with pytest.raises(LabError, match="no such thing"):
        lab.exec_in("head", ["sh", "-c", "echo no such thing >&2; exit 3"], check=True)


def test_processes_of_a_node_can_be_killed_from_here(lab: Lab) -> None:
    mark = "4711.25"
    argv = lab.controller_argv(ssh_argv(lab, "worker", BENCH, f"sleep {mark}; echo ended $?"))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        wait_until(lambda: bool(lab.processes_with("worker", "sleep", mark)))
        assert not lab.processes_with("head", "sleep", mark)
        for process in lab.processes_with("worker", "sleep", mark):
            process.kill()
        assert client.communicate(timeout=60)[0] == "ended 137\n"


def test_power_cut_is_silent_and_the_disk_survives_it(lab: Lab) -> None:
    ssh(lab, "worker", "echo kept > ~/file; echo gone > /tmp/file")
    boot = ssh(lab, "worker", BOOT_ID).stdout
    processes = identities(lab.processes("worker"))
    address = lab.machines["worker"].address
    # A client that only listens: with a FIN or RST it would end at once.
    listener = f"exec 3<>/dev/tcp/{address}/22; head -n 1 <&3; cat <&3"
    argv = lab.controller_argv(["bash", "-c", listener])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith("SSH-2.0")
        lab.power_off("worker")
        assert not alive(processes)
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(1)
        client.kill()
    assert ssh(lab, "worker", "true").returncode == 255
    with pytest.raises(LabError, match="worker is off"):
        lab.exec_in("worker", ["true"])

    lab.power_on("worker")
    back = ssh(lab, "worker", f"{BOOT_ID}; cat ~/file; ls /tmp")
    assert back.returncode == 0, back.stderr  # strict: the host key is the one of before
    new_boot, *rest = back.stdout.splitlines()
    assert new_boot != boot.strip()
    assert rest == ["kept"]


def test_cut_link_is_silent_and_a_short_cut_is_survived(lab: Lab) -> None:
    address = lab.machines["head"].address
    listener = f"exec 3<>/dev/tcp/{address}/22; head -n 1 <&3; read -r _; echo >&3; cat <&3"
    with subprocess.Popen(
        lab.controller_argv(["bash", "-c", listener]),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as client:  # fmt: skip
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stdout.readline().startswith("SSH-2.0")
        lab.cut("head")
        assert ssh(lab, "head", "true").returncode == 255
        assert ssh(lab, "worker", "hostname").stdout == "worker\n"
        assert client.poll() is None
        lab.heal("head")
        # The same connection goes on: sshd answers the nonsense that is sent now.
        client.stdin.write("\n")
        client.stdin.flush()
        assert "Invalid SSH identification string" in client.stdout.read()
        client.wait(60)
    assert ssh(lab, "head", "hostname").stdout == "head\n"


def test_full_disk(lab: Lab) -> None:
    faults.fill_disk(lab, "head", 1 << 20)
    full = ssh(lab, "head", "head -c 2000000 /dev/zero > ~/file")
    assert "No space left on device" in full.stderr
    assert ssh(lab, "worker", "head -c 2000000 /dev/zero > ~/file").returncode == 0
    assert ssh(lab, "head", "rm ~/file; head -c 500000 /dev/zero > ~/file").returncode == 0
    faults.free_disk(lab, "head")
    assert ssh(lab, "head", "head -c 2000000 /dev/zero > ~/file").returncode == 0


def test_home_shell_and_tmp(lab: Lab) -> None:
    faults.set_home(lab, "head", BENCH, "/home/moved to here")
    assert ssh(lab, "head", "pwd").stdout == "/home/moved to here\n"
    faults.bashrc(lab, "head", SECOND, "echo chatter; echo complaint >&2\n")
    talked = ssh(lab, "head", "echo answer", SECOND)
    assert talked.stdout == "chatter\nanswer\n"
    assert "complaint" in talked.stderr
    faults.tmp_readonly(lab, "head")
    assert "Read-only" in ssh(lab, "head", "touch /tmp/file").stderr
    assert ssh(lab, "worker", "touch /tmp/file").returncode == 0
    faults.tmp_writable(lab, "head")
    assert ssh(lab, "head", "touch /tmp/file").returncode == 0


def test_sshd_that_is_stopped_refuses(lab: Lab) -> None:
    faults.stop_sshd(lab, "head")
    assert "Connection refused" in ssh(lab, "head", "true").stderr
    faults.start_sshd(lab, "head")
    assert ssh(lab, "head", "true").returncode == 0


def test_host_key_changed_or_unknown(lab: Lab, tmp_path: Path) -> None:
    known = faults.known_hosts_without(lab, "worker", tmp_path / "known_hosts")
    assert "No ED25519 host key is known" in ssh(lab, "worker", "true", known=known).stderr
    assert ssh(lab, "head", "true", known=known).returncode == 0
    faults.new_host_key(lab, "worker")
    assert "IDENTIFICATION HAS CHANGED" in ssh(lab, "worker", "true").stderr


def test_clock_of_a_node_steps(lab: Lab) -> None:
    read = 'cat "$SERVEMAP_CLOCK_SKEW_FILE"'
    assert ssh(lab, "head", read).stdout == "0\n"
    faults.step_clock(lab, "head", -1_500_000_000)
    assert ssh(lab, "head", read).stdout == "-1500000000\n"
    assert ssh(lab, "worker", f"cat {SKEW_FILE}").stdout == "0\n"


# What is left.


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that brought a lab up, with programs on a node and in the controller's network."""
    code = f"""
    import subprocess, sys, time
    from pathlib import Path
    from tests.lab.lab import Lab
    lab = Lab()
    lab.up()
    subprocess.Popen(lab.controller_argv(["sleep", "4812"]), start_new_session=True)
    lab.exec_in("head", ["sh", "-c", "setsid sleep 4812 >/dev/null 2>&1 </dev/null &"])
    Path({str(tmp_path / "inits")!r}).write_text(" ".join(map(str, lab.inits.values())))
    print(lab.folder, lab.keeper.pid, flush=True)
    time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    folder = None
    try:
        assert process.stdout is not None
        folder = process.stdout.readline()
        yield process, Path(folder.split()[0])
    finally:
        process.kill()
        process.wait()
        if folder:
            for left in with_token(Path(folder.split()[0])):
                if left.pid == int(folder.split()[1]):
                    left.terminate()
                    left.wait(60)


def of_lab(folder: Path, inits: Path) -> set[tuple[int, float]]:
    found = with_token(folder)
    for init in inits.read_text().split():
        found += psutil.Process(int(init)).children(recursive=True)
    return identities(found)


def test_down_leaves_nothing(seed: Path) -> None:
    lab = Lab(seed)
    lab.up()
    controller = subprocess.Popen(lab.controller_argv(["sleep", "4813"]), start_new_session=True)
    lab.exec_in("head", ["sh", "-c", "setsid sleep 4813 >/dev/null 2>&1 </dev/null &"])
    ours = everything(lab)
    assert len(ours) >= 8
    assert any("folder" in item for item in leaks(lab.folder))
    lab.down()
    assert controller.wait(60) == -signal.SIGKILL
    assert not alive(ours)
    assert leaks(lab.folder) == []
    # Links of others may come and go here meanwhile.
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    assert not [node for node in lab.machines if port_of(node) in links]


def test_exception_leaves_nothing() -> None:
    lab = Lab()
    with pytest.raises(ZeroDivisionError), lab:
        ours = everything(lab)
        _ = 1 / 0
    assert ours
    assert not alive(ours)
    assert leaks(lab.folder) == []


def test_node_that_does_not_boot_is_said_and_leaves_nothing() -> None:
    lab = Lab(disk_bytes=4096)
    with pytest.raises(LabError):
        lab.up()
    assert leaks(lab.folder) == []


def test_killed_test_leaves_nothing(
    orphan: tuple[subprocess.Popen[str], Path], tmp_path: Path
) -> None:
    process, folder = orphan
    ours = of_lab(folder, tmp_path / "inits")
    assert len(ours) >= 6
    process.kill()
    # The keeper, the last of them, removes the folder before it ends itself.
    wait_until(lambda: not leaks(folder) and not alive(ours))


def test_killed_keeper_takes_the_nodes_with_it_and_the_next_lab_sweeps_the_rest(
    orphan: tuple[subprocess.Popen[str], Path], tmp_path: Path
) -> None:
    process, folder = orphan
    ours = of_lab(folder, tmp_path / "inits")
    inits = {int(pid) for pid in (tmp_path / "inits").read_text().split()}
    keeper = next(item for item in with_token(folder) if "tests.lab.keeper" in item.cmdline())
    keeper.kill()
    process.kill()
    process.wait()
    wait_until(lambda: not {pid for pid, _ in alive(ours)} & inits)
    assert folder.exists()
    with Lab() as other:
        assert other.folder != folder
        assert leaks(folder) == []
        assert not alive(ours)


def test_sweep_spares_a_lab_that_lives(lab: Lab) -> None:
    assert lab.folder not in sweep()
    assert ssh(lab, "head", "true").returncode == 0


def test_two_labs_at_once_do_not_see_each_other(lab: Lab) -> None:
    with Lab() as other:
        ssh(other, "head", "touch ~/other")
        assert "other" not in ssh(lab, "head", "ls ~").stdout
        other.power_off("head")
        assert ssh(lab, "head", "hostname").stdout == "head\n"
    assert ssh(lab, "worker", "hostname").stdout == "worker\n"


def test_controller_process_has_its_own_pid_network_and_mark(lab: Lab) -> None:
    process = subprocess.Popen(lab.controller_argv(["sleep", "4814"]))
    try:
        wait_until(lambda: psutil.Process(process.pid).name() == "sleep")
        assert psutil.Process(process.pid).environ()[TOKEN] == str(lab.folder)
        # Told by the namespace: a packet to a lab's address would leave by the default route here.
        networks = {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in (process.pid, os.getpid())}
        assert len(networks) == 2
    finally:
        process.kill()
        process.wait()
