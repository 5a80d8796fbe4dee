"""A load that was started, as its attempt remembers it."""

from dataclasses import dataclass, field
from typing import Any

from servemap.measure.clocks import Measured
from servemap.nodes.base import ProcessId
from servemap.server.launch.served import Served


@dataclass(frozen=True)
class Load:
    """A load that was started; `collectors` and `clocks` (see `clocks.Measured`) by node.

    `id` is in all that it leaves behind; `fallback` says why its lengths are not the planned ones;
    `cards` is who was on the nodes' cards when it began (see `cards.look_at_cards`).
    """

    id: str
    served: Served
    client: ProcessId
    collectors: dict[str, ProcessId]
    clocks: dict[str, Measured]
    fallback: dict[str, Any] | None = None
    overhead: dict[str, float] = field(default_factory=dict)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)


def noted_load(opening: dict[str, Any]) -> Load | None:
    """Return the load that an attempt's opening names; None where it names no whole one.

    A probe of a search is none: a killed search starts again.
    """
    if "probe" in opening:
        return None
    try:
        return Load(
            str(opening["load_id"]),
            Served(**opening["served"]),
            ProcessId(**opening["client"]),
            {name: ProcessId(**noted) for name, noted in opening["collectors"].items()},
            {name: dict(noted) for name, noted in opening["clocks"].items()},
            opening["fallback"],
            cards=dict(opening.get("cards") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
