"""One node's connection: opened when it is needed, opened anew after a loss, shared by threads."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from servemap.model.errors import ConnectionLostError, NodeError
from servemap.model.server_spec import NodeSpec
from servemap.nodes import ssh_command
from servemap.nodes.ssh_command import Script
from servemap.nodes.ssh_connection import open_connection
from servemap.nodes.ssh_errors import Ended, command_text, last_line, lost
from servemap.nodes.ssh_link import Link
from servemap.nodes.ssh_talk import SEND_BYTES, Slow, Talk, talk

# What a short command of ours may take on a busy machine; what a transfer may pause.
SHORT_S, PAUSE_S = 30.0, 120.0


@dataclass(frozen=True)
class Greeting:
    """What a node says of itself when it is connected to."""

    home: str
    state_home: str
    user: str
    boot_id: str


def parse_greeting(text: str) -> Greeting:
    """Return what `ssh_command.greet` printed; ValueError where it is something else."""
    lines = text.splitlines()
    if len(lines) == 4 and not lines[0]:
        raise ValueError("HOME is not set there")
    if len(lines) != 4 or not lines[0].startswith("/") or not lines[3]:
        raise ValueError("expected four lines: home, XDG_STATE_HOME, user, boot id")
    return Greeting(*lines)


@dataclass
class Session:
    """A connection and what is known of the node as long as it lasts."""

    link: Link
    greeting: Greeting
    agent: str | None = None


class Reach:
    """The one connection to a node; all methods may be called from several threads.

    Every method raises ConnectionLostError where the connection breaks or cannot be made, and
    NodeError where the node does not do what it should.
    """

    def __init__(self, spec: NodeSpec) -> None:
        self.where = f"node {spec.id}"
        self._spec = spec
        self._session: Session | None = None
        self._lock = threading.Lock()

    def session(self) -> Session:
        """Return the open connection, made anew where there is none or it broke."""
        with self._lock:
            if self._session is not None:
                if self._session.link.usable:
                    return self._session
                self._session.link.close()
                self._session = None
            link = Link(open_connection(self._spec), self.where)
            try:
                self._session = Session(link, self._greet(link))
            except BaseException:
                link.close()
                raise
            return self._session

    def close(self) -> None:
        """Close the connection; what was started there goes on."""
        with self._lock:
            if self._session is not None:
                self._session.link.close()
                self._session = None

    def short(self, script: Script, data: bytes = b"") -> Ended:
        """Run a short command of ours."""
        link = self.session().link
        with talk(link, script) as running:
            try:
                return running.finish(data, SHORT_S)
            except Slow:
                self.kill(link, running)
                raise NodeError(
                    f"a short command did not end within {SHORT_S:g} s",
                    f"{self.where}: {script.body[-300:]}",
                    "see what holds the machine or its disk up",
                ) from None

    def download(self, script: Script, target: IO[bytes]) -> Ended:
        """Run a command and write what it prints."""
        link = self.session().link
        with talk(link, script) as running:
            running.end_input()
            try:
                while piece := running.read(PAUSE_S):
                    target.write(piece)
                return running.result(b"", SHORT_S)
            except Slow:
                raise self.stuck(link, running) from None

    def upload(self, script: Script, source: IO[bytes]) -> Ended:
        """Run a command that reads what a file here holds."""
        link = self.session().link
        with talk(link, script) as running:
            while (block := source.read(SEND_BYTES)) and running.send(block):
                pass
            try:
                return running.finish(b"", PAUSE_S)
            except Slow:
                raise self.stuck(link, running) from None

    def stuck(self, link: Link, running: Talk) -> NodeError:
        """Kill a transfer that stands still and return the error for it."""
        self.kill(link, running)
        return NodeError(
            f"a transfer stood still for {PAUSE_S:g} s", self.where, "see what holds the disk up"
        )

    def kill(self, link: Link, running: Talk) -> None:
        """Kill what a script became and its group, over a channel of its own."""
        if running.begun is None or not running.begun.isdigit():
            return
        with talk(link, ssh_command.kill(int(running.begun)), urgent=True) as killing:
            try:
                killing.finish(b"", SHORT_S)
            except Slow:
                raise lost(self.where, "a process could not be killed there") from None

    def check_begun(self, running: Talk, argv: Sequence[str], cwd: str | None) -> None:
        """Raise NodeError where a program was not started because it or its folder is missing."""
        if running.begun == "none":
            raise NodeError(
                f"cannot start {argv[0]}: No such program",
                f"{self.where}: {command_text(argv)}",
                "install the program, or correct its path",
            )
        if running.begun == "cwd":
            raise NodeError(
                f"cannot start {argv[0]}: No such folder",
                f"{self.where}: {cwd}",
                "make the folder, or correct its path",
            )

    def _greet(self, link: Link) -> Greeting:
        try:
            with talk(link, ssh_command.greet()) as running:
                ended = running.finish(b"", SHORT_S)
            return parse_greeting(ended.stdout.decode(errors="replace"))
        except Slow:
            raise ConnectionLostError(
                f"the login shell did not run a command within {SHORT_S:g} s",
                self.where,
                "see what that user's start-up files do (~/.bashrc): they must not wait, nor start "
                "another program in place of the shell; or what holds the machine up",
            ) from None
        except ValueError as error:
            said = (ended.stderr or ended.stdout).decode(errors="replace")
            raise NodeError(
                f"cannot tell what machine this is: {error}: {last_line(said)}",
                self.where,
                "servemap drives Linux; see that HOME is set, `id` is there and /proc is mounted",
            ) from error
