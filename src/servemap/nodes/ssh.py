"""Another machine, reached over ssh, as a node."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from servemap.model.errors import NodeError
from servemap.model.server_spec import NodeSpec
from servemap.nodes import ssh_command, ssh_fetch
from servemap.nodes.base import PIECE_BYTES, Completed, Exchange, Fetched, ProcessId, too_much
from servemap.nodes.ssh_agent import answer_of, install, strange
from servemap.nodes.ssh_command import MISSING
from servemap.nodes.ssh_errors import check_file, command_text, last_line
from servemap.nodes.ssh_reach import PAUSE_S, SHORT_S, Reach
from servemap.nodes.ssh_talk import FloodError, Slow, talk
from servemap.onnode.end import AFTER_KILL_S
from servemap.onnode.ident import parse_stat

EXCHANGE_S = 20.0
MODE = 0o644


class SshNode:
    """A Node behind one ssh connection, opened by the first call; see `servemap.nodes.base.Node`.

    A call that finds the connection broken opens it again. The machine may have been restarted in
    between: identities of processes carry the boot id, and the agent is checked again.
    """

    def __init__(self, spec: NodeSpec) -> None:
        self._spec = spec
        self._reach = Reach(spec)
        self._where = self._reach.where
        self._installing = threading.Lock()

    @property
    def name(self) -> str:
        """The node's name in the campaign."""
        return self._spec.id

    @property
    def here(self) -> bool:
        """It is another machine."""
        return False

    @property
    def python(self) -> str:
        """The interpreter that runs the on-node program there."""
        return self._spec.python or "python3"

    def state_dir(self) -> str:
        """Return the folder on the node for files of servemap and this user."""
        greeting = self._reach.session().greeting
        return f"{greeting.state_home or greeting.home + '/.local/state'}/servemap"

    def close(self) -> None:
        """Close the connection; what was started there goes on."""
        self._reach.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002 - subprocess' own word
        cwd: str | None = None,
    ) -> Completed:
        """Run a program to its end; see Node.run.

        `env` is on no command line there, but the program's own user can read it in /proc.
        """
        started = time.monotonic()
        command = command_text(tuple(argv))
        data = b"" if input is None else input.encode("utf-8", "surrogateescape")
        script = ssh_command.program(argv, env or {}, cwd)
        link = self._reach.session().link
        with talk(link, script) as running:
            try:
                ended = running.finish(data, timeout_s)
            except Slow:
                self._reach.kill(link, running)
                raise NodeError(
                    f"{argv[0]} did not end within {timeout_s:g} s and was killed",
                    f"{self._where}: {command}",
                    "see why it hangs there, or allow it more time",
                ) from None
            except FloodError as error:
                self._reach.kill(link, running)
                raise too_much(
                    f"{argv[0]} printed without an end and was killed", f"{self._where}: {command}"
                ) from error
        self._reach.check_begun(running, argv, cwd)
        return Completed(
            tuple(argv),
            ended.code,
            ended.stdout.decode(errors="replace"),
            ended.stderr.decode(errors="replace"),
            time.monotonic() - started,
        )

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the node, with its permissions; see Node.put."""
        with self._here(local), local.open("rb") as source:
            status = os.fstat(source.fileno())
            script = ssh_command.write(remote, status.st_size, status.st_mode & 0o777)
            check_file(self.name, remote, self._reach.upload(script, source))

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from the node; see Node.get."""
        with self._here(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            temporary = local.with_name(f".{local.name}.{os.getpid()}.tmp")
            try:
                with temporary.open("wb") as target:
                    ended = self._reach.download(ssh_command.read(remote), target)
                check_file(self.name, remote, ended)
                temporary.replace(local)
            finally:
                temporary.unlink(missing_ok=True)

    def read_text(self, remote: str) -> str | None:
        """Return the text of a file, None when there is none."""
        ended = self._reach.short(ssh_command.read(remote))
        if ended.code == MISSING:
            return None
        check_file(self.name, remote, ended)
        return ended.stdout.decode(errors="replace")

    def read_since(self, remote: str, offset: int, max_bytes: int = PIECE_BYTES) -> bytes:
        """Return what a file holds from `offset` on; see Node.read_since."""
        ended = self._reach.short(ssh_command.read_from(remote, offset, max_bytes))
        if ended.code == MISSING:
            return b""
        check_file(self.name, remote, ended)
        return ended.stdout

    def write_text(self, remote: str, text: str) -> None:
        """Write a file atomically, making its folder."""
        data = text.encode("utf-8", "surrogateescape")
        ended = self._reach.short(ssh_command.write(remote, len(data), MODE), data)
        check_file(self.name, remote, ended)

    def fetch(self, remote: str, local: Path, *, max_bytes: int | None = None) -> list[Fetched]:
        """Bring the regular files below a folder over; see Node.fetch."""
        where = f"{self._where}: {remote}"
        with self._here(local):
            local.mkdir(parents=True, exist_ok=True)
            known = ssh_fetch.known_files(local)
        request = {"folder": remote, "have": known, "max_bytes": max_bytes}
        argv = self.agent_argv("pack")
        link = self._reach.session().link
        with self._here(local), talk(link, ssh_command.program(argv, {}, None)) as running:
            running.send(json.dumps(request).encode())
            running.end_input()
            try:
                stream = ssh_fetch.Stream(lambda: running.read(PAUSE_S))
                return ssh_fetch.receive(stream, local, known, max_bytes)
            except Slow:
                raise self._reach.stuck(link, running) from None
            except EOFError:
                ended = running.result(b"", SHORT_S)
                self._reach.check_begun(running, argv, None)
                raise NodeError(
                    f"the sender ended with {ended.code} before all had come: "
                    f"{last_line(ended.stderr.decode(errors='replace'))}",
                    where,
                    "see why it ended there",
                ) from None
            except ValueError as error:
                raise NodeError(
                    f"what the node sent is no folder: {error}", where, "do not trust that node"
                ) from error
            except NodeError as error:
                if error.where:
                    raise
                raise NodeError(error.what, where, error.remedy) from error

    def exchange(self, argv: Sequence[str], lines: Sequence[str]) -> list[Exchange]:
        """Ask a program line by line; see Node.exchange."""
        deadline = time.monotonic() + EXCHANGE_S
        found = []
        link = self._reach.session().link
        with talk(link, ssh_command.program(argv, {}, None)) as running:
            try:
                stream = ssh_fetch.Stream(lambda: running.read(deadline - time.monotonic()))
                for line in lines:
                    sent = time.time_ns()
                    running.send(f"{line}\n".encode())
                    answer = stream.line()
                    received = time.time_ns()
                    found.append(Exchange(sent, answer.decode(errors="replace").strip(), received))
                running.finish(b"", deadline - time.monotonic())
            except (Slow, EOFError, ValueError) as error:
                if isinstance(error, EOFError):
                    running.result(b"", SHORT_S)
                self._reach.check_begun(running, argv, None)
                self._reach.kill(link, running)
                raise NodeError(
                    f"{argv[0]} ended before it had answered, or did not answer in time",
                    f"{self._where}: {command_text(tuple(argv))}",
                    "run that command by hand and see what it says",
                ) from error
        return found

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ProcessId:
        """Start a program in a session of its own; see Node.spawn."""
        request = {"argv": list(argv), "env": dict(env or {}), "cwd": cwd, "log": log}
        done = self.run(self.agent_argv("spawn"), timeout_s=SHORT_S, input=json.dumps(request))
        answer = answer_of(self, done)
        if "error" in answer:
            raise NodeError(
                f"cannot start {argv[0]}: {answer['error']}",
                f"{self._where}: {answer.get('path') or argv[0]}",
                "install the program, or correct its path, its working folder or its log",
            )
        try:
            return ProcessId(int(answer["pid"]), int(answer["start"]), str(answer["boot_id"]))
        except (KeyError, TypeError, ValueError) as error:
            raise strange(self, done) from error

    def alive(self, process: ProcessId) -> bool:
        """Say whether exactly this process still runs."""
        ended = self._reach.short(ssh_command.stat(process.pid))
        boot_id, _, stat = ended.stdout.decode(errors="replace").partition("\n")
        if boot_id.strip() != process.boot_id or not stat:
            return False
        found = parse_stat(stat)
        return found.start == process.start and found.state not in "ZX"

    def stop(self, process: ProcessId, grace_s: float) -> bool:
        """Send TERM, wait, then kill what is left of its session; see Node.stop."""
        argv = self.agent_argv(
            "end",
            *("--pid", str(process.pid), "--start", str(process.start)),
            *("--boot-id", process.boot_id, "--grace", str(grace_s)),
        )
        done = self.run(argv, timeout_s=grace_s + AFTER_KILL_S + SHORT_S)
        return answer_of(self, done).get("gone") is True

    def agent_argv(self, *args: str) -> list[str]:
        """Return the argv that runs the on-node program; once a connection it is looked after."""
        with self._installing:
            session = self._reach.session()
            if session.agent is None:
                session.agent = install(self, self._reach)
            return [self.python, session.agent, *args]

    @contextmanager
    def _here(self, path: Path) -> Iterator[None]:
        """Put an error of a file on this machine into words."""
        try:
            yield
        except OSError as error:
            raise NodeError(
                f"file operation failed here: {error.strerror or error}",
                str(error.filename or path),
                "see that the file exists, the disk has room and this user may access it",
            ) from error
