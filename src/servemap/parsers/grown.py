"""Values that come row by row, kept as arrays, and what became of them between two rows.

A day of telemetry has tens of millions of values, so none of them is an object for long.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from servemap.parsers.counters import interval_s
from servemap.parsers.series import Floats, Ints
from servemap.parsers.values import number, sequence

PENDING = 512
"""So many rows are kept as they came before they become a part of an array."""

_PLAIN = {int, float, type(None)}


class Stamps:
    """When rows came: epoch and monotonic ns."""

    def __init__(self) -> None:
        self._t_ns, self._mono_ns = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._t_ns)

    def add(self, t_ns: int, mono_ns: int) -> None:
        """Add a row."""
        self._t_ns.append(t_ns)
        self._mono_ns.append(mono_ns)

    def arrays(self) -> tuple[Ints, Ints]:
        """Return all so far; no row can be added while these are in use."""
        return np.frombuffer(self._t_ns, np.int64), np.frombuffer(self._mono_ns, np.int64)


def matrix(rows: Sequence[Sequence[Any]], width: int) -> Floats:
    """Return what rows of `width` cells hold, NaN for what is no number."""
    if set(map(type, chain.from_iterable(rows))) <= _PLAIN:
        try:
            values = np.array(rows, np.float64).reshape(len(rows), width)
        except OverflowError:
            pass
        else:
            values[np.isinf(values)] = np.nan
            return values
    return np.array([[number_or_nan(cell) for cell in row] for row in rows]).reshape(
        len(rows), width
    )


def number_or_nan(found: Any) -> float:
    """Return a finite number, NaN for anything else."""
    known = number(found)
    return math.nan if known is None else known


class Steps(NamedTuple):
    """Pairs of rows, each with the time between both: what rates are computed over."""

    before: Ints
    after: Ints
    length_ns: Ints


def steps(mono_ns: Ints, least_s: float) -> Steps:
    """Return each row that is far enough from the one before it, with that one.

    A row that is not is left out; one from before the row that it follows begins anew.
    """
    lengths = np.diff(mono_ns)
    rows = np.arange(mono_ns.size)
    if not ((lengths < 0) | (lengths / 1e9 > max(least_s, 0.0))).all():
        rows = np.array(_far_enough(mono_ns.tolist(), least_s), np.int64)
        lengths = np.diff(mono_ns[rows])
    forward = lengths >= 0
    return Steps(rows[:-1][forward], rows[1:][forward], lengths[forward])


def _far_enough(mono_ns: list[int], least_s: float) -> list[int]:
    rows = [0]
    base = mono_ns[0]
    for row, mono in enumerate(mono_ns[1:], start=1):
        if mono < base or interval_s(base, mono, least_s) is not None:
            rows.append(row)
            base = mono
    return rows


class Counters:
    """Counters that come together by name, such as those of a core: `width` of them a row.

    Values that are none, or too few or many of them, are no row of that name.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows = 0
        self._pending: dict[str, list[Any]] = {}
        self._parts: dict[str, list[tuple[int, Floats]]] = {}

    def add(self, found: Mapping[str, Any]) -> None:
        """Add a row of every name."""
        if not found.keys() <= self._pending.keys():
            missed = self._rows % PENDING
            for name in found:
                self._pending.setdefault(name, [None] * missed)
        for name, pending in self._pending.items():
            pending.append(found.get(name))
        self._rows += 1
        if not self._rows % PENDING:
            self._settle(self._rows - PENDING)

    def _settle(self, first: int) -> None:
        """Make arrays of the rows from `first` on; names that had none there are forgotten."""
        for name, pending in self._pending.items():
            if any(row is not None for row in pending):
                self._parts.setdefault(name, []).append((first, _matrix(pending, self._width)))
        self._pending = {}

    def tables(self) -> Iterator[tuple[str, Floats]]:
        """Yield each name with its values of shape (rows, width), NaN where it has no row."""
        self._settle(self._rows - self._rows % PENDING)
        for name, parts in self._parts.items():
            values = np.full((self._rows, self._width), np.nan)
            for first, part in parts:
                values[first : first + len(part)] = part
            yield name, values


def _matrix(rows: Sequence[Any], width: int) -> Floats:
    if set(map(type, rows)) == {list} and set(map(len, rows)) == {width}:
        values = matrix(rows, width)
        if not np.isnan(values).any():
            return values
    return np.array([_row(row, width) for row in rows], np.float64).reshape(len(rows), width)


def _row(row: Any, width: int) -> list[float]:
    known = [found for found in map(number, sequence(row)) if found is not None]
    return known if len(known) == width else [math.nan] * width
