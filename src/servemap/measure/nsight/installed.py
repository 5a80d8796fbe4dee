"""What Nsight Systems is installed on a node or in an image, and how its failures are named."""

from typing import Literal

from servemap.engines import nsys
from servemap.engines.nsys import Version
from servemap.model.errors import NodeError, ServemapError
from servemap.nodes.base import Node

State = Literal["checked", "launched", "started", "stopped", "collected", "exported"]

ASK_S = 30.0
WORDS = 300


class NsysError(ServemapError):
    """A step of Nsight Systems failed; `state` is the one that was not reached."""

    def __init__(self, state: State, what: str, where: str, remedy: str) -> None:
        super().__init__(what, where, remedy)
        self.state = state


def check(node: Node, tool: list[str], where: str) -> Version:
    """Return the version of an installation, which is called with `tool`.

    Raises:
        NsysError: it is not there, is too old, or traces nothing that is of use.
    """
    try:
        said = node.run([*tool, "--version"], timeout_s=ASK_S)
        asked = node.run([*tool, "launch", "--help"], timeout_s=ASK_S)
    except NodeError as error:
        raise _missing(error.what, where) from error
    version = nsys.read_version(said.stdout + said.stderr, asked.stdout + asked.stderr)
    if version is None:
        raise _missing(last_words(said.stdout, said.stderr) or "it says no version", where)
    least = ".".join(map(str, nsys.LEAST))
    if version.too_old:
        raise NsysError(
            "checked",
            f"Nsight Systems {version.text} is older than {least}",
            where,
            "install a newer one there; `program` of the capture may name its path",
        )
    if "cuda" not in version.traces and "nvtx" not in version.traces:
        raise NsysError(
            "checked",
            f"Nsight Systems {version.text} says of no trace that it knows it",
            where,
            f"see what `{' '.join(tool)} launch --help` says of --trace",
        )
    return version


def _missing(why: str, where: str) -> NsysError:
    return NsysError(
        "checked",
        f"there is no Nsight Systems: {why[-WORDS:]}",
        where,
        "install nsight-systems-cli there (in the image for a server in a container), or name its "
        "path as `program` of the capture",
    )


def last_words(*said: str) -> str:
    """Return the last line that a tool said, of its output and errors in this order."""
    lines = [line.strip() for words in said for line in words.splitlines() if line.strip()]
    return lines[-1][-WORDS:] if lines else ""
