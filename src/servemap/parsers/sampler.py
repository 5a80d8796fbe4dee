"""Rows of what was sampled to series: gauges, averages and counts since the row before, rates."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import itemgetter
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.parsers.cells import key
from servemap.parsers.fields import Field, Reading
from servemap.parsers.grown import PENDING, Stamps, matrix, number_or_nan, steps
from servemap.parsers.series import Floats, Ints, Series
from servemap.parsers.values import text

Row = Mapping[str, Any]


class _Rows:
    """The rows of one entity, and the fields that are kept of them."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = list(fields)
        self.stamps = Stamps()
        self.shapes: set[tuple[str, ...]] = set()
        self._pending: list[Row] = []
        self._parts: list[Floats] = []

    def widen(self, fields: Iterable[Field]) -> None:
        """Keep more fields from now on; those that are kept already stay as they are."""
        self._settle()
        self.fields += [field for field in fields if field not in self.fields]

    def add(self, row: Row, t_ns: int, mono_ns: int) -> None:
        """Add a row, which must not change any more."""
        self._pending.append(row)
        self.stamps.add(t_ns, mono_ns)
        if len(self._pending) == PENDING:
            self._settle()

    def _settle(self) -> None:
        if self._pending:
            self._parts.append(_matrix(self._pending, self.fields))
            self._pending = []

    def columns(self) -> Iterator[tuple[Field, Floats]]:
        """Yield each field with its values, one a row, NaN where there is none."""
        self._settle()
        for place, field in enumerate(self.fields):
            yield field, np.concatenate([
                part[:, place] if place < part.shape[1] else np.full(len(part), np.nan)
                for part in self._parts
            ])  # fmt: skip


def _matrix(rows: Sequence[Row], fields: Sequence[Field]) -> Floats:
    """Return the values of fields, of shape (rows, fields), NaN where there is none."""
    found = np.empty((len(rows), len(fields)))
    plain = [place for place, field in enumerate(fields)
             if field.words is None and len(field.fields) == 1]  # fmt: skip
    names = [fields[place].fields[0] for place in plain]
    found[:, plain] = matrix(_cells(rows, names), len(plain))
    for place, field in enumerate(fields):
        if field.words is not None:
            said = map(str, _first(rows, field.fields))
            found[:, place] = [field.words.get(word, math.nan) for word in said]
        elif len(field.fields) > 1:
            found[:, place] = list(map(number_or_nan, _first(rows, field.fields)))
    return found


def _cells(rows: Sequence[Row], names: Sequence[str]) -> list[Sequence[Any]]:
    if len(names) > 1:
        try:
            return list(map(itemgetter(*names), rows))
        except KeyError:
            pass  # A row lacks one.
    return [[row.get(name) for name in names] for row in rows]


def _first(rows: Sequence[Row], names: tuple[str, ...]) -> list[Any]:
    """Return of each row the first of its fields that is there."""
    found = [row.get(names[0]) for row in rows]
    for name in names[1:]:
        if None not in found:
            break
        pairs = zip(found, rows, strict=True)
        found = [row.get(name) if one is None else one for one, row in pairs]
    return found


class Sampler:
    """Takes rows in the order of time and makes series of them."""

    def __init__(self, reading: Reading, interval_s: float) -> None:
        self._reading = reading
        self._interval_s = interval_s
        self._identity = [name for _, name, _, _ in Formatter().parse(reading.entity) if name]
        self._fixed = tuple(f for f in reading.fields if not f.metric.endswith("*"))
        self._patterns = [f for f in reading.fields if f.metric.endswith("*")]
        self._spread: dict[tuple[Field, str], Field | None] = {}
        self._entities: dict[str, _Rows] = {}
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
            own = self._entities[entity] = _Rows(self._fixed)
        if self._patterns and (shape := tuple(row)) not in own.shapes:
            own.shapes.add(shape)
            own.widen(self._each(shape))
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

    def _series(self, entity: str, own: _Rows) -> Iterator[Series]:
        times = _Times(*own.stamps.arrays(), self._interval_s)
        found: dict[tuple[str, str], list[_Made]] = {}
        for field, values in own.columns():
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
