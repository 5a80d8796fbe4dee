"""Connections that break: noticed in time, told apart from exit codes, nothing half left."""

import getpass
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from servemap.model.errors import ConnectionLostError
from servemap.nodes import ssh_link, ssh_transport
from servemap.nodes.ssh import SshNode
from tests.parts import need
from tests.unit.nodes.sshd import HOST, Sshd
from tests.unit.nodes.test_local import gone, python, wait_for_text
from tests.unit.nodes.test_ssh_way import RELAY
from tests.waiting import WAIT_S, wait_for


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    """An sshd whose connections may be broken; the watch is as fast as tests need."""
    need("sshd")
    monkeypatch.setattr(ssh_link, "QUIET_S", 0.4)
    monkeypatch.setattr(ssh_link, "DEAD_S", 4.0)
    monkeypatch.setattr(ssh_link, "TICK_S", 0.05)
    server = Sshd(tmp_path / "sshd")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def break_later(
    server: Sshd, number: signal.Signals, ready: Callable[[], bool]
) -> threading.Thread:
    """Signal the connections' sshd as soon as something is true."""

    def act() -> None:
        wait_for(ready, "something to break")
        for process in server.connections():
            process.send_signal(number)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def lost(call: Callable[[], object], said: str = "connection was lost") -> ConnectionLostError:
    with pytest.raises(ConnectionLostError, match=said) as caught:
        call()
    assert "node far" in caught.value.where
    return caught.value


def test_the_watch_is_quick_enough() -> None:
    # asked at the latest, then given up at the latest; the limit is 8 s
    assert ssh_link.QUIET_S < ssh_link.DEAD_S
    assert ssh_link.DEAD_S + 2 * ssh_link.TICK_S < 8


def test_an_sshd_that_dies_is_a_loss_and_no_code(server: Sshd, tmp_path: Path) -> None:
    node = server.node()
    begun = tmp_path / "begun"
    breaking = break_later(server, signal.SIGKILL, begun.exists)
    lost(lambda: node.run(["sh", "-c", f"echo $$ > '{begun}'; sleep 600"], timeout_s=60))
    breaking.join()
    os.kill(int(begun.read_text()), signal.SIGKILL)
    # the next call connects anew
    assert node.run(["true"], timeout_s=WAIT_S).code == 0
    assert node.agent_argv("clock")[-1] == "clock"


def test_a_peer_that_falls_silent_is_given_up(server: Sshd, tmp_path: Path) -> None:
    node = server.node()
    begun = tmp_path / "begun"
    breaking = break_later(server, signal.SIGSTOP, begun.exists)
    lost(
        lambda: node.run(["sh", "-c", f"echo $$ > '{begun}'; sleep 600"], timeout_s=60),
        "no sign of life",
    )
    breaking.join()
    assert node.run(["true"], timeout_s=WAIT_S).code == 0


def test_an_idle_connection_that_fell_silent_is_noticed_by_the_next_call(server: Sshd) -> None:
    node = server.node()
    node.state_dir()
    for process in server.connections():
        process.send_signal(signal.SIGSTOP)
    lost(lambda: node.run(["true"], timeout_s=60))
    assert node.run(["true"], timeout_s=WAIT_S).code == 0


def until(path: Path) -> list[str]:
    """A command that says nothing before there is such a file."""
    return ["sh", "-c", f"until [ -e '{path}' ]; do sleep 0.05; done; echo end"]


def test_a_long_silent_command_on_a_good_link_is_left_alone(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[float] = []
    ask = ssh_link.Link._ask

    def asked(link: ssh_link.Link) -> None:
        ask(link)
        heard.append(link._transport.packetizer.heard_s)
        if len(heard) == 3:
            (tmp_path / "end").touch()

    monkeypatch.setattr(ssh_link.Link, "_ask", asked)
    done = server.node().run(until(tmp_path / "end"), timeout_s=WAIT_S)
    assert done.stdout == "end\n"
    assert heard == sorted(set(heard)), "each answer is a sign of life"


class Suspended:
    """The clock of a machine that stands still for a minute, three times, while its watch rests."""

    def __init__(self, after: Path) -> None:
        self.still_s = 0.0
        self.after = after

    def monotonic(self) -> float:
        return time.monotonic() + self.still_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        if self.still_s < 180:
            self.still_s += 60
        else:
            self.after.touch()


def test_a_peer_is_not_given_up_for_the_time_in_which_we_stood_still(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = server.node()
    node.state_dir()
    clock = Suspended(tmp_path / "end")
    for module in (ssh_link, ssh_transport):
        monkeypatch.setattr(module, "time", clock)
    assert node.run(until(tmp_path / "end"), timeout_s=WAIT_S).stdout == "end\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_put_that_is_cut_leaves_nothing_half(
    server: Sshd, tmp_path: Path, number: signal.Signals
) -> None:
    node = server.node()
    there = tmp_path / "there"
    node.write_text(str(there / "file"), "old")
    big = tmp_path / "big"
    with big.open("wb") as handle:
        handle.truncate(3 << 30)

    def half() -> bool:
        return any(path.stat().st_size > 1_000_000 for path in there.glob(".file.*"))

    breaking = break_later(server, number, half)
    lost(lambda: node.put(big, str(there / "file")))
    breaking.join()
    assert (there / "file").read_text() == "old"
    for process in server.connections():
        process.kill()
    wait_for(lambda: not list(there.glob(".file.*")), "the end of what is left on the node")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_fetch_that_is_cut_is_continued(
    server: Sshd, tmp_path: Path, number: signal.Signals
) -> None:
    node = server.node()
    source, local = tmp_path / "source", tmp_path / "local"
    source.mkdir()
    (source / "a").write_bytes(os.urandom(1000))
    with (source / "b").open("wb") as handle:
        handle.truncate(3 << 30)
    breaking = break_later(server, number, lambda: (local / "a").exists())
    lost(lambda: node.fetch(str(source), local))
    breaking.join()
    assert [path.name for path in local.iterdir()] == ["a"]
    inode = (local / "a").stat().st_ino
    with (source / "b").open("wb") as handle:
        handle.truncate(1 << 20)
    assert [item.path for item in node.fetch(str(source), local)] == ["a", "b"]
    assert (local / "a").stat().st_ino == inode, "what was here was fetched again"


def test_a_get_that_is_cut_leaves_the_old_file(server: Sshd, tmp_path: Path) -> None:
    node = server.node()
    big, here = tmp_path / "big", tmp_path / "here"
    here.mkdir()
    (here / "file").write_text("old")
    with big.open("wb") as handle:
        handle.truncate(3 << 30)

    def half() -> bool:
        return any(path.stat().st_size > 1_000_000 for path in here.glob(".file.*"))

    breaking = break_later(server, signal.SIGKILL, half)
    lost(lambda: node.get(str(big), here / "file"))
    breaking.join()
    assert {path.name: path.read_text() for path in here.iterdir()} == {"file": "old"}


def test_an_exchange_that_is_cut_is_a_loss(server: Sshd, tmp_path: Path) -> None:
    node = server.node()
    begun = tmp_path / "begun"
    breaking = break_later(server, signal.SIGKILL, begun.exists)
    argv = ["sh", "-c", f"echo $$ > '{begun}'; exec sleep 600"]
    lost(lambda: node.exchange(argv, ["a"]))
    breaking.join()
    os.kill(int(begun.read_text()), signal.SIGKILL)


def test_what_was_spawned_goes_on_after_a_loss(server: Sshd, tmp_path: Path) -> None:
    node = server.node()
    process = node.spawn(
        python("import time; print('up', flush=True); time.sleep(600)"), log=str(tmp_path / "log")
    )
    wait_for_text(tmp_path / "log")
    for connection in server.connections():
        connection.kill()
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            assert node.alive(process)
            break
        except ConnectionLostError:
            assert time.monotonic() < deadline
    assert node.stop(process, WAIT_S)
    assert gone(process.pid)


def test_a_silent_way_through_a_jump_host_is_noticed(server: Sshd, tmp_path: Path) -> None:
    between = Sshd(tmp_path / "between")
    between.start()
    try:
        shutil.copy(f"{server.key}.pub", between.folder / "authorized_keys")
        both = tmp_path / "known"
        both.write_text(server.known_hosts.read_text() + between.known_hosts.read_text())
        jump = f"{getpass.getuser()}@{HOST}:{between.port}"
        for silent in (server, between):
            node = server.node(jump=jump, known_hosts=str(both))
            begun = tmp_path / f"begun{silent.port}"
            breaking = break_later(silent, signal.SIGSTOP, begun.exists)
            argv = ["sh", "-c", f"echo $$ > '{begun}'; sleep 600"]
            lost(lambda node=node, argv=argv: node.run(argv, timeout_s=60), "no sign of life")
            breaking.join()
            assert node.run(["true"], timeout_s=WAIT_S).code == 0
    finally:
        between.stop()


@pytest.mark.parametrize("ended", [False, True])
def test_a_proxy_that_stops_is_noticed(server: Sshd, tmp_path: Path, ended: bool) -> None:
    stop, begun = tmp_path / "stop", tmp_path / "begun"
    node = server.node(proxy=f"{RELAY} %h %p {stop}")

    def halt() -> None:
        wait_for_text(begun)
        stop.touch()
        if ended:
            for process in own_relays():
                process.kill()

    def own_relays() -> list[psutil.Process]:
        found = []
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if str(stop) in " ".join(child.cmdline()):
                    found.append(child)
        return found

    halting = threading.Thread(target=halt)
    halting.start()
    argv = ["sh", "-c", f"echo $$ > '{begun}'; while :; do sleep 0.1; echo x; done"]
    lost(lambda: node.run(argv, timeout_s=60))
    halting.join()
    wait_for(lambda: not own_relays(), "the proxy's end")
    stop.unlink()
    assert node.run(["true"], timeout_s=WAIT_S).code == 0


def test_closing_while_a_command_runs_is_a_loss(server: Sshd, tmp_path: Path) -> None:
    node: SshNode = server.node()
    begun = tmp_path / "begun"

    def close() -> None:
        wait_for_text(begun)
        node.close()

    closing = threading.Thread(target=close)
    closing.start()
    lost(lambda: node.run(["sh", "-c", f"echo $$ > '{begun}'; sleep 600"], timeout_s=60))
    closing.join()
