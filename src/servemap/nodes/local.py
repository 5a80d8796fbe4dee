"""The machine we run on, as a node."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from servemap.model.canon import file_sha256, write_text_atomic
from servemap.model.errors import NodeError
from servemap.model.files import regular
from servemap.nodes.agent_zip import build_agent
from servemap.nodes.base import (
    MAX_OUTPUT_BYTES,
    PIECE_BYTES,
    Completed,
    Exchange,
    Fetched,
    ProcessId,
    too_much,
)
from servemap.nodes.identity import identify, machine_boot_id
from servemap.nodes.local_pipes import TooMuchError, ask, converse
from servemap.onnode.end import AFTER_KILL_S, POLL_S, remains
from servemap.onnode.files import private
from servemap.onnode.ident import is_alive


def default_agent_dir() -> Path:
    """Return the user's cache folder for the on-node program."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "servemap"


def default_state_dir() -> str:
    """Return the user's folder for what must outlive a process."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return f"{state}/servemap"


READ_BYTES = 1 << 20


class LocalNode:
    """A Node without a network in between; see `servemap.nodes.base.Node`.

    Args:
        name: the node's name in the campaign.
        agent_dir: where the on-node program is put, the user's cache folder by default.
        python: the interpreter that runs it.
    """

    def __init__(
        self, name: str = "local", *, agent_dir: Path | None = None, python: str = sys.executable
    ) -> None:
        self._name = name
        self._agent_dir = agent_dir or default_agent_dir()
        self._python = python
        self._agent: Path | None = None
        self._installing = threading.Lock()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def name(self) -> str:
        """The node's name in the campaign."""
        return self._name

    @property
    def here(self) -> bool:
        """This process runs on that machine."""
        return True

    @property
    def python(self) -> str:
        """The interpreter that runs the on-node program."""
        return self._python

    def state_dir(self) -> str:
        """Return the folder for files of servemap and this user."""
        return default_state_dir()

    def close(self) -> None:
        """There is no connection to close."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002 - subprocess' own word
        cwd: str | None = None,
    ) -> Completed:
        """Run a program to its end; see Node.run."""
        started = time.monotonic()
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = self._start(argv, env, cwd, stdin, subprocess.PIPE, subprocess.PIPE)
        try:
            stdout, stderr = converse(process, (input or "").encode(), timeout_s)
        except TooMuchError:
            where = f"node {self._name}: {' '.join(argv)[:500]}"
            raise too_much(f"{argv[0]} printed without an end and was killed", where) from None
        except subprocess.TimeoutExpired:
            raise NodeError(
                f"{argv[0]} did not end within {timeout_s:g} s and was killed",
                f"node {self._name}: {' '.join(argv)[:500]}",
                "see why it hangs there, or allow it more time",
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return Completed(
            tuple(argv),
            process.returncode,
            stdout.decode(errors="replace"),
            stderr.decode(errors="replace"),
            time.monotonic() - started,
        )

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the node; see Node.put."""
        self._copy(local, Path(remote))

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from the node; see Node.get."""
        self._copy(Path(remote), local)

    def read_text(self, remote: str) -> str | None:
        """Return the text of a file, None when there is none."""
        with self._files(remote):
            try:
                with open(remote, "rb", opener=regular) as handle:
                    data = _bounded(handle)
            except FileNotFoundError:
                return None
        if len(data) > MAX_OUTPUT_BYTES:
            raise too_much("the file is too large to be read", f"node {self._name}: {remote}")
        return data.decode("utf-8", "replace")

    def read_since(self, remote: str, offset: int, max_bytes: int = PIECE_BYTES) -> bytes:
        """Return what a file holds from `offset` on; see Node.read_since."""
        with self._files(remote):
            try:
                with open(remote, "rb", opener=regular) as handle:
                    handle.seek(offset)
                    return handle.read(max_bytes)
            except FileNotFoundError:
                return b""

    def fetch(
        self,
        remote: str,
        local: Path,
        *,
        max_bytes: int | None = None,  # noqa: ARG002 - nothing is moved
    ) -> list[Fetched]:
        """Return what lies in a folder, which is here already; see Node.fetch."""
        with self._files(remote):
            paths = [
                path
                for path in sorted(local.rglob("*"))
                if path.is_file() and not path.is_symlink()
            ]
            return [
                Fetched(path.relative_to(local).as_posix(), path.stat().st_size, file_sha256(path))
                for path in paths
            ]

    def exchange(self, argv: Sequence[str], lines: Sequence[str]) -> list[Exchange]:
        """Ask a program line by line; see Node.exchange."""
        process = self._start(
            argv, None, None, subprocess.PIPE, subprocess.PIPE, subprocess.DEVNULL
        )
        try:
            return ask(process, lines)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NodeError(
                f"{argv[0]} ended before it had answered: {error}",
                f"node {self._name}: {' '.join(argv)[:500]}",
                "run that command by hand and see what it says",
            ) from error

    def write_text(self, remote: str, text: str) -> None:
        """Write a file atomically, making its folder."""
        with self._files(remote):
            write_text_atomic(Path(remote), text)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ProcessId:
        """Start a program in a session of its own; see Node.spawn."""
        with self._files(log):
            Path(log).parent.mkdir(parents=True, exist_ok=True)
            target = open(log, "ab", opener=private)  # noqa: SIM115 - closed below
        with target:
            process = self._start(argv, env, cwd, subprocess.DEVNULL, target, subprocess.STDOUT)
        self._children[process.pid] = process
        # Not collected yet, so that even a program that ended at once still has its identity.
        identity = identify(process.pid)
        if identity is None:
            raise NodeError(
                f"process {process.pid} vanished when it was started",
                f"node {self._name}: {' '.join(argv)[:500]}",
                "see that /proc is mounted and shows the processes of this user",
            )
        return identity

    def alive(self, process: ProcessId) -> bool:
        """Say whether exactly this process still runs."""
        child = self._children.get(process.pid)
        if child is not None and child.poll() is not None:
            del self._children[process.pid]
        return process.boot_id == machine_boot_id() and is_alive(process.pid, process.start)

    def stop(self, process: ProcessId, grace_s: float) -> bool:
        """Send TERM, wait, then kill what is left of its session; see Node.stop."""
        if process.boot_id != machine_boot_id():
            return True
        if self.alive(process):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            self._wait(process, grace_s)
        for pid in remains(process.pid, process.start):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self._wait(process, AFTER_KILL_S)

    def agent_argv(self, *args: str) -> list[str]:
        """Return the argv that runs the on-node program with these arguments."""
        with self._installing:
            if self._agent is None:
                name, data = build_agent()
                target = self._agent_dir / name
                with self._files(str(target)):
                    if not target.is_file() or target.read_bytes() != data:
                        target.parent.mkdir(parents=True, exist_ok=True)
                        temporary = target.with_name(f".{name}.{os.getpid()}.tmp")
                        temporary.write_bytes(data)
                        temporary.replace(target)
                self._agent = target
        return [self._python, str(self._agent), *args]

    def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str | None,
        stdin: int,
        stdout: int | IO[bytes],
        stderr: int,
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                list(argv),
                env={**os.environ, "LC_ALL": "C", **(env or {})},
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise NodeError(
                f"cannot start {argv[0]}: {error.strerror}",
                f"node {self._name}: {error.filename or argv[0]}",
                "install the program, or correct its path or its working folder",
            ) from error

    def _wait(self, process: ProcessId, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive(process) or remains(process.pid, process.start):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _copy(self, source: Path, target: Path) -> None:
        with self._files(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            try:
                shutil.copy2(source, temporary)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

    @contextmanager
    def _files(self, where: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise NodeError(
                f"file operation failed: {error.strerror}",
                f"node {self._name}: {error.filename or where}",
                "see that the file exists, the disk has room and this user may access it",
            ) from error


def _bounded(handle: BinaryIO) -> bytes:
    """Return what a file holds, at most one byte more than may be read.

    In pieces: below /proc/sys the kernel refuses one read of many megabytes (ENOMEM).
    """
    pieces: list[bytes] = []
    left = MAX_OUTPUT_BYTES + 1
    while left and (piece := handle.read(min(left, READ_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
