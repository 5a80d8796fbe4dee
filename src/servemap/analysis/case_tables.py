"""Telemetry tables of a run: one file a family, all series of every case, segment and part."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from servemap.analysis.hottest import keep_busiest
from servemap.analysis.netdevs import plain_rails
from servemap.analysis.references import Measured, measured
from servemap.analysis.repeats import Repeat
from servemap.analysis.shares import balance_rows
from servemap.analysis.telemetry_rows import (
    MISSING,
    SeriesRow,
    gap_rows,
    no_row_since,
    raw_file,
    series_rows,
    silent,
    state_of,
)
from servemap.analysis.throughput import FAMILY as THROUGHPUT
from servemap.analysis.throughput import UNITS, bin_rows, bins_of, raw_requests, throughput_rows
from servemap.parsers.values import mapping
from servemap.telemetry.catalogue import families

KEYS = ("variant", "case", "repeat", "attempt", "verdict", "segment", "part")
SPREAD = ("mean", "p50", "p95", "max", "min")
COLUMNS = (
    *KEYS,
    *("node", "collector", "state", "entity", "process", "metric", "unit"),
    *("n", "expected", "coverage", *SPREAD, "integral", "integral_unit", "integral_s"),
    *("gaps", "largest_gap_s", "reference", "reference_mean", "change", "change_pct", "raw_file"),
)
GAP_COLUMNS = (
    *KEYS[:-1],
    *("node", "collector", "interval_s", "begin_s", "length_s", "begin_ns", "end_ns", "raw_file"),
)
BIN_COLUMNS = (*KEYS, "begin_s", "length_s", *UNITS)
_SIDE_KEYS = (*KEYS, "family", "entity", "metric", "unit")
_SIDE = ("n", "mean", "p95", "max", "change_pct")

Row = dict[str, Any]


class _File:
    """One table, written row by row so that only its text is held; None is `-`."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.text = io.StringIO()
        self._writer = csv.DictWriter(
            self.text, columns, restval=MISSING, lineterminator="\n", extrasaction="ignore"
        )
        self._writer.writeheader()

    def add(self, rows: Iterable[Row]) -> None:
        self._writer.writerows(
            {name: MISSING if value is None else value for name, value in row.items()}
            for row in rows
        )


def table_families() -> tuple[str, ...]:
    """Return every family that has a table: those of the catalogue, and what follows from them."""
    return tuple(dict.fromkeys([*families(), THROUGHPUT]))


def telemetry_tables(
    repeats: Sequence[Repeat], comparable: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Return the text of each file in tables/ that is about telemetry, by its name.

    `case_FAMILY_summary.csv` has all figures, the nodes of a series in neighbouring rows;
    `side_by_side.csv` the main ones of all families with columns for each node;
    `throughput_over_time.csv` a row a second; `telemetry_gaps.csv` a row a gap. What was not
    measured is `-`; a collector that gave a family nothing has one row there, whose `state` says
    why: `absent` where the node has no such tool, `failed`, or `ok` where the tool ran and did not
    tell that. So has a repeat of whose family no collector was to tell anything.

    Args:
        repeats: in the planned order.
        comparable: for each variant those that it may be compared with, the best first.
    """
    tables = {name: _File(COLUMNS) for name in table_families()}
    nodes = sorted(
        {key.rpartition("/")[0] for r in repeats for key in mapping(r.meta.get("collectors"))}
    )
    side = _File([*_SIDE_KEYS, *(f"{node}.{name}" for node in nodes for name in _SIDE)])
    bins, gaps = _File(BIN_COLUMNS), _File(GAP_COLUMNS)
    for one in measured(repeats, comparable, rows_of):
        rows = [(row, _row(one, row)) for row in one.rows]
        for family, table in tables.items():
            own = [filled for row, filled in rows if row.family == family]
            own += _silent(one.repeat, family, {(row["node"], row["collector"]) for row in own})
            since = one.repeat.status if family == THROUGHPUT else no_row_since(one.repeat)
            table.add(own or [blank(one.repeat) | {"state": since}])
        side.add(_side_by_side(rows))
        bins.add(blank(one.repeat) | row for row in bin_rows(bins_of(one.repeat)))
        gaps.add(
            blank(one.repeat)
            | row
            | {"raw_file": raw_file(one.repeat, row["node"], row["collector"])}
            for row in gap_rows(one.repeat)
        )
    return {
        **{f"case_{name}_summary.csv": table.text.getvalue() for name, table in tables.items()},
        "side_by_side.csv": side.text.getvalue(),
        "throughput_over_time.csv": bins.text.getvalue(),
        "telemetry_gaps.csv": gaps.text.getvalue(),
    }


def rows_of(repeat: Repeat) -> list[SeriesRow]:
    """Return all rows of a repeat: what was sampled, what follows from it, and its requests."""
    rows = series_rows(repeat)
    return [
        *keep_busiest(rows),
        *balance_rows(rows, plain_rails(repeat.meta)),
        *throughput_rows(repeat, bins_of(repeat)),
    ]


def blank(repeat: Repeat) -> Row:
    """Return the columns that say which repeat a row is of."""
    return {
        "variant": repeat.variant,
        "case": repeat.case,
        "repeat": repeat.repeat,
        "attempt": repeat.attempt,
        "verdict": repeat.verdict,
    }


def _row(one: Measured, row: SeriesRow) -> Row:
    repeat, figures = one.repeat, row.figures
    names = mapping(mapping(repeat.metrics.get("processes")).get(row.node))
    change, whole = one.change(row), figures.integral
    by_client = row.family == THROUGHPUT
    return {
        **blank(repeat),
        **row._asdict(),
        **figures._asdict(),
        "state": repeat.status if by_client else state_of(repeat, row.node, row.collector),
        "process": names.get(row.entity),
        "integral": whole and whole.value,
        "integral_unit": whole and whole.unit,
        "integral_s": whole and whole.seconds,
        **({} if change is None else change._asdict()),
        "raw_file": raw_requests(repeat)
        if by_client
        else raw_file(repeat, row.node, row.collector),
    }


def _silent(repeat: Repeat, family: str, told: set[tuple[str, str]]) -> list[Row]:
    return [
        blank(repeat)
        | {"node": node, "collector": name, "state": state_of(repeat, node, name)}
        | {"raw_file": raw_file(repeat, node, name)}
        for node, name in silent(repeat, family, told)
    ]


def _side_by_side(rows: Sequence[tuple[SeriesRow, Row]]) -> Iterable[Row]:
    """Return one row a series of the run, whichever nodes have it, with columns for each node."""
    found: dict[tuple[Any, ...], Row] = {}
    for row, filled in rows:
        key = tuple(filled[name] for name in _SIDE_KEYS)
        own = found.setdefault(key, {name: filled[name] for name in _SIDE_KEYS})
        own |= {f"{row.node}.{name}": filled.get(name) for name in _SIDE}
    return found.values()
