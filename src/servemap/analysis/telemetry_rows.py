"""Rows of the telemetry tables: every series of one repeat, in each part of each segment."""

from typing import Any, NamedTuple

from servemap.analysis.parts import Parts, parts_of
from servemap.analysis.repeats import Repeat
from servemap.analysis.series_figures import SeriesFigures, series_figures
from servemap.analysis.telemetry_store import read_telemetry_series
from servemap.parsers.values import mapping, number, sequence, text
from servemap.telemetry.align import AlignedSeries
from servemap.telemetry.catalogue import family_of
from servemap.telemetry.declared import known_collector

MISSING = "-"
NOT_WATCHED = "not watched"
NO_COLLECTOR = "no collector"


class SeriesRow(NamedTuple):
    """One series in one part of a segment."""

    family: str
    segment: str
    part: str
    node: str
    collector: str
    entity: str
    metric: str
    unit: str
    figures: SeriesFigures


def series_rows(repeat: Repeat) -> list[SeriesRow]:
    """Return the series that a table shows, those of several nodes beside each other.

    The order is that of segments, then metrics, entities and parts as each first came, then nodes.
    """
    if not repeat.metrics or repeat.attempt is None:
        return []
    segments = {text(segment.get("name")): parts_of(segment) for segment in repeat.segments}
    intervals = {
        (row.get("node"), row.get("collector")): number(row.get("interval_s"))
        for row in map(mapping, sequence(repeat.metrics.get("coverage")))
    }
    rows: list[SeriesRow] = []
    for one in read_telemetry_series(repeat.folder / "telemetry.parquet", repeat.attempt):
        parts, family = segments.get(one.segment), family_of(one.collector, one.metric, one.entity)
        if parts is not None and family is not None:
            interval_s = intervals.get((one.node, one.collector))
            rows += _rows(family, one, parts, interval_s)
    return _beside(rows)


def _rows(
    family: str, one: AlignedSeries, parts: Parts, interval_s: float | None
) -> list[SeriesRow]:
    return [
        SeriesRow(
            family,
            one.segment,
            part,
            one.node,
            one.collector,
            one.entity,
            one.metric,
            one.unit,
            series_figures(one, parts, part, interval_s),
        )
        for part in parts.names
    ]


def _beside(rows: list[SeriesRow]) -> list[SeriesRow]:
    keys = ("segment", "metric", "entity", "part", "node")
    places: dict[str, dict[str, int]] = {key: {} for key in keys}
    for row in rows:
        for key in keys:
            own = places[key]
            own.setdefault(getattr(row, key), len(own))
    return sorted(rows, key=lambda row: [places[key][getattr(row, key)] for key in keys])


def collectors_of(repeat: Repeat) -> list[tuple[str, str]]:
    """Return node and name of every collector that was to run."""
    keys = sorted(mapping(repeat.meta.get("collectors")))
    return [(node, name) for node, _, name in (key.rpartition("/") for key in keys)]


def declared_of(repeat: Repeat) -> list[tuple[str, str]]:
    """Return node and name of every collector of the campaign's own."""
    return [
        (node, name)
        for node, name in collectors_of(repeat)
        if (known := known_collector(name, _record(repeat, node, name))) and known.table is not None
    ]


def silent(repeat: Repeat, family: str, told: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the collectors of a family, by node and name, that told nothing there."""
    found = []
    for node, name in collectors_of(repeat):
        known = known_collector(name, _record(repeat, node, name))
        if known is None or family not in known.families or (node, name) in told:
            continue
        # Where another vendor's tool told it, this one need not be there.
        told_by_another = any(node == one for one, _ in told)
        if not (told_by_another and state_of(repeat, node, name) == "absent"):
            found.append((node, name))
    return found


def state_of(repeat: Repeat, node: str, collector: str) -> str:
    """Return what became of a collector; `simulated` where it only replayed a recording."""
    record = _record(repeat, node, collector)
    return "simulated" if record.get("simulated") else text(record.get("status")) or MISSING


def no_row_since(repeat: Repeat) -> str:
    """Return the state of a family of which a repeat has no row."""
    if collectors_of(repeat):
        return NO_COLLECTOR
    if repeat.spec.get("watching") == "none":
        return NOT_WATCHED
    return NO_COLLECTOR if repeat.status == "ok" else repeat.status


def _record(repeat: Repeat, node: str, collector: str) -> dict[str, Any]:
    return mapping(mapping(repeat.meta.get("collectors")).get(f"{node}/{collector}"))


def raw_file(repeat: Repeat, node: str, collector: str) -> str:
    """Return where a collector's raw lines are, from the folder of the repeat on."""
    attempt = MISSING if repeat.attempt is None else f"{repeat.attempt:03d}"
    return f"attempts/{attempt}/raw/telemetry/{node}/{collector}.jsonl"


def gap_rows(repeat: Repeat) -> list[dict[str, Any]]:
    """Return every stretch longer than three intervals in which a collector took no sample.

    `begin_s` is from the begin of the segment, `length_s` up to the next sample or its end.
    """
    starts = {text(s.get("name")): number(s.get("start_ns")) for s in repeat.segments}
    rows = []
    for row in map(mapping, sequence(repeat.metrics.get("coverage"))):
        for gap in sequence(row.get("gaps")):
            start = starts.get(text(row.get("segment")))
            if start is None or not isinstance(gap, list) or len(gap) != 2:
                continue
            rows.append(
                {
                    **{key: row.get(key) for key in ("segment", "node", "collector", "interval_s")},
                    "begin_ns": gap[0],
                    "end_ns": gap[1],
                    "begin_s": (gap[0] - start) / 1e9,
                    "length_s": (gap[1] - gap[0]) / 1e9,
                }
            )
    return rows
