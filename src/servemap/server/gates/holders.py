"""What holds a node's cards and ports or is left of a server there, as the agent tells it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from servemap.model.errors import NodeError
from servemap.nodes.agent_json import agent_json
from servemap.nodes.base import Node
from servemap.onnode.holders import read_holders
from servemap.server.gates.ports import NodeView, parse_view

HOLDERS_TIMEOUT_S = 180.0
SUDO = ("sudo", "-n")


@dataclass(frozen=True)
class Card:
    """An accelerator; its memory in bytes, None where the tool does not say it."""

    vendor: str
    card: str
    used_bytes: int | None
    total_bytes: int | None

    @property
    def name(self) -> str:
        """The card in words."""
        return f"{self.vendor} card {self.card}"


@dataclass(frozen=True)
class CardProcess:
    """A process on a card; `card` is None where the tool does not say which."""

    vendor: str
    card: str | None
    pid: int
    used_bytes: int | None
    name: str


@dataclass(frozen=True)
class BootContainer:
    """A running container that carries the label of a start of a server."""

    id: str
    name: str
    runtime: str
    boot_id: str


@dataclass(frozen=True)
class Holders:
    """What is on a node at one moment.

    Attributes:
        view: processes and listening sockets.
        cards: what the vendors' tools say of the memory.
        processes: what they say of processes on the cards.
        failed: {tool: reason} of tools that are there and fail.
        devices: by pid, {device file that it has open: whether only computing opens it}.
        hidden: number of processes that the user may not look into.
        boots: by pid, the start of a server that it belongs to, of this run or another one.
        known: the starts that the run's folder on the node tells of.
        containers: running containers with our label.
    """

    view: NodeView
    cards: list[Card] = field(default_factory=list)
    processes: list[CardProcess] = field(default_factory=list)
    failed: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[int, Mapping[str, bool]] = field(default_factory=dict)
    hidden: int = 0
    boots: Mapping[int, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    containers: list[BootContainer] = field(default_factory=list)


def look(node: Node, workdirs: Sequence[str], *, become: bool = False) -> Holders:
    """Return what is on a node.

    Args:
        node: the node.
        workdirs: the run's folders there, which tell of the starts that are ours.
        become: look with `sudo -n`, which also shows what belongs to other users.

    Raises:
        NodeError: the agent did not answer, or sudo wants a password.
    """
    if node.here and not become:
        return parse_holders(read_holders(list(workdirs)))
    args = [word for workdir in workdirs for word in ("--workdir", workdir)]
    prefix = SUDO if become else ()
    data = agent_json(node, "holders", *args, timeout_s=HOLDERS_TIMEOUT_S, prefix=prefix)
    try:
        return parse_holders(data)
    except ValueError as error:
        raise NodeError(
            f"the agent's list of holders cannot be read: {error}",
            f"{node.name}: holders",
            "see what the login shell of that user prints; nothing else may write to stdout",
        ) from error


def parse_holders(data: Any) -> Holders:
    """Return what the on-node program gave (see `onnode/holders.py`).

    Raises:
        ValueError: it is of another shape.
    """
    try:
        return Holders(
            parse_view(data["view"]),
            [_card(row) for row in data["cards"]],
            [_process(row) for row in data["processes"]],
            {**_texts(data["failed"]), **_texts(data["containers_failed"])},
            {
                int(pid): {str(path): bool(computes) for path, computes in files.items()}
                for pid, files in data["devices"].items()
            },
            int(data["hidden"]),
            {int(pid): str(boot) for pid, boot in data["boots"].items()},
            frozenset(str(boot) for boot in data["known"]),
            [
                BootContainer(
                    str(row["id"]), str(row["name"]), str(row["runtime"]), str(row["boot_id"])
                )
                for row in data["containers"]
            ],
        )
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"not a list of holders ({error})") from error


def _card(row: Any) -> Card:
    return Card(
        str(row["vendor"]),
        str(row["card"]),
        _number(row["used_bytes"]),
        _number(row["total_bytes"]),
    )


def _process(row: Any) -> CardProcess:
    card = row["card"]
    return CardProcess(
        str(row["vendor"]),
        None if card is None else str(card),
        int(row["pid"]),
        _number(row["used_bytes"]),
        str(row["name"]),
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _texts(data: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in data.items()}
