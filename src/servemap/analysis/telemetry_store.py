"""telemetry.parquet: one row a sample and segment, series after series in the order of time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from servemap.analysis.store import is_of, write_tables
from servemap.model.files import regular
from servemap.telemetry.align import AlignedSeries

TELEMETRY = pa.schema(
    [
        ("node", pa.string()),
        ("collector", pa.string()),
        ("entity", pa.string()),
        ("metric", pa.string()),
        ("unit", pa.string()),
        ("t_ns", pa.int64()),
        ("value", pa.float64()),
        ("segment", pa.string()),
        ("inside", pa.bool_()),
        ("from_ns", pa.int64()),
    ]
)
_NAMES = ("node", "collector", "entity", "metric", "unit", "segment")
# A series is never in two row groups, so one group at a time can be read.
_GROUP_ROWS = 1 << 20


def write_telemetry(path: Path, series: Sequence[AlignedSeries], attempt: int | None) -> None:
    """Write telemetry.parquet."""
    write_tables(path, TELEMETRY, _groups(series), attempt)


def read_telemetry_series(path: Path, attempt: int | None) -> Iterator[AlignedSeries]:
    """Yield the series of telemetry.parquet as they were written.

    None comes of a file that is missing, of another attempt, or of a version before `from_ns`; of a
    damaged one what is before the damage.
    """
    try:
        with (
            open(path, "rb", opener=regular) as handle,
            pq.ParquetFile(handle, read_dictionary=list(_NAMES)) as file,
        ):
            if not is_of(file, attempt) or "from_ns" not in file.schema_arrow.names:
                return
            for group in range(file.num_row_groups):
                yield from _series(file.read_row_group(group).combine_chunks())
    except (OSError, ValueError, pa.ArrowException):
        return


def _series(table: Any) -> Iterator[AlignedSeries]:
    rows = table.num_rows
    if not rows:
        return
    words: list[Any] = []
    changes = np.zeros(rows, np.bool_)
    changes[0] = True
    for name in _NAMES:
        column = table[name].chunk(0)
        codes = column.indices.to_numpy()
        changes[1:] |= codes[1:] != codes[:-1]
        words.append((column.dictionary.to_pylist(), codes))
    starts = np.flatnonzero(changes)
    ends = np.append(starts[1:], rows)
    t_ns, value = table["t_ns"].to_numpy(), table["value"].to_numpy()
    inside = table["inside"].to_numpy()
    begins = table["from_ns"].chunk(0)
    from_ns = begins.fill_null(0).to_numpy()
    gauge = begins.is_null().to_numpy(zero_copy_only=False)
    for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
        node, collector, entity, metric, unit, segment = (
            known[codes[first]] for known, codes in words
        )
        yield AlignedSeries(
            node,
            collector,
            entity,
            metric,
            unit,
            segment,
            t_ns[first:last],
            None if gauge[first] else from_ns[first:last],
            value[first:last],
            inside[first:last],
        )


def _groups(series: Sequence[AlignedSeries]) -> Iterator[Any]:
    """Yield tables of whole series, none much longer than it must be."""
    own: list[AlignedSeries] = []
    size = 0
    for one in series:
        if own and size + one.value.size > _GROUP_ROWS:
            yield _table(own)
            own, size = [], 0
        own.append(one)
        size += one.value.size
    yield _table(own)


def _table(series: Sequence[AlignedSeries]) -> Any:
    lengths = np.array([one.value.size for one in series], np.int64)
    begins = [one.t_ns if one.from_ns is None else one.from_ns for one in series]
    gauge = np.repeat(np.array([one.from_ns is None for one in series], np.bool_), lengths)
    columns = {
        "t_ns": pa.array(_joined([one.t_ns for one in series], np.int64)),
        "value": pa.array(_joined([one.value for one in series], np.float64)),
        "inside": pa.array(_joined([one.inside for one in series], np.bool_)),
        "from_ns": pa.array(_joined(begins, np.int64), mask=gauge),
    }
    for name in _NAMES:
        words: list[str] = [getattr(one, name) for one in series]
        columns[name] = _repeated(words, lengths)
    arrays = [columns[field.name].cast(field.type) for field in TELEMETRY]
    return pa.Table.from_arrays(arrays, schema=TELEMETRY)


def _joined(arrays: list[Any], kind: Any) -> Any:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)


def _repeated(words: Sequence[str], lengths: Any) -> Any:
    """Return a column that has each word as often as its length says."""
    place: dict[str, int] = {}
    codes = np.array([place.setdefault(word, len(place)) for word in words], np.int32)
    return pa.DictionaryArray.from_arrays(np.repeat(codes, lengths), pa.array(place, pa.string()))
