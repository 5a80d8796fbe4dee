"""Samples as columns: one array of times and one of values for each metric of an entity.

A day of telemetry has tens of millions of samples, so whatever handles many of them uses these.
Series whose samples were taken together share their arrays of times (the very same objects), which
is what `align` relies on to look at each of them once.
"""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.parsers.records import Sample, Skipped

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Series(NamedTuple):
    """The samples of one metric of one entity, on the clock of the node that took them.

    `from_ns` is where the intervals of rates begin; None for gauges. See `records.Sample`.
    """

    entity: str
    metric: str
    unit: str
    t_ns: Ints
    from_ns: Ints | None
    value: Floats


class Parsed(NamedTuple):
    """Samples of one collector, the times at which it really delivered, and what was left out."""

    series: list[Series]
    times_ns: list[int]
    skipped: list[Skipped]


def series_of(samples: Iterable[Sample]) -> list[Series]:
    """Return samples by entity, metric and unit, in the order in which each first came."""
    found: dict[tuple[str, str, str], tuple[array[int], array[int], array[float]]] = {}
    rates: set[tuple[str, str, str]] = set()
    for t_ns, from_ns, entity, metric, unit, value in samples:
        key = (entity, metric, unit)
        own = found.get(key)
        if own is None:
            own = found[key] = (array("q"), array("q"), array("d"))
        if from_ns is not None:
            rates.add(key)
        own[0].append(t_ns)
        own[1].append(t_ns if from_ns is None else from_ns)
        own[2].append(value)
    return [
        Series(
            *key,
            np.frombuffer(times, np.int64),
            np.frombuffer(begins, np.int64) if key in rates else None,
            np.frombuffer(values, np.float64),
        )
        for key, (times, begins, values) in found.items()
    ]
