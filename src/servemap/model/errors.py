"""Errors for people: what happened, where, and what to do about it."""

from typing import NamedTuple


class ServemapError(Exception):
    """Base of every error that a user may see; printed without a traceback.

    Args:
        what: what happened, one sentence, with the value that was met.
        where: the file, key, node, rule or process it happened at.
        remedy: what to do next.
    """

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(what, where, remedy)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}\n  where: {self.where}\n  remedy: {self.remedy}"


class Said(NamedTuple):
    """A reason in its parts; an error that quotes another one names each place and remedy once."""

    what: str
    where: list[str]
    remedy: list[str]

    @property
    def line(self) -> str:
        """What happened, at which places, and the first remedy, in one line."""
        places = f" ({'; '.join(self.where)})" if self.where else ""
        return f"{self.what}{places}" + (f"; to do: {self.remedy[0]}" if self.remedy else "")


def parts(reason: str) -> Said:
    """Return the parts of a recorded reason, which may be an error's whole text."""
    found = Said("", [], [])
    whats: list[str] = []
    for line in filter(None, (line.strip() for line in reason.splitlines())):
        key, _, rest = line.partition(": ")
        target = {"where": found.where, "remedy": found.remedy}.get(key, whats)
        said = line if target is whats else rest
        if said not in target:
            target.append(said)
    return found._replace(what=" ".join(whats))


class ConfigError(ServemapError):
    """The campaign file asks for something that cannot be run; `where` names the key."""


class ResultsError(ServemapError):
    """A results folder is of another campaign, another schema or damaged."""


class LockedError(ServemapError):
    """Another controller drives this run or this node."""


class NodeError(ServemapError):
    """A node could not be reached or a command could not be run on it."""


class ConnectionLostError(NodeError):
    """The connection to a node broke or cannot be made; what runs there may well go on."""


class UnreachableError(ConnectionLostError):
    """A node gave no answer for as long as the campaign waits for one."""


class PatchError(ServemapError):
    """A patch does not lint, apply, verify or restore."""


class LaunchError(ServemapError):
    """The server did not start or did not pass a gate."""


class ParseError(ServemapError):
    """Raw output that no parser can read; never raised for one bad line among good ones."""


class OrphanedError(Exception):
    """The controller of this job is gone; what runs on the nodes is left to the next one."""
