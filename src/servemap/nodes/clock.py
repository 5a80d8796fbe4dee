"""How far a node's clock is from this machine's, from a few exchanges with it."""

from collections.abc import Sequence
from typing import NamedTuple

from servemap.model.errors import NodeError
from servemap.nodes.base import Exchange, Node

EXCHANGES = 8


class ClockOffset(NamedTuple):
    """A clock minus another one, and the most that this may be wrong by; ns."""

    offset_ns: int
    error_ns: int


def clock_offset(exchanges: Sequence[Exchange]) -> ClockOffset:
    """Return the node's clock minus ours from the exchange with the shortest round trip.

    offset = answer - (sent + received) / 2, error = half of the round trip (RFC 5905, section 8).

    Raises:
        ValueError: there is no exchange, or an answer is no number.
    """
    best = min(exchanges, key=lambda item: item.received_ns - item.sent_ns)
    trip_ns = best.received_ns - best.sent_ns
    return ClockOffset(int(best.answer) - best.sent_ns - trip_ns // 2, (trip_ns + 1) // 2)


def measure_clock(node: Node) -> ClockOffset:
    """Return how far a node's clock is ahead of this machine's; (0, 0) where it is the same.

    Raises:
        NodeError: the node does not answer, or not with its time.
    """
    if node.here:
        return ClockOffset(0, 0)
    found = node.exchange(node.agent_argv("clock"), ["t"] * EXCHANGES)
    try:
        return clock_offset(found)
    except ValueError as error:
        raise NodeError(
            f"the node's agent did not answer with its time: {error}",
            node.name,
            "run `onnode clock` there by hand and see what it says",
        ) from error


def between(node: ClockOffset, reference: ClockOffset) -> ClockOffset:
    """Return a node's clock minus a reference node's, both given against this machine's."""
    return ClockOffset(node.offset_ns - reference.offset_ns, node.error_ns + reference.error_ns)
