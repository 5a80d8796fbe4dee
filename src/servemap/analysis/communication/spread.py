"""Pairs, nodes and ranks of baselines that are slower than the others that they are like."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from statistics import median
from typing import Any, NamedTuple

import yaml

from servemap.analysis.baselines import settings_text
from servemap.analysis.communication.pairs import figures
from servemap.parsers.values import integer, mapping, number, sequence

LIMIT = "slower_share"
COLUMNS = (
    *("baseline", "comparison", "settings", "figure", "place", "bytes_per_s"),
    *("others_bytes_per_s", "slower_by", "limit", "ok", "simulated"),
)

Row = dict[str, Any]
Record = Mapping[str, Any]


class Comparison(NamedTuple):
    """What is compared, as `spread.yaml` says it."""

    name: str
    compares: str
    means: str
    remedy: str


class Group(NamedTuple):
    """Rates in bytes/s, by place, that would be equal where nothing is slow."""

    comparison: str
    settings: str
    figure: str
    rates: dict[str, float]


@cache
def comparisons() -> dict[str, Comparison]:
    """Return the table of spread.yaml by name."""
    file = resources.files(__package__).joinpath("spread.yaml")
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {row["name"]: Comparison(**row) for row in content["comparisons"]}


def spread_rows(baselines: Mapping[str, Record], limits: Mapping[str, float]) -> list[Row]:
    """Return the rows of tables/baseline_spread.csv: each place beside the median of the others.

    `slower_by` is the share by which its rate is below that, negative where it is above; `ok` is
    whether it is at most the limit. What is alone has no row.

    Args:
        baselines: records by name; only parts that are `ok` count.
        limits: resolved limits; `slower_share` is taken.
    """
    limit = limits[LIMIT]
    rows = []
    for name, record in baselines.items():
        for group in _groups(record):
            for place, rate in group.rates.items():
                others = [other for key, other in group.rates.items() if key != place]
                if not others:
                    continue
                usual = median(others)
                slower_by = 1 - rate / usual
                rows.append(
                    {
                        "baseline": name,
                        "comparison": group.comparison,
                        "settings": group.settings,
                        "figure": group.figure,
                        "place": place,
                        "bytes_per_s": rate,
                        "others_bytes_per_s": usual,
                        "slower_by": slower_by,
                        "limit": limit,
                        "ok": slower_by <= limit,
                        "simulated": bool(record.get("simulated")),
                    }
                )
    return rows


def slower(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each place that is slower than the limit allows."""
    return [
        f"baseline {row['baseline']}: {row['place']} is slower than the others by "
        f"{row['slower_by']:.0%} ({figure_text(row)}; limit {row['limit']:.0%}): "
        f"{comparisons()[row['comparison']].means}"
        for row in rows
        if not row["ok"]
    ]


def figure_text(row: Row) -> str:
    """Return what a row compares, with the values of the sweep that it was measured with."""
    return f"{row['figure']} {row['settings']}".strip()


def _groups(record: Record) -> Iterator[Group]:
    parts = [
        part for part in map(mapping, sequence(record.get("results"))) if part.get("status") == "ok"
    ]
    kind = record.get("kind")
    if kind == "tcp":
        yield from _tcp(parts)
    elif kind == "collective":
        yield from _nodes(parts)
        for part in parts:
            yield from _ranks(part)
    elif kind == "copies":
        rates = {_node(part): rate for part in parts if (rate := _copies(part)) is not None}
        yield Group("copies", "", "median of the pairs", rates)


def _tcp(parts: list[dict[str, Any]]) -> Iterator[Group]:
    rates = {
        (str(part.get("from")), str(part.get("to"))): rate
        for part in parts
        if (rate := _positive(part.get("bandwidth_bytes_per_s"))) is not None
    }
    figure = "TCP bandwidth"
    yield Group("pair", "", figure, {f"{a} to {b}": rate for (a, b), rate in rates.items()})
    nodes = dict.fromkeys(node for pair in rates for node in pair)
    if len(nodes) < 3:
        return
    for side, name in enumerate(("sends", "receives")):
        # The best of its pairs: a single slow peer is not the node's own doing.
        best = {
            f"what {node} {name}": max(own)
            for node in nodes
            if (own := [rate for pair, rate in rates.items() if pair[side] == node])
        }
        yield Group(name, "", figure, best)


def _nodes(parts: list[dict[str, Any]]) -> Iterator[Group]:
    """Yield the busbw of each node by itself, by settings, ranks and operation."""
    found: dict[tuple[str, Any, str, int], dict[str, float]] = defaultdict(dict)
    for part in parts:
        if len(sequence(part.get("nodes"))) != 1:
            continue
        for row, size in _largest(part):
            rate = _positive(row.get("busbw_bytes_per_s"))
            if rate is not None:
                key = (settings_text(part), part.get("world"), str(row.get("operation")), size)
                found[key][_node(part)] = rate
    for (settings, _, operation, size), rates in found.items():
        yield Group("node", settings, f"busbw of {operation} of {size} bytes", rates)


def _ranks(part: dict[str, Any]) -> Iterator[Group]:
    nodes = {
        str(rank.get("rank")): str(rank.get("node"))
        for rank in map(mapping, sequence(part.get("ranks")))
    }
    for row, size in _largest(part):
        rates = {
            f"rank {rank} on {nodes.get(str(rank), '?')}": size / mean
            for rank, one in enumerate(sequence(row.get("rank_mean_s")))
            if (mean := _positive(one)) is not None
        }
        figure = f"mean time of {row.get('operation')} of {size} bytes"
        yield Group("rank", settings_text(part), figure, rates)


def _largest(part: Record) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield of each operation the row of its largest size, which noise moves least, and that."""
    best: dict[str, tuple[dict[str, Any], int]] = {}
    for row in map(mapping, sequence(part.get("rows"))):
        size, operation = integer(row.get("size_bytes")), str(row.get("operation"))
        if size and size > best.get(operation, ({}, 0))[1]:
            best[operation] = (row, size)
    yield from best.values()


def _copies(part: Record) -> float | None:
    rates = {
        (str(pair.get("row")), str(pair.get("column"))): rate
        for pair in map(mapping, sequence(part.get("pairs")))
        if (rate := _positive(pair.get("bandwidth_bytes_per_s"))) is not None
    }
    found = figures(rates)
    return None if found is None else found.median


def _positive(value: Any) -> float | None:
    found = number(value)
    return float(found) if found is not None and found > 0 else None


def _node(part: Record) -> str:
    return str(sequence(part.get("nodes"))[0]) if sequence(part.get("nodes")) else "?"
