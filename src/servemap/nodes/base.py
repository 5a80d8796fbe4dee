"""What every transport to a node offers; argv lists only, never a shell line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from servemap.model.errors import NodeError

PIECE_BYTES = 4 << 20
"""What is read of a growing file at once."""
MAX_OUTPUT_BYTES = 64 << 20
"""What a program may print, and a file hold that is read at once."""


def too_much(what: str, where: str) -> NodeError:
    """Return the error for a program or a file of more bytes than are taken."""
    return NodeError(
        f"{what}: more than {MAX_OUTPUT_BYTES >> 20} MiB are not taken",
        where,
        "see what writes that much there",
    )


@dataclass(frozen=True)
class Completed:
    """A command that ended; `code` is negative for a signal, as in subprocess."""

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True)
class ProcessId:
    """One process for ever: pid, start (ticks, /proc/PID/stat) and the machine's boot id."""

    pid: int
    start: int
    boot_id: str


@dataclass(frozen=True)
class Exchange:
    """A line sent to a program on the node and its answer; times by the clock of this machine."""

    sent_ns: int
    answer: str
    received_ns: int


@dataclass(frozen=True)
class Fetched:
    """A file that came from a node.

    Attributes:
        path: its name below the folder, with `/`.
        size: bytes.
        sha256: digest of the bytes that arrived, which the node's own digest equals.
        changed: whether the node saw the file change while it was read.
    """

    path: str
    size: int
    sha256: str
    changed: bool = False


class Node(Protocol):
    """One machine. Every method raises NodeError when the node itself does not do its part.

    A connection that breaks or cannot be made is a ConnectionLostError; the next call tries to
    connect anew. Methods may be called from several threads.
    """

    @property
    def name(self) -> str:
        """The node's name in the campaign."""

    @property
    def here(self) -> bool:
        """Whether this process runs on that machine, so that their files are the same."""

    @property
    def python(self) -> str:
        """The interpreter that runs the on-node program there."""

    def state_dir(self) -> str:
        """Return the folder on the node for files of servemap and this user."""

    def close(self) -> None:
        """Close the connection; what was started there goes on."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002 - subprocess' own word
        cwd: str | None = None,
    ) -> Completed:
        """Run a program to its end with LC_ALL=C and `env` added to the node's environment.

        A non-zero exit is an answer, not an error. After `timeout_s` the program and its children
        are killed and NodeError is raised, as it is for a program that is not there and for one
        that prints more than MAX_OUTPUT_BYTES.
        """

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the node; its readers see the old one or the whole new one."""

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from the node; its readers see the old one or the whole new one."""

    def read_text(self, remote: str) -> str | None:
        """Return the text of a file of at most MAX_OUTPUT_BYTES, None when there is none."""

    def read_since(self, remote: str, offset: int, max_bytes: int = PIECE_BYTES) -> bytes:
        """Return what a file holds from `offset` on, at most `max_bytes` of it.

        That is nothing where it is shorter or not there.
        """

    def write_text(self, remote: str, text: str) -> None:
        """Write a file atomically, making its folder."""

    def fetch(self, remote: str, local: Path, *, max_bytes: int | None = None) -> list[Fetched]:
        """Bring the regular files below a folder of the node into a folder here.

        Each file is written whole and atomically, with its time of change, and its digest is
        compared with the node's. Files that are here already with the same size, time and digest
        may be left as they are. Links and special files are passed over; no path leaves `local`.
        Where both are the same folder nothing is moved.

        Raises:
            NodeError: there is no such folder, it holds more than `max_bytes`, or a digest differs.
        """

    def exchange(self, argv: Sequence[str], lines: Sequence[str]) -> list[Exchange]:
        """Run a program that answers each line of its stdin with one line, one after the other."""

    def spawn(
        self,
        argv: Sequence[str],
        *,
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> ProcessId:
        """Start a program that outlives the controller; stdout and stderr are appended to `log`."""

    def alive(self, process: ProcessId) -> bool:
        """Say whether exactly this process still runs; a zombie does not."""

    def stop(self, process: ProcessId, grace_s: float) -> bool:
        """Send TERM, wait `grace_s`, then kill it and its session; say whether all is gone.

        A supervisor needs a longer grace than the one it gives to its server.
        """

    def agent_argv(self, *args: str) -> list[str]:
        """Return the argv that runs the on-node program there with these arguments."""
