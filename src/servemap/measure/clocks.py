"""The clocks of a case's nodes, measured at its start and at its end."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servemap.nodes.base import Node
from servemap.nodes.clock import ClockOffset, between, measure_clock
from servemap.telemetry.clock import Reading, clock_record, step_ns

Measured = dict[str, int]
"""A node's clock against this machine's: `offset_ns`, `error_ns`, and `at_ns` on ours."""


def read_clock(node: Node) -> Measured:
    """Return how far a node's clock is from ours now; see `nodes.clock.measure_clock`."""
    found = measure_clock(node)
    return {"offset_ns": found.offset_ns, "error_ns": found.error_ns, "at_ns": time.time_ns()}


def clock_records(
    start: Mapping[str, Measured], end: Mapping[str, Measured], head: str, telemetry: Path
) -> dict[str, dict[str, Any]]:
    """Return meta.json's `clock`: every node against the head, from two measurements.

    Args:
        start: by node, the head among them.
        end: the same nodes again.
        head: the head's name.
        telemetry: the attempt's raw/telemetry, for the steps that the collectors saw.
    """
    steps = {name: step_ns(telemetry / name) for name in start}
    return {
        name: clock_record(
            _reading(name, start, head),
            _reading(name, end, head),
            steps[name],
            steps[head],
            head,
        )
        for name in start
    }


def _reading(name: str, measured: Mapping[str, Measured], head: str) -> Reading:
    reference = _offset(measured[head])
    found = ClockOffset(0, 0) if name == head else between(_offset(measured[name]), reference)
    return Reading(found.offset_ns, found.error_ns, measured[name]["at_ns"] + reference.offset_ns)


def _offset(measured: Measured) -> ClockOffset:
    return ClockOffset(measured["offset_ns"], measured["error_ns"])
