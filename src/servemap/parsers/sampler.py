"""Rows of what was sampled to series: gauges, averages and counts since the row before, rates."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.parsers.cells import key
from servemap.parsers.fields import Field, Reading
from servemap.parsers.grown import PENDING, Column, Stamps, steps
from servemap.parsers.series import Floats, Ints, Series
from servemap.parsers.values import text

Row = Mapping[str, Any]


class _Entity:
    """The rows of one entity: a column for each field, and for each name a pattern stands for."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.stamps = Stamps()
        self.columns = [(field, Column(0, field.words)) for field in fields]
        self.shapes: set[tuple[str, ...]] = set()
        self._gather()

    def widen(self, fields: tuple[Field, ...]) -> None:
        """Add columns for fields that were not there before."""
        known = {field for field, _ in self.columns}
        rows = len(self.stamps)
        self.columns += [(f, Column(rows, f.words)) for f in fields if f not in known]
        self._gather()

    def _gather(self) -> None:
        self._single = [(f.fields[0], c.append) for f, c in self.columns if len(f.fields) == 1]
        self._several = [(f.fields, c.append) for f, c in self.columns if len(f.fields) > 1]

    def add(self, row: Row, t_ns: int, mono_ns: int) -> None:
        """Add a row to all columns."""
        get = row.get
        for name, append in self._single:
            append(get(name))
        for names, append in self._several:
            append(next((found for name in names if (found := get(name)) is not None), None))
        self.stamps.add(t_ns, mono_ns)
        if not len(self.stamps) % PENDING:
            for _, column in self.columns:
                column.settle()


class Sampler:
    """Takes rows in the order of time and makes series of them."""

    def __init__(self, reading: Reading, interval_s: float) -> None:
        self._reading = reading
        self._interval_s = interval_s
        self._identity = [name for _, name, _, _ in Formatter().parse(reading.entity) if name]
        self._fixed = tuple(f for f in reading.fields if not f.metric.endswith("*"))
        self._patterns = [f for f in reading.fields if f.metric.endswith("*")]
        self._spread: dict[tuple[Field, str], Field | None] = {}
        self._entities: dict[str, _Entity] = {}
        self.names: dict[str, str] = {}

    def add(self, row: Row, t_ns: int, mono_ns: int) -> str | None:
        """Add a row; return its entity, None where it is of none."""
        for name in self._identity:
            if row.get(name) is None:
                return None
        entity = self._reading.entity.format_map(row).casefold()
        if self._reading.name and (named := text(row.get(self._reading.name))) is not None:
            self.names[entity] = named
        own = self._entities.get(entity)
        if own is None:
            own = self._entities[entity] = _Entity(self._fixed)
        if self._patterns and (shape := tuple(row)) not in own.shapes:
            own.shapes.add(shape)
            own.widen(tuple(self._each(shape)))
        own.add(row, t_ns, mono_ns)
        return entity

    def _each(self, names: tuple[str, ...]) -> Iterator[Field]:
        """Yield a field of its own for every name that a pattern stands for."""
        for field in self._patterns:
            for name in names:
                if (field, name) not in self._spread:
                    wanted = any(fnmatchcase(name, pattern) for pattern in field.fields)
                    left = any(fnmatchcase(name, pattern) for pattern in field.but)
                    metric = field.metric.removesuffix("*") + key(name)
                    own = field._replace(metric=metric, fields=(name,))
                    self._spread[(field, name)] = own if wanted and not left else None
                if (found := self._spread[(field, name)]) is not None:
                    yield found

    def series(self) -> list[Series]:
        """Return all samples so far, by entity, metric and unit."""
        return [one for entity, own in self._entities.items() for one in self._series(entity, own)]

    def _series(self, entity: str, own: _Entity) -> Iterator[Series]:
        times = _Times(*own.stamps.arrays(), self._interval_s)
        found: dict[tuple[str, str], list[_Made]] = {}
        for field, column in own.columns:
            values = column.values()
            if not np.isnan(values).all():
                made = times.made(field, values)
                if made.rows.size:
                    found.setdefault((field.metric, field.unit), []).append(made)
        for (metric, unit), parts in found.items():
            t_ns, from_ns, value = _joined(parts)
            yield Series(entity, metric, unit, t_ns, from_ns, value)


class _Made(NamedTuple):
    """Samples of one column: the rows that they are of, when, since when, and what."""

    rows: Ints
    t_ns: Ints
    from_ns: Ints | None
    value: Floats


def _joined(parts: list[_Made]) -> tuple[Ints, Ints | None, Floats]:
    """Return the samples of several fields of one metric in the order of their rows."""
    if len(parts) == 1:
        return parts[0].t_ns, parts[0].from_ns, parts[0].value
    order = np.concatenate([part.rows for part in parts]).argsort(kind="stable")
    begins = [part.t_ns if part.from_ns is None else part.from_ns for part in parts]
    gauges = all(part.from_ns is None for part in parts)
    return (
        np.concatenate([part.t_ns for part in parts])[order],
        None if gauges else np.concatenate(begins)[order],
        np.concatenate([part.value for part in parts])[order],
    )


class _Span(NamedTuple):
    """Rows with a value, when they came, and what they tell of.

    `from_ns` is None for gauges; `before` are the rows that a counter's are compared with, and
    `length_ns` is the time between both.
    """

    rows: Ints
    t_ns: Ints
    from_ns: Ints | None
    before: Ints
    length_ns: Ints

    def kept(self, rows: NDArray[np.bool_]) -> "_Span":
        """Return some of the rows."""
        begins = None if self.from_ns is None else self.from_ns[rows]
        kept = self.rows[rows], self.t_ns[rows], begins, self.before[rows], self.length_ns[rows]
        return _Span(*kept)


class _Times:
    """The times of an entity's rows; columns that have values in the same rows share arrays."""

    def __init__(self, t_ns: Ints, mono_ns: Ints, interval_s: float) -> None:
        self._t_ns, self._mono_ns = t_ns, mono_ns
        self._interval_s = interval_s
        self._known: dict[tuple[bool, str | None, bytes], _Span] = {}

    def made(self, field: Field, values: Floats) -> _Made:
        """Return the samples of a column: `values` has one a row, NaN where there is none."""
        has_value = ~np.isnan(values)
        place = field.counter, field.over, has_value.tobytes()
        span = self._known.get(place)
        if span is None:
            span = self._known[place] = self._span(field, np.flatnonzero(has_value))
        value = values[span.rows]
        if field.counter:
            value = value - values[span.before]
            rose = value >= 0
            # Where a counter ran backwards nothing is known.
            if not rose.all():
                span = span.kept(rose)
                value = value[rose]
            value = value / (span.length_ns / 1e9)
        elif field.over == "count":
            value = value * 1e9 / span.length_ns
        return _Made(span.rows, span.t_ns, span.from_ns, value * field.scale)

    def _span(self, field: Field, rows: Ints) -> _Span:
        t_ns, mono_ns = self._t_ns[rows], self._mono_ns[rows]
        if field.counter:
            found = steps(mono_ns, self._interval_s / 4)
            before, after = found.before, found.after
            return _Span(rows[after], t_ns[after], t_ns[before], rows[before], found.length_ns)
        if field.over is None:
            return _Span(rows, t_ns, None, rows, mono_ns)
        interval_ns = round(self._interval_s * 1e9)
        lengths = np.diff(mono_ns, prepend=mono_ns[0] - interval_ns)
        if field.over == "count":
            # A count is of one interval, also where the one before it was not counted or lost.
            lengths[lengths > 1.5 * interval_ns] = interval_ns
        later = lengths > 0
        rows, t_ns, lengths = rows[later], t_ns[later], lengths[later]
        return _Span(rows, t_ns, t_ns - lengths, rows, lengths)
