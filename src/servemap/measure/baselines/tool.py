"""What a tool that measures collectives has to know and to say: pure functions and their data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servemap.model.baselines import CollectiveBaseline, rows_of_size, size_bytes


@dataclass(frozen=True)
class Place:
    """A node of a part of a baseline.

    Attributes:
        node: its id.
        address: that the other nodes reach it at.
        ranks: how many run there.
        python: the interpreter for the ranks.
        folder: for the files of this part, on the node and in the container alike.
    """

    node: str
    address: str
    ranks: int
    python: str
    folder: str


@dataclass(frozen=True)
class Part:
    """One measurement of a baseline: some nodes, one value of each variable of its sweep."""

    spec: CollectiveBaseline
    places: tuple[Place, ...]
    settings: Mapping[str, str]
    port: int
    variables: tuple[str, ...] = ()
    """Names of those that nodes and server set for all ranks."""

    @property
    def world(self) -> int:
        """The number of all ranks."""
        return sum(place.ranks for place in self.places)


@dataclass(frozen=True)
class NodeCommand:
    """What is run on one node; `env` is the tool's own, which the spec's replaces.

    Attributes:
        node: where.
        argv: the command.
        env: variables of the tool.
        files: {path on the node: text} that is put there before.
    """

    node: str
    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a command on a node ended.

    Attributes:
        code: its exit status, negative for a signal; None where it was ended from outside.
        reason: why it was ended, in words; None where it ended by itself.
        log: all that it printed.
    """

    code: int | None
    reason: str | None
    log: str


@dataclass(frozen=True)
class Measured:
    """What a tool measured.

    Attributes:
        rows: as of `parsers.communication.torch_ranks.collective_rows`; what a tool does not tell
            is null.
        ranks: of each rank `{rank, node, host, device, ...}`.
        versions: {name: version} of what took part.
        backend: that moved the data: gloo, nccl, rccl.
        problems: why this is no measurement, in words; empty where it is one.
        simulated: whether a recording was replayed.
        extra: further fields of the part's record.
    """

    rows: list[dict[str, Any]]
    ranks: list[dict[str, Any]]
    versions: dict[str, str]
    backend: str | None
    problems: list[str]
    simulated: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """How collectives are measured with one tool.

    Attributes:
        commands: the commands of a part, one a node that starts something; the first is the head's.
        read: what their logs, by node, say; it also judges how the commands ended.
    """

    commands: Callable[[Part], list[NodeCommand]]
    read: Callable[[Part, Mapping[str, Ended]], Measured]


def not_once(part: Part, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in words which operations and sizes have no row of their own, or several."""
    missing, doubled = [], []
    for operation in part.spec.operations:
        taken = 0
        for size in sorted(part.spec.sizes, key=size_bytes):
            found = rows_of_size(rows, operation, size, part.world)
            measured = found[0]["size_bytes"] if found else taken
            label = f"{operation} of {size_bytes(size)} bytes"
            if measured == taken:
                missing.append(label)
            elif len(found) > 1:
                doubled.append(label)
            taken = measured
    return [
        f"{how}: {', '.join(labels)}"
        for how, labels in (("not measured", missing), ("measured more than once", doubled))
        if labels
    ]
