"""Opening an ssh connection as a campaign describes the node: strictly, and within seconds.

~/.ssh/config and Fabric's own configuration files are not read: what the campaign says is all.
"""

import getpass
import logging
import re
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import fabric
import paramiko

from servemap.model.errors import ConfigError, NodeError
from servemap.model.server_spec import NodeSpec
from servemap.nodes import ssh_keys
from servemap.nodes.ssh_errors import last_line, unreachable
from servemap.nodes.ssh_transport import Transport, tune

CONNECT_S = 5.0
SSH_PORT = 22
JUMP = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<host>\[[^\]]+\]|[^:@\s\[\]]+)(?::(?P<port>\d+))?")

# It writes tracebacks of its threads to stderr; what matters is raised.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True)
class Way:
    """One hop: where to, as whom, with what."""

    host: str
    port: int
    user: str
    key_file: str | None
    known_hosts: str | None

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"{self.user}@{self.host} port {self.port}"


@dataclass
class Opened:
    """A connection, and what is to be closed after it."""

    transport: Transport
    closers: list[Callable[[], object]] = field(default_factory=list)

    def close(self) -> None:
        """Close everything, the innermost first."""
        for closer in self.closers:
            closer()


def way_to(spec: NodeSpec) -> Way:
    """Return the last hop to a node."""
    user = spec.user or getpass.getuser()
    return Way(spec.host or spec.address, spec.port, user, spec.key_file, spec.known_hosts)


def way_over(spec: NodeSpec) -> Way | None:
    """Return the hop to the machine in between, None where there is none.

    Raises:
        ConfigError: `jump` is not [USER@]HOST[:PORT].
    """
    if spec.jump is None:
        return None
    found = JUMP.fullmatch(spec.jump)
    if found is None or not 0 < int(found["port"] or SSH_PORT) < 1 << 16:
        raise ConfigError(
            f"{spec.jump!r} is not [USER@]HOST[:PORT]",
            f"nodes.{spec.id}.jump",
            "give one machine in this form, an IPv6 address in brackets",
        )
    return Way(
        found["host"].strip("[]"),
        int(found["port"] or SSH_PORT),
        found["user"] or spec.user or getpass.getuser(),
        spec.key_file,
        spec.known_hosts,
    )


def proxy_argv(spec: NodeSpec) -> list[str]:
    """Return the argv of the proxy command, with %h, %p, %r and %% replaced as ssh does."""
    way = way_to(spec)
    values = {"%h": way.host, "%p": str(way.port), "%r": way.user, "%%": "%"}
    try:
        words = shlex.split(spec.proxy or "")
    except ValueError as error:
        raise ConfigError(
            f"the proxy command cannot be read: {error}",
            f"nodes.{spec.id}.proxy",
            "close the quotation",
        ) from error
    return [re.sub("%[hpr%]", lambda match: values[match[0]], word) for word in words]


def open_connection(spec: NodeSpec) -> Opened:
    """Connect to a node, through what is in between.

    Raises:
        ConnectionLostError: it cannot be reached.
        NodeError: it or we are not who was expected: unknown or changed host key, refused login.
        ConfigError: the way to it cannot be read.
    """
    name = f"node {spec.id}"
    over = way_over(spec)
    if spec.proxy is not None:
        return _through_proxy(spec, name)
    if over is None:
        way = way_to(spec)
        return _log_in(way, _dial(way, f"{name}: {way.where}"), f"{name}: {way.where}")
    between = _log_in(over, _dial(over, f"{name}: jump {over.where}"), f"{name}: jump {over.where}")
    try:
        return _through_jump(way_to(spec), over, between, name)
    except BaseException:
        between.close()
        raise


def _dial(way: Way, where: str) -> socket.socket:
    try:
        sock = socket.create_connection((way.host, way.port), CONNECT_S)
    except OSError as error:
        why = f"no answer within {CONNECT_S:g} s" if isinstance(error, TimeoutError) else error
        raise unreachable(where, str(getattr(why, "strerror", None) or why)) from error
    tune(sock)
    return sock


def _through_jump(way: Way, over: Way, between: Opened, name: str) -> Opened:
    where = f"{name}: {way.where} through {over.where}"
    try:
        channel = between.transport.open_channel(
            "direct-tcpip", (way.host, way.port), ("", 0), timeout=CONNECT_S
        )
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise unreachable(where, f"{over.host} opens no way to it: {error}") from error
    opened = _log_in(way, channel, where)
    opened.closers.append(between.close)
    return opened


def _through_proxy(spec: NodeSpec, name: str) -> Opened:
    """Run the proxy command on one end of a socket pair, so that its end is seen as an end."""
    argv, way = proxy_argv(spec), way_to(spec)
    where = f"{name}: {way.where} through {argv[0] if argv else '(empty proxy)'}"
    ours, theirs = socket.socketpair()
    said = tempfile.TemporaryFile()  # noqa: SIM115 - read when the login fails, closed by end()
    try:
        process = subprocess.Popen(
            argv,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=said,
            start_new_session=True,
        )
    except (OSError, IndexError) as error:
        ours.close()
        said.close()
        raise NodeError(
            f"the proxy command cannot be started: {error}",
            where,
            f"correct nodes.{spec.id}.proxy",
        ) from error
    finally:
        theirs.close()

    def end() -> None:
        ours.close()
        process.kill()
        process.wait()
        said.close()

    try:
        opened = _log_in(way, ours, where, lambda: _said(said))
    except BaseException:
        end()
        raise
    opened.closers.append(end)
    return opened


def _said(stream: IO[bytes]) -> str:
    stream.seek(0)
    text = stream.read(1 << 16).decode(errors="replace")
    return f"; the proxy said: {last_line(text)}" if text.strip() else ""


def _log_in(way: Way, sock: Any, where: str, remark: Callable[[], str] = lambda: "") -> Opened:
    """Do the ssh handshake over something that leads to the machine's sshd."""
    path = ssh_keys.known_hosts_file(way.known_hosts, way.host, way.port)
    key = None if way.key_file is None else str(Path(way.key_file).expanduser())
    connection = fabric.Connection(
        way.host,
        user=way.user,
        port=way.port,
        connect_timeout=CONNECT_S,
        config=fabric.Config(lazy=True, overrides={"load_ssh_configs": False}),
        connect_kwargs={
            "sock": sock,
            "transport_factory": Transport,
            "banner_timeout": CONNECT_S,
            "auth_timeout": CONNECT_S,
            "channel_timeout": CONNECT_S,
            "look_for_keys": False,
            "allow_agent": key is None,
            **({} if key is None else {"key_filename": key}),
        },
    )
    client = connection.client
    client.load_host_keys(str(path))
    client.set_missing_host_key_policy(ssh_keys.RefuseUnknown(where, path))
    try:
        connection.open()
    except BaseException as error:
        said = remark()
        with suppress(OSError, EOFError):
            client.close()
            sock.close()
        if isinstance(error, NodeError) or not isinstance(error, Exception):
            raise
        raise _refused(way, path, where, error, said) from error
    return Opened(connection.transport, [connection.close, sock.close])


def _refused(way: Way, path: Path, where: str, error: Exception, said: str) -> NodeError:
    if isinstance(error, paramiko.BadHostKeyException):
        return ssh_keys.changed(where, path, error)
    if isinstance(error, paramiko.PasswordRequiredException):
        return NodeError(
            "the private key is encrypted",
            f"{where}, key_file {way.key_file}",
            "add it to the ssh agent (ssh-add) and leave key_file away, or name another key",
        )
    unread = isinstance(error, OSError) and error.filename is not None
    if unread or "private key file" in str(error):
        return NodeError(
            f"the private key cannot be read: {getattr(error, 'strerror', None) or error}",
            f"{where}, key_file {way.key_file}",
            "correct key_file, or leave it away to use the keys of the ssh agent",
        )
    if isinstance(error, paramiko.AuthenticationException) or "authentication" in str(error):
        key = f"the key {way.key_file}" if way.key_file else "any key of the ssh agent"
        return NodeError(
            f"the login as {way.user!r} was refused with {key}: {error}",
            where,
            "see that the public key is in that user's authorized_keys there and that `user` and "
            "`key_file` are right; without key_file, `ssh-add -l` must list the key",
        )
    return unreachable(where, f"{str(error) or 'it ended the connection'}{said}")
