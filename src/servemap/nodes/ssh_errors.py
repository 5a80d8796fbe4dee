"""What can go wrong on the way to a node, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.ssh_command import MISSING
from servemap.onnode.redact import redact_text

FULL = ("No space left on device", "Disk quota exceeded")


@dataclass(frozen=True)
class Ended:
    """How a command ended: `code` is negative for a signal; what it wrote after its mark."""

    code: int
    stdout: bytes
    stderr: bytes


def unreachable(where: str, why: str) -> ConnectionLostError:
    """Return the error for a connection that cannot be made."""
    return ConnectionLostError(
        f"cannot connect: {why}",
        where,
        "see that the machine is up and its sshd answers on that address and port",
    )


def lost(where: str, why: str) -> ConnectionLostError:
    """Return the error for a connection that broke."""
    return ConnectionLostError(
        f"the connection was lost: {why}",
        where,
        "see that the machine and the network are up, then start the same command again",
    )


def check_file(node: str, path: str, ended: Ended) -> None:
    """Raise NodeError where a script that reads or writes a file did not do so."""
    if ended.code == 0:
        return
    said = ended.stderr.decode(errors="replace")
    if ended.code == MISSING:
        said = "No such file or directory"
    elif not said.strip():
        said = f"the command ended with {ended.code}"
    full = any(text in said for text in FULL)
    raise NodeError(
        f"file operation failed: {'the disk is full: ' if full else ''}{last_line(said)}",
        f"node {node}: {path}",
        "make room on that disk"
        if full
        else "see that the file exists, the disk has room and this user may access it",
    )


def command_text(argv: Sequence[str]) -> str:
    """Return a command as it may stand in a message."""
    return redact_text(" ".join(argv))[:500]


def last_line(text: str) -> str:
    """Return the last line that says something, redacted and short."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return redact_text(lines[-1])[:300] if lines else "it said nothing"
