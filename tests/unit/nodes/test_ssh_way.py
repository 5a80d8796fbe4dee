"""Who is let in and how: host keys, logins, jump hosts, proxies, odd shells."""

import getpass
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import ConfigError, ConnectionLostError, NodeError
from servemap.nodes.ssh import SshNode
from servemap.nodes.ssh_connection import proxy_argv, way_over, way_to
from tests.parts import SHELLS, need
from tests.unit.nodes.sshd import HOST, Sshd, free_port, keygen
from tests.waiting import WAIT_S

RELAY = f"{sys.executable} {Path(__file__).with_name('relay.py')}"


def refused(node: SshNode) -> NodeError:
    with pytest.raises(NodeError) as caught:
        node.run(["true"], timeout_s=WAIT_S)
    assert not isinstance(caught.value, ConnectionLostError)
    return caught.value


def unreachable(node: SshNode) -> ConnectionLostError:
    with pytest.raises(ConnectionLostError, match="cannot connect") as caught:
        node.run(["true"], timeout_s=WAIT_S)
    return caught.value


def fingerprint(key: Path) -> str:
    argv = ["ssh-keygen", "-lf", f"{key}.pub"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[1]


def test_an_unknown_host_key_is_refused_and_shown(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known"
    # another host, and this one on the port of every other sshd
    known.write_text(f"{HOST} {Path(f'{sshd.host_key}.pub').read_text()}")
    error = refused(sshd.node(known_hosts=str(known)))
    assert f"[{HOST}]:{sshd.port} is not known: ssh-ed25519 {fingerprint(sshd.host_key)}" in (
        error.what
    )
    assert str(known) in error.where
    key = Path(f"{sshd.host_key}.pub").read_text().split()[1]
    assert f"[{HOST}]:{sshd.port} ssh-ed25519 {key}" in error.remedy
    # what the remedy says is enough
    known.write_text(error.remedy.split("`")[-2] + "\n")
    assert sshd.node(known_hosts=str(known)).run(["true"], timeout_s=WAIT_S).code == 0


def test_a_changed_host_key_has_its_own_words(sshd: Sshd, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    known = tmp_path / "known"
    entry = Path(f"{other}.pub").read_text()
    known.write_text(f"[{HOST}]:{sshd.port} {entry}")
    error = refused(sshd.node(known_hosts=str(known)))
    assert "has changed" in error.what
    assert fingerprint(sshd.host_key) in error.what
    assert fingerprint(other) in error.what


def test_only_the_named_file_is_trusted(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert "cannot be read: No such file" in refused(sshd.node(known_hosts=None)).what
    shutil.copy(sshd.known_hosts, home / ".ssh" / "known_hosts")
    assert sshd.node(known_hosts=None).run(["true"], timeout_s=WAIT_S).code == 0
    empty = tmp_path / "empty"
    empty.touch()
    assert "is not known" in refused(sshd.node(known_hosts=str(empty))).what


def test_the_users_ssh_config_is_not_read(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(f"Host {HOST}\n  Port 1\n  ProxyCommand false\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sshd.node().run(["true"], timeout_s=WAIT_S).code == 0


def test_a_refused_login_is_said(sshd: Sshd, tmp_path: Path) -> None:
    stranger = keygen(tmp_path / "stranger")
    error = refused(sshd.node(key_file=str(stranger)))
    assert f"login as {getpass.getuser()!r} was refused with the key {stranger}" in error.what
    assert "authorized_keys" in error.remedy
    assert "cannot be read" in refused(sshd.node(key_file=str(tmp_path / "no"))).what
    argv = ["ssh-keygen", "-q", "-p", "-N", "a phrase", "-f", str(stranger)]
    subprocess.run(argv, check=True)
    assert "is encrypted" in refused(sshd.node(key_file=str(stranger))).what
    (tmp_path / "garbage").write_text("garbage")
    assert "cannot be read" in refused(sshd.node(key_file=str(tmp_path / "garbage"))).what


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        while not path.exists():
            assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("agent")
def test_without_a_key_file_the_agents_keys_are_used(sshd: Sshd) -> None:
    error = refused(sshd.node(key_file=None))
    assert "any key of the ssh agent" in error.what
    subprocess.run(["ssh-add", "-q", str(sshd.key)], check=True, capture_output=True)
    assert sshd.node(key_file=None).run(["true"], timeout_s=WAIT_S).code == 0


def test_what_cannot_be_reached_is_a_lost_connection(sshd: Sshd) -> None:
    assert "refused" in unreachable(sshd.node(port=free_port())).what
    assert "cannot connect" in unreachable(sshd.node(host="no-such-host.invalid")).what


def test_what_is_no_sshd_is_noticed_in_time(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servemap.nodes.ssh_connection.CONNECT_S", 1.0)
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        unreachable(sshd.node(port=silent.getsockname()[1]))


def test_a_jump_host_is_as_strict(sshd: Sshd, tmp_path: Path) -> None:
    other = Sshd(tmp_path / "other")
    other.start()
    try:
        shutil.copy(f"{sshd.key}.pub", other.folder / "authorized_keys")
        both = tmp_path / "known"
        both.write_text(sshd.known_hosts.read_text() + other.known_hosts.read_text())
        jump = f"{getpass.getuser()}@{HOST}:{other.port}"
        node = sshd.node(jump=jump, known_hosts=str(both))
        peer = node.run(["sh", "-c", "echo $SSH_CONNECTION"], timeout_s=WAIT_S).stdout
        assert peer.split()[3] == str(sshd.port)
        assert len(other.connections()) >= 1
        node.close()
        error = refused(sshd.node(jump=jump))
        assert f"[{HOST}]:{other.port} is not known" in error.what
        assert "jump" in error.where
        both.write_text(other.known_hosts.read_text())
        error = refused(sshd.node(jump=jump, known_hosts=str(both)))
        assert f"[{HOST}]:{sshd.port} is not known" in error.what
        dead = sshd.node(jump=jump, known_hosts=str(both), port=free_port())
        assert "through" in unreachable(dead).where
    finally:
        other.stop()


def test_a_proxy_command_leads_to_the_node(sshd: Sshd, tmp_path: Path) -> None:
    node = sshd.node(proxy=f"{RELAY} %h %p")
    assert node.run(["echo", "x"], timeout_s=WAIT_S).stdout == "x\n"
    empty = tmp_path / "empty"
    empty.touch()
    error = refused(sshd.node(proxy=f"{RELAY} %h %p", known_hosts=str(empty)))
    assert f"[{HOST}]:{sshd.port} is not known" in error.what


def test_a_proxy_that_fails_is_said(sshd: Sshd) -> None:
    assert "cannot be started" in refused(sshd.node(proxy="/no/such/proxy")).what
    broken = sshd.node(proxy="sh -c 'echo no route today >&2'")
    assert "the proxy said: no route today" in unreachable(broken).what


def test_ways_are_read_from_the_campaign(sshd: Sshd) -> None:
    spec = sshd.spec(address="10.0.0.1", host="name", port=2200, user=None, jump="me@gate:23")
    assert (way_to(spec).host, way_to(spec).port) == ("name", 2200)
    assert way_to(spec).user == getpass.getuser()
    over = way_over(spec)
    assert over is not None
    assert (over.user, over.host, over.port) == ("me", "gate", 23)
    plain = way_over(sshd.spec(jump="[fe80::1]", user="u"))
    assert plain is not None
    assert (plain.user, plain.host, plain.port) == ("u", "fe80::1", 22)
    for bad in ("a b", "host:", "host:x", "host:99999", "@host", "a:1:2", ""):
        with pytest.raises(ConfigError):
            way_over(sshd.spec(jump=bad))
    spec = sshd.spec(proxy="nc -X 'a b' %h %p %r %% %x", host="h", port=5, user="u")
    assert proxy_argv(spec) == ["nc", "-X", "a b", "h", "5", "u", "%", "%x"]
    with pytest.raises(ConfigError):
        proxy_argv(sshd.spec(proxy="a 'b"))


def odd(folder: Path, *lines: str) -> Iterator[Sshd]:
    server = Sshd(folder, *lines)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def test_a_start_up_file_that_prints_is_passed_over(sshd: Sshd, tmp_path: Path) -> None:
    bashrc = sshd.home / ".bashrc"
    noise = "echo welcome; printf 'no newline'; echo trouble >&2; printf 'x%.0s' {1..100000} >&2\n"
    bashrc.write_text(noise)
    try:
        node = sshd.node()
        assert node.state_dir() == f"{sshd.home}/.local/state/servemap"
        done = node.run(["sh", "-c", "echo out; echo err >&2"], timeout_s=WAIT_S)
        assert (done.stdout, done.stderr) == ("out\n", "err\n")
        plain = node.run(["bash", "-c", "echo $BASHPID"], timeout_s=WAIT_S)
        assert plain.stderr == ""
        node.write_text(str(tmp_path / "f"), "text")
        assert node.read_text(str(tmp_path / "f")) == "text"
        assert [item.size for item in node.fetch(str(tmp_path), tmp_path / "copy")] == [4]
        assert len(node.exchange(["cat"], ["a", "b"])) == 2
        process = node.spawn(["sleep", "600"], log=str(tmp_path / "log"))
        assert node.stop(process, 0)
    finally:
        bashrc.unlink()


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell_will_do(tmp_path: Path, shell: str) -> None:
    need("sshd")
    program = shutil.which(shell)
    if program is None:
        need("shells")
    call = f"{program} sh" if shell == "busybox" else program
    # what sshd does with a login shell
    force = f'ForceCommand exec {call} -c "$SSH_ORIGINAL_COMMAND"'
    for server in odd(tmp_path / "sshd", force):
        node = server.node()
        nasty = "a\n'\"!x $y \\ é"
        done = node.run(["echo", nasty], timeout_s=WAIT_S)
        assert (done.code, done.stdout) == (0, f"{nasty}\n")
        with pytest.raises(NodeError, match="was killed"):
            node.run(["sleep", "600"], timeout_s=0.5)
        node.write_text(str(tmp_path / "a b"), nasty)
        assert node.read_text(str(tmp_path / "a b")) == nasty


def test_a_login_that_runs_nothing_is_said(tmp_path: Path) -> None:
    need("sshd")
    for server in odd(tmp_path, "ForceCommand echo This account is not available."):
        error = refused(server.node())
        assert "runs no commands: This account is not available." in error.what


def test_few_sessions_are_enough_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("sshd")
    monkeypatch.setattr("servemap.nodes.ssh_link.CHANNEL_S", 3.0)
    for server in odd(tmp_path, "MaxSessions 0"):
        assert "MaxSessions" in refused(server.node()).remedy


def test_state_home_of_the_node_is_used(tmp_path: Path) -> None:
    need("sshd")
    for server in odd(tmp_path, f'SetEnv "XDG_STATE_HOME={tmp_path}/s t" HOME={tmp_path}'):
        node = server.node()
        assert node.state_dir() == f"{tmp_path}/s t/servemap"
        assert node.agent_argv()[1].startswith(f"{tmp_path}/s t/servemap/onnode-")


def test_nothing_is_written_to_tmp(sshd: Sshd, tmp_path: Path) -> None:
    """A temporary folder that cannot be written hurts nobody: TMPDIR names none at all."""
    node = sshd.node()
    env = {"TMPDIR": "/no/such/folder"}
    assert node.run(node.agent_argv("clock"), timeout_s=WAIT_S, env=env, input="?\n").code == 0
    with pytest.raises(NodeError, match="file operation failed"):
        node.write_text("/proc/self/x", "y")
    assert list(tmp_path.iterdir()) == []


def test_the_socket_sends_at_once_and_notices_a_dead_peer(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []
    connect = socket.create_connection

    def keep(*args: Any, **keys: Any) -> socket.socket:
        made.append(connect(*args, **keys))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", keep)
    node = sshd.node()
    node.state_dir()
    options = {
        name: made[0].getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
        for name in ("TCP_NODELAY", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    }
    assert made[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert options["TCP_NODELAY"]
    idle_s = options["TCP_KEEPIDLE"] + options["TCP_KEEPINTVL"] * options["TCP_KEEPCNT"]
    assert 0 < idle_s < 8
    assert 0 < made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 8000
    node.close()
