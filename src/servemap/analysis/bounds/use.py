"""tables/hardware_use.csv: network, links, power and memory of cards beside their limits."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from servemap.analysis.bounds.frozen_limits import Limit, frozen_limit
from servemap.analysis.bounds.known import table
from servemap.analysis.netdevs import plain_rails
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import distribution, mean_over
from servemap.analysis.store import read_table
from servemap.parsers.values import mapping

COLUMNS = (
    *("variant", "case", "repeat", "attempt", "verdict", "segment", "node", "entity", "resource"),
    *("unit", "n", "mean", "p95", "max", "limit", "limit_source"),
    *("mean_share", "p95_share", "max_share"),
)
_KEYS = ("segment", "node", "collector", "entity", "metric")

Row = dict[str, Any]
Series = tuple[str, str, str, str, str]


_SHARE = Limit(1.0, "the metric is a share")


def use_rows(
    repeats: Iterable[Repeat], facts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of tables/hardware_use.csv; a limit that is not known is None.

    Args:
        repeats: planned repeats.
        facts: frozen facts by node.
    """

    @cache
    def frozen(kind: str, node: str, entity: str) -> Limit:
        return frozen_limit(kind, mapping(facts.get(node)), entity)

    rows = []
    for repeat in repeats:
        series, rails = _series(repeat), plain_rails(repeat.meta)
        for (segment, node, collector, entity, metric), values in series.items():
            own = mapping(facts.get(node))
            for resource in _resources(metric):
                if not _has_limit(resource, entity, rails.get(node, ()), own):
                    continue
                key = (segment, node, collector, entity, resource.get("limit", ""))
                limit = _sampled(resource, series[key].value if key in series else [])
                if limit is None:
                    limit = frozen(resource["frozen"], node, entity)
                place = {"segment": segment, "node": node, "entity": entity}
                rows.append(_row(repeat, place, resource, values, limit))
    return rows


def slow_links(rows: Iterable[Row]) -> list[str]:
    """Return, in words, the links of cards that stayed below what the card can do while measured.

    A link counts by the best that it was in any of the rows, for an idle card lowers it.

    Args:
        rows: as `use_rows` returns them.
    """
    best: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        key = (row["node"], row["entity"], row["resource"])
        if row["resource"] not in link_states() or row["limit"] is None:
            continue
        if key not in best or row["max"] > best[key]["max"]:
            best[key] = row
    return [
        f"{node} {entity}: {resource} {row['max']:g} of {row['limit']:g}"
        for (node, entity, resource), row in best.items()
        if row["max"] < row["limit"]
    ]


def link_states() -> set[str]:
    """Return the resources that are the state of a link, not a use of it."""
    return {one["resource"] for one in table("use")["resources"] if one.get("link")}


class _Values(NamedTuple):
    """Values of a series inside a segment, and over how long each was computed (ns; 0: a gauge)."""

    value: list[float]
    lengths_ns: list[float]


def _series(repeat: Repeat) -> dict[Series, _Values]:
    """Return the values inside the segments of the metrics that have limits, and of the limits."""
    if not repeat.metrics or repeat.attempt is None:
        return {}
    columns = [*_KEYS, "inside", "value", "t_ns", "from_ns"]
    found = read_table(repeat.folder / "telemetry.parquet", repeat.attempt, columns)
    if found is None:
        return {}
    resources = table("use")["resources"]
    wanted = [one[key] for one in resources for key in ("metric", "limit") if key in one]
    metrics = found["metric"].cast(pa.string())
    inside = found.filter(pc.and_(found["inside"], pc.is_in(metrics, value_set=pa.array(wanted))))
    result: dict[Series, _Values] = {}
    lists = [inside[name].to_pylist() for name in (*_KEYS, "value", "t_ns", "from_ns")]
    for *key, value, t_ns, from_ns in zip(*lists, strict=True):
        segment, node, collector, entity, metric = key
        own = result.setdefault((segment, node, collector, entity, metric), _Values([], []))
        own.value.append(value)
        own.lengths_ns.append(0.0 if from_ns is None else float(t_ns - from_ns))
    return result


def _resources(metric: str) -> list[Row]:
    return [one for one in table("use")["resources"] if one["metric"] == metric]


def _sampled(resource: Row, own: list[float]) -> Limit | None:
    """Return the largest limit that held in a segment; None where the frozen facts are asked."""
    known = [value for value in own if value > 0]
    if known:
        return Limit(max(known) * resource["factor"], resource["limit"])
    return None if "frozen" in resource else _SHARE


def _has_limit(resource: Row, entity: str, rails: Iterable[str], facts: Row) -> bool:
    """Return whether an entity has a limit of that kind: of interfaces, rails and devices have."""
    if resource.get("frozen") != "interface" or entity in rails:
        return True
    interfaces = mapping(mapping(facts.get("nics")).get("interfaces"))
    return mapping(interfaces.get(entity)).get("bus_address") is not None


def _row(repeat: Repeat, place: Row, resource: Row, values: _Values, limit: Limit) -> Row:
    figures = distribution(values.value) or {}
    points = {name: figures.get(name) for name in ("n", "mean", "p95", "max")}
    points["mean"] = mean_over(np.array(values.value), np.array(values.lengths_ns))
    shares = {
        f"{name}_share": None if limit.value is None or value is None else value / limit.value
        for name, value in points.items()
        if name != "n"
    }
    return {
        "variant": repeat.variant,
        "case": repeat.case,
        "repeat": repeat.repeat,
        "attempt": repeat.attempt,
        "verdict": repeat.verdict,
        **place,
        "resource": resource["resource"],
        "unit": resource["unit"],
        **points,
        "limit": limit.value,
        "limit_source": limit.source,
        **shares,
    }
