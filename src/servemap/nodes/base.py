"""What every transport to a node offers; argv lists only, never a shell line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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


class Node(Protocol):
    """One machine. Every method raises NodeError when the node itself does not do its part."""

    @property
    def name(self) -> str:
        """The node's name in the campaign."""

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
        are killed and NodeError is raised, as it is for a program that is not there.
        """

    def put(self, local: Path, remote: str) -> None:
        """Copy a file to the node; its readers see the old one or the whole new one."""

    def get(self, remote: str, local: Path) -> None:
        """Copy a file from the node; its readers see the old one or the whole new one."""

    def read_text(self, remote: str) -> str | None:
        """Return the text of a file, None when there is none."""

    def write_text(self, remote: str, text: str) -> None:
        """Write a file atomically, making its folder."""

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
