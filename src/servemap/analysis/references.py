"""What the telemetry of a repeat is held against: the reference of its case.

That is the first valid repeat of the same case in the first variant that its own is compared with
and that has one. Of a variant that is compared with none (the baseline) it is the first case of
the same shape that has a valid repeat, so that it shows what rises with the load; this case itself
has none. Cases are of one shape where they differ in nothing but their load and how they are run.
The watched cases of a compared watching are of one shape with their unwatched one alone. An
injected segment of such a variant is held against its own control.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from servemap.analysis.metrics import CONTROL, INJECTED
from servemap.analysis.parts import WHOLE
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import change_percent
from servemap.analysis.telemetry_rows import SeriesRow
from servemap.model.canon import canonical_json
from servemap.model.watching import watched_with
from servemap.parsers.values import text

_LOAD_KEYS = frozenset(
    (
        "id", "concurrency", "rate_rps", "num_prompts", "min_window_s", "repeats", "watching",
        "warmup", "cache", "request_timeout_s", "case_timeout_s", "expect", "expected_s",
    )
)  # fmt: skip
"""Keys of a case that say how much load there is and how the case is run, not what is asked."""

Place = tuple[str, str, str, str, str, str]
"""Segment, part, node, collector, entity, metric."""


class Change(NamedTuple):
    """A mean beside that of the reference: where that is, its value, and the change."""

    reference: str
    reference_mean: float
    change: float
    change_pct: float | None


Means = Mapping[Place, float]


class Measured(NamedTuple):
    """The rows of a repeat with their means, and those of its reference, None where it has none.

    `first`: it has none since it is of the first case of its shape, whose variant is compared with
    none.
    """

    repeat: Repeat
    rows: list[SeriesRow]
    means: Means
    reference: Repeat | None
    reference_means: Means
    first: bool

    def change(self, row: SeriesRow) -> Change | None:
        """Return how a row's mean differs from the reference's; None where one is missing."""
        if row.figures.mean is None:
            return None
        reference, means = self.reference, self.reference_means
        names = [text(s.get("name")) for s in self.repeat.segments]
        own = reference is None or reference.variant == self.repeat.variant
        if own and row.segment == INJECTED and CONTROL in names:
            return _change(self.repeat, self.means, CONTROL, row, row.figures.mean)
        if reference is None:
            return None
        known = [text(s.get("name")) for s in reference.segments]
        headline = text(reference.headline.get("name")) or ""
        segment = row.segment if row.segment in known else headline
        return _change(reference, means, segment, row, row.figures.mean)


def measured(
    repeats: Sequence[Repeat],
    comparable: Mapping[str, Sequence[str]],
    rows_of: Callable[[Repeat], list[SeriesRow]],
) -> Iterator[Measured]:
    """Yield every repeat with its rows and its reference; of one repeat at a time all is held.

    Args:
        repeats: in the planned order.
        comparable: for each variant those that it may be compared with, the best first.
        rows_of: gives the rows of a repeat.
    """
    held_against = references(repeats, comparable)
    wanted = {id(one) for one in held_against if one is not None}
    means: dict[int, Means] = {}
    for repeat, reference in zip(repeats, held_against, strict=True):
        rows = rows_of(repeat)
        own = _means(rows)
        if id(repeat) in wanted:
            means.setdefault(id(repeat), own)
        if reference is not None and id(reference) not in means:
            means[id(reference)] = _means(rows_of(reference))
        theirs = {} if reference is None else means[id(reference)]
        first = repeat.valid and reference is None and not comparable.get(repeat.variant)
        yield Measured(repeat, rows, own, reference, theirs, first)


def references(
    repeats: Sequence[Repeat], comparable: Mapping[str, Sequence[str]]
) -> list[Repeat | None]:
    """Return the reference of each repeat; see `measured`."""
    first: dict[tuple[str, str], Repeat] = {}
    begins: dict[tuple[str, str], Repeat] = {}
    for repeat in repeats:
        if repeat.valid:
            first.setdefault((repeat.variant, repeat.case), repeat)
            begins.setdefault((repeat.variant, _shape(repeat)), repeat)
    found: list[Repeat | None] = []
    for repeat in repeats:
        others = comparable.get(repeat.variant, ())
        named = (first.get((variant, repeat.case)) for variant in others)
        reference = next((one for one in named if one is not None), None)
        if not others:
            begin = begins.get((repeat.variant, _shape(repeat)))
            reference = None if begin is None or begin.case == repeat.case else begin
        found.append(reference)
    return found


def _shape(repeat: Repeat) -> str:
    """Return what the cases have in common that are held against each other."""
    spec = {key: value for key, value in repeat.spec.items() if key not in _LOAD_KEYS}
    return canonical_json([spec, watched_with(repeat.case, repeat.spec.get("watching"))])


def _means(rows: Sequence[SeriesRow]) -> Means:
    return {
        (row.segment, row.part, row.node, row.collector, row.entity, row.metric): row.figures.mean
        for row in rows
        if row.figures.mean is not None
    }


def _change(
    repeat: Repeat, means: Means, segment: str, row: SeriesRow, mean: float
) -> Change | None:
    series = (row.node, row.collector, row.entity, row.metric)
    before = means.get((segment, row.part, *series), means.get((segment, WHOLE, *series)))
    if before is None:
        return None
    name = f"{repeat.variant}/{repeat.case} r{repeat.repeat} {segment}"
    return Change(name, before, mean - before, change_percent(before, mean))
