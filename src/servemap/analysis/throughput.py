"""Throughput over time: tokens a second and requests in flight in bins of one second."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from servemap.analysis.parts import OVERLAP, STEADY, WHOLE, Parts, parts_of
from servemap.analysis.repeats import Repeat
from servemap.analysis.series_figures import series_figures
from servemap.analysis.store import read_table
from servemap.analysis.telemetry_rows import SeriesRow
from servemap.parsers.series import Floats, Ints
from servemap.parsers.values import mapping, text
from servemap.telemetry.align import AlignedSeries

FAMILY = "throughput"
SOURCE = "requests"
SERVICE = "service"
BIN_S = 1.0
UNITS = {"output_tok_s": "per_s", "input_tok_s": "per_s", "in_flight": "requests"}
_COLUMNS = ("segment", "sent_ns", "first_ns", "last_ns", "input_tokens")
_LISTS = ("chunk_gap_s", "chunk_tokens")


class Bins(NamedTuple):
    """A segment in bins of one second, the last of one to two: edges (epoch ns), figures by name.

    `output_tok_s` counts the tokens of answers that succeeded when they came, `input_tok_s` their
    prompts when the first token came, `in_flight` is the time average of all requests on their way.
    """

    segment: str
    parts: Parts
    edges_ns: Ints
    figures: dict[str, Floats]


def bins_of(repeat: Repeat) -> list[Bins]:
    """Return the bins of every segment; [] where there are no requests of the attempt."""
    path = repeat.folder / "requests.parquet"
    table = None
    if repeat.segments and repeat.attempt is not None:
        table = read_table(path, repeat.attempt, (*_COLUMNS, *_LISTS))
    if table is None:
        return []
    found = []
    for segment in repeat.segments:
        name, parts = text(segment.get("name")) or "", parts_of(segment)
        if parts is not None:
            own = table.filter([row == name for row in table["segment"].to_pylist()])
            found.append(_bins(name, parts, own))
    return found


def throughput_rows(repeat: Repeat, bins: list[Bins]) -> list[SeriesRow]:
    """Return what a table shows of the bins, as of any other series."""
    node = text(mapping(repeat.meta.get("spec")).get("load_node")) or "client"
    rows = []
    for one in bins:
        inside = np.ones(one.edges_ns.size - 1, np.bool_)
        for metric, values in one.figures.items():
            names = (node, SOURCE, SERVICE, metric, UNITS[metric], one.segment)
            begins, ends = one.edges_ns[:-1], one.edges_ns[1:]
            series = AlignedSeries(*names, ends, begins, values, inside)
            for part in one.parts.names:
                found = series_figures(series, one.parts, part, BIN_S)
                rows.append(SeriesRow(FAMILY, one.segment, part, *names[:5], found))
    return rows


def raw_requests(repeat: Repeat) -> str:
    """Return where the raw requests are, from the folder of the repeat on.

    Of a search, and of clients that are not ours, that is a folder.
    """
    folder = f"attempts/{repeat.attempt or 0:03d}/raw"
    own = f"{folder}/requests.jsonl"
    return own if (repeat.folder / own).is_file() else folder


def bin_rows(bins: list[Bins]) -> Iterator[dict[str, Any]]:
    """Yield a row for each bin; `begin_s` is from the begin of the segment."""
    for one in bins:
        begins, ends = one.edges_ns[:-1], one.edges_ns[1:]
        beside = one.parts.mask(OVERLAP, begins, ends)
        for place in range(begins.size):
            rest = STEADY if one.parts.overlaps else WHOLE
            yield {
                "segment": one.segment,
                "part": OVERLAP if beside[place] else rest,
                "begin_s": (int(begins[place]) - one.parts.start_ns) / 1e9,
                "length_s": int(ends[place] - begins[place]) / 1e9,
                **{name: float(values[place]) for name, values in one.figures.items()},
            }


def _bins(segment: str, parts: Parts, table: Any) -> Bins:
    count = max(int((parts.end_ns - parts.start_ns) / (BIN_S * 1e9)), 1)
    edges = parts.start_ns + np.arange(count + 1, dtype=np.int64) * int(BIN_S * 1e9)
    edges[-1] = parts.end_ns
    seconds = np.diff(edges) / 1e9
    times, tokens = _chunks(table)
    first, given = _known(table, "first_ns", "input_tokens")
    sent, last = _known(table, "sent_ns", "last_ns")
    return Bins(
        segment,
        parts,
        edges,
        {
            "output_tok_s": np.histogram(times, edges, weights=tokens)[0] / seconds,
            "input_tok_s": np.histogram(first, edges, weights=given)[0] / seconds,
            "in_flight": np.diff(_passed(sent, edges) - _passed(last, edges)) / seconds,
        },
    )


def _known(table: Any, *names: str) -> tuple[Ints, ...]:
    """Return columns without the rows in which one of them is missing."""
    found = table.select(list(names)).drop_null()
    return tuple(found[name].to_numpy().astype(np.int64) for name in names)


def _chunks(table: Any) -> tuple[Ints, Ints]:
    """Return when each chunk of an answer came (epoch ns), and its tokens."""
    found = table.select(["first_ns", *_LISTS]).drop_null()
    sizes = found["chunk_tokens"].combine_chunks().value_lengths().to_numpy()
    gaps = found["chunk_gap_s"].combine_chunks()
    whole = (sizes > 0) & (gaps.value_lengths().to_numpy() == sizes - 1)
    found = found.filter(whole)
    if not found.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    sizes = sizes[whole]
    tokens = found["chunk_tokens"].combine_chunks().flatten().to_numpy()
    steps = np.zeros(tokens.size)
    starts = np.cumsum(sizes) - sizes
    later = np.ones(tokens.size, np.bool_)
    later[starts] = False
    steps[later] = found["chunk_gap_s"].combine_chunks().flatten().to_numpy()
    passed = np.cumsum(steps)
    passed -= np.repeat(passed[starts], sizes)
    times = np.repeat(found["first_ns"].to_numpy(), sizes) + (passed * 1e9).round().astype(np.int64)
    return times, tokens


def _passed(moments: Ints, edges: Ints) -> Floats:
    """Return at each edge the seconds since all moments before it, added up."""
    ordered = np.sort(moments)
    before = np.searchsorted(ordered, edges, "right")
    sums = np.concatenate(([0], np.cumsum(ordered - edges[0])))
    found: Floats = (before * (edges - edges[0]) - sums[before]) / 1e9
    return found
