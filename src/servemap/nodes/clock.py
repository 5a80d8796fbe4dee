"""How far the clock of a node is from ours, from questions and answers with their times."""

from collections.abc import Sequence
from dataclasses import dataclass

from servemap.model.errors import NodeError
from servemap.nodes.base import Exchange, Node

EXCHANGES = 16
# What a clock may drift against ours while the exchanges go on: RFC 5905's PHI, 15 ppm.
DRIFT = 15e-6


@dataclass(frozen=True)
class ClockOffset:
    """A node's clock minus the reference's, ns; the truth lies within `error_ns` of it."""

    offset_ns: int
    error_ns: int


HERE = ClockOffset(0, 0)


def clock_offset(exchanges: Sequence[Exchange]) -> ClockOffset:
    """Return a node's clock minus ours from exchanges that the node answered with its epoch ns.

    The offset of one exchange is `((T2 - T1) + (T3 - T4)) / 2` with an error of at most half of
    the round trip (RFC 5905, 8), where T2 = T3 is the answer: the truth lies between answer -
    received and answer - sent. The exchange with the smallest round trip is taken (RFC 5905, 10).
    Its error is widened by what the clocks may drift during all exchanges, and by how far another
    exchange's interval is from the offset: at most that half again, unless a clock was stepped.

    Raises:
        NodeError: no exchange has a time for an answer and a round trip that is not negative.
    """
    usable = [
        (one.sent_ns, int(one.answer), one.received_ns)
        for one in exchanges
        if one.answer.isascii() and one.answer.isdigit() and one.received_ns >= one.sent_ns
    ]
    if not usable:
        raise NodeError(
            "the clock cannot be compared: no question was answered with a time",
            f"answers: {[one.answer for one in exchanges][:3]}",
            "run the on-node program's `clock` by hand and type a line",
        )
    sent, answer, received = min(usable, key=lambda one: one[2] - one[0])
    offset = answer - (sent + received) // 2
    span = max(one[2] for one in usable) - min(one[0] for one in usable)
    outside = max(max(a - r - offset, offset - (a - s), 0) for s, a, r in usable)
    # one for the rounding of the halves
    error = (received - sent + 1) // 2 + 1 + int(DRIFT * max(0, span)) + outside
    return ClockOffset(offset, error)


def measure_clock(node: Node) -> ClockOffset:
    """Return a node's clock minus ours; nothing where the node is this machine."""
    if node.here:
        return HERE
    argv = node.agent_argv("clock")
    return clock_offset(node.exchange(argv, ["?"] * EXCHANGES))


def between(node: ClockOffset, reference: ClockOffset) -> ClockOffset:
    """Return a node's clock minus the reference node's, of two offsets against our clock."""
    return ClockOffset(node.offset_ns - reference.offset_ns, node.error_ns + reference.error_ns)
