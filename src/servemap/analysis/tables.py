"""Tables of every case and segment: all percentiles, and telemetry by family (cpu, memory, ...)."""

from collections.abc import Iterable
from typing import Any

from servemap.analysis.hottest import keep_busiest
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import P99_SAMPLES, PERCENTILES, distribution
from servemap.analysis.store import read_table
from servemap.parsers.values import mapping, sequence, text
from servemap.telemetry.catalogue import families, family_of
from servemap.telemetry.declared import known_collector

MISSING = "-"
COLUMNS = (
    "variant",
    "case",
    "repeat",
    "attempt",
    "verdict",
    "segment",
    "node",
    "collector",
    "state",
    "entity",
    "process",
    "metric",
    "unit",
    "n",
    "mean",
    "p95",
    "max",
    "coverage",
)

MEASURED = "measured"
POINTS = ("n", "mean", *(f"p{point}" for point in PERCENTILES), "max")
SPREAD = (
    "ttft_s",
    "first_text_s",
    "tpot_s",
    "itl_s",
    "chunk_gap_s",
    "e2e_s",
    "req_output_tps",
    "ttft_from_schedule_s",
    "e2e_from_schedule_s",
    "schedule_lag_s",
)
POINT_COLUMNS = (
    *("variant", "case", "repeat", "attempt", "verdict", "segment", "stream", "figure"),
    *POINTS,
    "few_for_p99",
)

Table = tuple[list[str], list[dict[str, Any]]]
Series = tuple[str, str, str, str, str, str]
"""Segment, node, collector, entity, metric, unit."""


def family_tables(repeats: Iterable[Repeat]) -> dict[str, Table]:
    """Return {family: (columns, rows)}; rows of what was not measured hold `-`.

    A collector that ran on a node and gave a family nothing there has one row of it, which says in
    `state` why: `absent` where the node has no such tool, `failed`, or `ok` where the tool ran and
    did not tell that.
    """
    tables: dict[str, Table] = {name: (list(COLUMNS), []) for name in families()}
    for repeat in repeats:
        found = _repeat_rows(repeat)
        for name, (_, rows) in tables.items():
            own = found.get(name, [])
            own += _silent(repeat, name, {(row["node"], row["collector"]) for row in own})
            rows.extend(own or [_blank(repeat)])
    return tables


def percentile_rows(repeats: Iterable[Repeat]) -> list[dict[str, Any]]:
    """Return the rows of tables/percentiles.csv: every distribution of every stream, in its unit.

    Stream `measured` is the segment's workload, without injected requests, which have a stream of
    their own; `few_for_p99` says that P99 is of fewer than 100 values.
    """
    rows = []
    for repeat in repeats:
        for segment in repeat.segments:
            streams = {MEASURED: segment.get("metrics"), **mapping(segment.get("streams"))}
            for stream, block in streams.items():
                for figure in SPREAD:
                    found = mapping(mapping(block).get(figure))
                    if not found:
                        continue
                    row = {name: found.get(name) for name in POINTS}
                    row |= {"segment": segment.get("name"), "stream": stream, "figure": figure}
                    row["few_for_p99"] = int(found.get("n") or 0) < P99_SAMPLES
                    rows.append(_blank(repeat) | row)
    return rows


def _blank(repeat: Repeat) -> dict[str, Any]:
    row = dict.fromkeys(COLUMNS, MISSING)
    return row | {
        "variant": repeat.variant,
        "case": repeat.case,
        "repeat": repeat.repeat,
        "attempt": MISSING if repeat.attempt is None else repeat.attempt,
        "verdict": repeat.verdict,
    }


def _silent(repeat: Repeat, family: str, told: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a row for each collector of a family that is on a node and told nothing there."""
    rows = []
    for node, collector in _collectors(repeat):
        record = mapping(mapping(repeat.meta.get("collectors")).get(f"{node}/{collector}"))
        known = known_collector(collector, record)
        if known and family in known.families and (node, collector) not in told:
            state = _state(repeat, node, collector)
            # Where another vendor's tool told it, this one need not be there.
            if state == "absent" and any(node == one for one, _ in told):
                continue
            rows.append(_blank(repeat) | {"node": node, "collector": collector, "state": state})
    return rows


def _collectors(repeat: Repeat) -> list[tuple[str, str]]:
    keys = sorted(mapping(repeat.meta.get("collectors")))
    return [(node, name) for node, _, name in (key.rpartition("/") for key in keys)]


def _state(repeat: Repeat, node: str, collector: str) -> str:
    """Return what became of a collector; `simulated` where it only replayed a recording."""
    record = mapping(mapping(repeat.meta.get("collectors")).get(f"{node}/{collector}"))
    return "simulated" if record.get("simulated") else text(record.get("status")) or MISSING


def _repeat_rows(repeat: Repeat) -> dict[str, list[dict[str, Any]]]:
    covered = {
        (c.get("segment"), c.get("node"), c.get("collector")): c.get("coverage")
        for c in map(mapping, sequence(repeat.metrics.get("coverage")))
    }
    processes = mapping(repeat.metrics.get("processes"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for series, values in inside_values(repeat).items():
        segment, node, collector, entity, metric, unit = series
        family = family_of(collector, metric, entity)
        if family is None:
            continue
        figures = distribution(values) or {}
        ratio = covered.get((segment, node, collector))
        rows.setdefault(family, []).append(
            _blank(repeat)
            | {
                "segment": segment,
                "node": node,
                "collector": collector,
                "state": _state(repeat, node, collector),
                "entity": entity,
                "process": mapping(processes.get(node)).get(entity, MISSING),
                "metric": metric,
                "unit": unit,
                "n": len(values),
                **{name: figures.get(name, MISSING) for name in ("mean", "p95", "max")},
                "coverage": MISSING if ratio is None else ratio,
            }
        )
    return {family: keep_busiest(family, own) for family, own in rows.items()}


def inside_values(repeat: Repeat) -> dict[Series, list[float]]:
    """Return every series' values inside the segments, in the order of the file.

    A series that was sampled around a segment and never inside it is there and empty.
    """
    result: dict[Series, list[float]] = {}
    if not repeat.metrics or repeat.attempt is None:
        return result
    table = read_table(repeat.folder / "telemetry.parquet", repeat.attempt)
    if table is None:
        return result
    names = ("segment", "node", "collector", "entity", "metric", "unit")
    columns = [table[name].to_pylist() for name in names]
    flags, values = table["inside"].to_pylist(), table["value"].to_pylist()
    for *series, inside, value in zip(*columns, flags, values, strict=True):
        segment, node, collector, entity, metric, unit = series
        own = result.setdefault((segment, node, collector, entity, metric, unit), [])
        if inside:
            own.append(value)
    return result
