"""tables/hardware_use.csv: HCAs, power and memory of cards beside their limits, where measured."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from servemap.analysis.bounds.known import table
from servemap.analysis.bounds.pcie import links
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import distribution
from servemap.analysis.store import read_table
from servemap.parsers.network.link_rate import read_rate
from servemap.parsers.values import mapping, text

COLUMNS = (
    *("variant", "case", "repeat", "attempt", "verdict", "segment", "node", "entity", "resource"),
    *("unit", "n", "mean", "p95", "max", "limit", "limit_source"),
    *("mean_share", "p95_share", "max_share"),
)
_KEYS = ("segment", "node", "collector", "entity", "metric")

Row = dict[str, Any]
Series = tuple[str, str, str, str, str]


class _Limit(NamedTuple):
    """The largest limit that held in a segment, in the metric's unit, and where it is from."""

    value: float | None
    source: str | None


def use_rows(
    repeats: Iterable[Repeat], facts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of tables/hardware_use.csv; a limit that is not known is None.

    Args:
        repeats: planned repeats.
        facts: frozen facts by node.
    """
    rows = []
    for repeat in repeats:
        series = _series(repeat)
        for (segment, node, collector, entity, metric), values in series.items():
            for resource in table("use")["resources"]:
                if resource["metric"] == metric and values:
                    key = (segment, node, collector, entity, resource.get("limit", ""))
                    limit = _limit(resource, series.get(key, []), mapping(facts.get(node)), entity)
                    place = {"segment": segment, "node": node, "entity": entity}
                    rows.append(_row(repeat, place, resource, values, limit))
    return rows


def _series(repeat: Repeat) -> dict[Series, list[float]]:
    """Return the values inside the segments of the metrics that have limits, and of the limits."""
    if not repeat.metrics or repeat.attempt is None:
        return {}
    columns = [*_KEYS, "inside", "value"]
    found = read_table(repeat.folder / "telemetry.parquet", repeat.attempt, columns)
    if found is None:
        return {}
    resources = table("use")["resources"]
    wanted = [one[key] for one in resources for key in ("metric", "limit") if key in one]
    metrics = found["metric"].cast(pa.string())
    inside = found.filter(pc.and_(found["inside"], pc.is_in(metrics, value_set=pa.array(wanted))))
    result: dict[Series, list[float]] = {}
    lists = [inside[name].to_pylist() for name in (*_KEYS, "value")]
    for *key, value in zip(*lists, strict=True):
        segment, node, collector, entity, metric = key
        result.setdefault((segment, node, collector, entity, metric), []).append(value)
    return result


def _limit(resource: Row, own: list[float], facts: Row, entity: str) -> _Limit:
    if "limit" not in resource and "frozen" not in resource:
        return _Limit(1.0, "the metric is a share")
    known = [value for value in own if value > 0]
    if known:
        return _Limit(max(known) * resource["factor"], resource["limit"])
    if resource.get("frozen") == "hca":
        bits = _frozen_rate(facts, entity)
        if bits is not None:
            return _Limit(bits * resource["factor"], "frozen rate of the port")
    if resource.get("frozen") == "pcie":
        return _pcie_limit(facts, entity)
    return _Limit(None, None)


def _pcie_limit(facts: Row, entity: str) -> _Limit:
    """Return what the link of a card named GPU0, gpu1 ... carries in a direction."""
    found = re.fullmatch(r"gpu ?(\d+)", entity, re.IGNORECASE)
    own = dict(enumerate(links(facts))).get(int(found[1])) if found else None
    if own is None or own.bytes_per_s is None:
        return _Limit(None, None)
    source = f"frozen PCIe link: generation {own.generation}, {own.width} lanes"
    if own.width < own.max_width:
        source += f" of {own.max_width}: fewer than the card has"
    return _Limit(own.bytes_per_s, source)


def _frozen_rate(facts: Row, entity: str) -> int | None:
    """Return the bits/s of a port named DEVICE:PORT, None where it is down or not in the facts."""
    device, _, port = entity.partition(":")
    found = mapping(mapping(mapping(facts.get("nics")).get("rdma")).get(device))
    record = mapping(mapping(found.get("ports")).get(port))
    active = (text(record.get("state")) or "").endswith("ACTIVE")
    rate = text(record.get("rate"))
    return read_rate(rate) if active and rate else None


def _row(repeat: Repeat, place: Row, resource: Row, values: list[float], limit: _Limit) -> Row:
    figures = distribution(values) or {}
    points = {name: figures.get(name) for name in ("n", "mean", "p95", "max")}
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
