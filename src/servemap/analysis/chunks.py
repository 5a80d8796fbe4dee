"""Which events of many answers brought how many tokens, computed over all of them at once.

The arrays are flat: one value an event or chunk, in the order of the answers, with the number of
its answer beside it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.analysis.raw_requests import NO_COUNT, NO_TIME, Ints

Mask = NDArray[np.bool_]

# A first chunk hides tokens when it brings more than this many and more than twice what the
# following chunks bring: then the time before it is decode time too.
HIDDEN_TOKENS = 4
HIDDEN_RATIO = 2.0

# One answer's counts stay below this, so that a running maximum never crosses to the next answer.
_SPAN = 33

_EMPTY, _USAGE, _ERROR, _DONE = b"rued"
_REASONING = ord("k")
_CALL = ord("c")
_CARRYING = np.zeros(256, np.bool_)
_CARRYING[list(b"tkc")] = True


class EventTable(NamedTuple):
    """Events of `answers` answers: arrival (ns), kind letter (byte), cumulative count, answer."""

    t_ns: Ints
    kinds: NDArray[np.uint8]
    counts: Ints
    owner: Ints
    answers: int


class ChunkTable(NamedTuple):
    """Token-carrying chunks of all answers, and one flag mask an answer.

    Attributes:
        t_ns: arrival of each chunk, never running backwards within an answer.
        tokens: tokens that it brought, at least one.
        owner: number of its answer.
        estimated: tokens are the total spread evenly.
        last_ns: by answer, its last chunk, or what came behind it without a token of its own.
        contradicted: the counts on the events are not those of the total; it stands.
        more_events: more events that carry a token than the server counted tokens.
        invisible: the only chunk is an empty event, an upper bound.
        backwards: times ran backwards; such an answer has no chunks.
        several: a chunk behind the first brought more than one token.
        hidden: the first chunk hides tokens, or may.
    """

    t_ns: Ints
    tokens: Ints
    owner: Ints
    last_ns: Ints
    estimated: Mask
    contradicted: Mask
    more_events: Mask
    invisible: Mask
    backwards: Mask
    several: Mask
    hidden: Mask


def token_chunks(events: EventTable, output_tokens: Ints, reasoning_tokens: Ints) -> ChunkTable:
    """Return the chunks of all answers.

    Where every token-carrying event has the server's cumulative count, a chunk is an event at which
    the count grew. Elsewhere, and where those counts shrink, do not end at the total or have the
    total on the first event already, each text, reasoning or tool event is one, with the total
    spread evenly; reasoning that was counted and never sent came before the first. A call begins
    with its name, which parsers hold back until it is whole: what is counted beside its events may
    all have come before the first (vLLM 0.32.0, a recorded stream: 28 of 48 tokens).

    Args:
        events: r role or empty, t text, k reasoning, c tool call, u usage, e error, d end.
        output_tokens: the server's total by answer, NO_COUNT where it never said.
        reasoning_tokens: the part of the total that was reasoning, NO_COUNT where it never said.
    """
    answers = events.answers
    reasoned = _have(events.owner, events.kinds == _REASONING, answers)
    kept = (events.t_ns != NO_TIME) & (events.kinds != _DONE) & (events.kinds != _ERROR)
    t_ns, kinds = events.t_ns[kept], events.kinds[kept]
    counts, owner = events.counts[kept], events.owner[kept]
    carrying = _CARRYING[kinds]
    # A count of 0 beside a token says no more than none.
    untold = _have(owner, carrying & (counts < 1), answers)
    growing = _have(owner, (kinds != _USAGE) & (counts > 0), answers)
    tokens, shrinks = _counted(kinds, counts, owner)
    starts = np.flatnonzero(begins(owner))
    most, carriers, steps = (
        _totals(values, starts, owner, answers) for values in (tokens, carrying, tokens > 0)
    )
    told = output_tokens != NO_COUNT
    counted = growing & ~untold
    contradicted = _have(owner, shrinks, answers) | (told & (most > output_tokens))
    contradicted |= counted & told & (most != output_tokens)
    at_once = (steps == 1) & (carriers > 1) & (most >= carriers)
    counted &= ~contradicted & ~at_once
    more_events = told & (carriers > output_tokens)
    if counted.all():
        none = np.zeros(answers, np.bool_)
        flags = _Flags(none, contradicted, more_events, none, none)
        return _judged(t_ns, tokens, owner, carrying, flags)
    plain = np.flatnonzero(carrying & ~counted[owner])
    tokens[~counted[owner]] = 0
    visible = np.bincount(owner[plain], minlength=answers)
    missing = np.clip(reasoning_tokens, 0, np.maximum(output_tokens - visible, 0))
    before = np.where(reasoned | (output_tokens == NO_COUNT), 0, missing)
    totals = np.where(told, output_tokens - before, NO_COUNT)
    estimated = _spread(tokens, plain, owner, visible, totals)
    firsts = plain[begins(owner[plain])]
    tokens[firsts] += before[owner[firsts]]
    called = _have(owner[firsts], kinds[firsts] == _CALL, answers)
    named = called & estimated & (output_tokens - before - visible >= HIDDEN_TOKENS)
    invisible = ~counted & (visible == 0) & (output_tokens > 0)
    invisible &= _last_empty(tokens, invisible, kinds, owner, output_tokens)
    flags = _Flags(estimated, contradicted, more_events, invisible, named)
    return _judged(t_ns, tokens, owner, carrying, flags)


def _totals(values: Ints | Mask, starts: Ints, owner: Ints, answers: int) -> Ints:
    """Return the sum of each answer's values, which begin at `starts`."""
    result = np.zeros(answers, np.int64)
    result[owner[starts]] = np.add.reduceat(values, starts, dtype=np.int64)
    return result


class _Flags(NamedTuple):
    """Masks by answer, as in ChunkTable; `named`: a call whose name held tokens back."""

    estimated: Mask
    contradicted: Mask
    more_events: Mask
    invisible: Mask
    named: Mask


def _counted(kinds: NDArray[np.uint8], counts: Ints, owner: Ints) -> tuple[Ints, Mask]:
    """Return by how much an answer's cumulative count grew at each event, and where it shrank.

    Growth is over all counts before it; of an answer it adds up to the largest count.
    """
    floor = owner << _SPAN
    reached = np.maximum.accumulate(floor + np.maximum(counts, 0))
    gain: Ints = reached - floor
    shrinks = (counts != NO_COUNT) & (counts < gain)
    gain[1:] -= np.maximum(reached[:-1] - floor[1:], 0)
    usage = (kinds == _USAGE) & (gain > 0)
    if usage.any():
        # The usage event states a total; it has no token of its own, if there is a chunk before.
        at = np.flatnonzero(gain > 0)
        own = ~usage[at] | begins(owner[at])
        whole = np.add.reduceat(gain[at], np.flatnonzero(own))
        gain[at] = 0
        gain[at[own]] = whole
    return gain, shrinks


def _spread(tokens: Ints, plain: Ints, owner: Ints, chunks: Ints, totals: Ints) -> Mask:
    """Spread each answer's total over its chunks as evenly as whole tokens allow.

    Return which answers' tokens are estimated so.
    """
    estimated = totals > chunks
    estimated &= chunks > 0
    tokens[plain] = 1
    uneven = plain[estimated[owner[plain]]]
    if uneven.size:
        whose = owner[uneven]
        place = np.arange(uneven.size) - np.flatnonzero(begins(whose))[_ranks(whose)]
        total, parts = totals[whose], chunks[whose]
        tokens[uneven] = (place + 1) * total // parts - place * total // parts
    return estimated


def _last_empty(
    tokens: Ints, wanted: Mask, kinds: NDArray[np.uint8], owner: Ints, output_tokens: Ints
) -> Mask:
    """Give tokens that never showed to the last empty event, or to the first usage event.

    That is when they were certainly there: an upper bound. Return which answers have one.
    """
    found = np.zeros(wanted.size, np.bool_)
    if not wanted.any():
        return found
    usage = np.flatnonzero((kinds == _USAGE) & wanted[owner])
    empty = np.flatnonzero((kinds == _EMPTY) & wanted[owner])
    place = np.full(wanted.size, -1, np.int64)
    place[owner[usage[::-1]]] = usage[::-1]
    place[owner[empty]] = empty
    found = place >= 0
    tokens[place[found]] = output_tokens[found]
    return found


def _judged(t_ns: Ints, tokens: Ints, owner: Ints, carrying: Mask, flags: _Flags) -> ChunkTable:
    answers = flags.invisible.size
    chunk = tokens > 0
    # Text may come without growth of the count: held back, or split from its token.
    alive = chunk | carrying
    t_ns, tokens, owner = t_ns[alive], tokens[alive], owner[alive]
    starts = begins(owner)
    back = ~starts[1:] & (t_ns[1:] < t_ns[:-1])
    backwards = _have(owner[1:], back, answers)
    last_ns = np.full(answers, NO_TIME)
    ends = np.append(starts[1:], True)[: owner.size]
    last_ns[owner[ends]] = t_ns[ends]
    last_ns[backwards] = NO_TIME
    chunk = chunk[alive]
    if not chunk.all():
        t_ns, tokens, owner = t_ns[chunk], tokens[chunk], owner[chunk]
        starts = begins(owner)
    if backwards.any():
        whole = ~backwards[owner]
        t_ns, tokens, owner, starts = t_ns[whole], tokens[whole], owner[whole], starts[whole]
    several = _have(owner, ~starts & (tokens > 1), answers)
    hidden = _hides(tokens, owner, starts, answers) | (flags.named & ~backwards)
    hidden &= ~flags.invisible
    return ChunkTable(
        t_ns,
        tokens,
        owner,
        last_ns,
        flags.estimated & ~backwards,
        flags.contradicted,
        flags.more_events,
        flags.invisible & ~backwards,
        backwards,
        several,
        hidden,
    )


def _hides(tokens: Ints, owner: Ints, starts: Mask, answers: int) -> Mask:
    """Say whose first chunk brings more than HIDDEN_TOKENS and HIDDEN_RATIO x the others' median.

    The median of n values is below a limit if more than half of them are; where it is exactly half,
    the mean of the two in the middle decides.
    """
    first = np.zeros(answers, np.int64)
    first[owner[starts]] = tokens[starts]
    many = first > HIDDEN_TOKENS
    if not many.any():
        return many
    rest = np.flatnonzero(~starts & many[owner])
    whose = owner[rest]
    below = np.bincount(whose[tokens[rest] * HIDDEN_RATIO < first[whose]], minlength=answers)
    size = np.bincount(whose, minlength=answers)
    hides: Mask = many & ((size == 0) | (2 * below > size))
    for answer in np.flatnonzero(many & (2 * below == size) & (size > 0)):
        usual = float(np.median(tokens[rest[whose == answer]]))
        hides[answer] = first[answer] > HIDDEN_RATIO * usual
    return hides


def _have(owner: Ints, values: Mask, answers: int) -> Mask:
    """Say of each answer whether it has a value that is true."""
    found = np.zeros(answers, np.bool_)
    found[owner[values]] = True
    return found


def begins(owner: Ints) -> Mask:
    """Say of each value whether it is the first of its answer."""
    first = np.ones(owner.size, np.bool_)
    np.not_equal(owner[1:], owner[:-1], out=first[1:])
    return first


def _ranks(owner: Ints) -> Ints:
    """Return the place of each value's answer among those that have values."""
    return np.cumsum(begins(owner)) - 1


def sizes(owner: Ints, answers: int) -> Ints:
    """Return how many values each answer has."""
    return np.bincount(owner, minlength=answers)


def touched(begin_ns: Ints, end_ns: Ints, intervals: Sequence[tuple[int, int]]) -> Mask:
    """Say of each gap between two moments whether it overlaps one of the intervals."""
    ordered = sorted(intervals)
    starts = np.array([begin for begin, _ in ordered], np.int64)
    # The latest end of all intervals that began so far: the last one begun need not be the longest.
    ends = np.maximum.accumulate(np.array([end for _, end in ordered], np.int64))
    before = np.searchsorted(starts, end_ns, side="left")
    result = before > 0
    result[result] = ends[before[result] - 1] > begin_ns[result]
    return result
