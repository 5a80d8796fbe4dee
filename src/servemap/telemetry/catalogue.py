"""The table of collectors, as data: `catalogue.yaml` beside this file."""

from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

import yaml

from servemap.model.errors import ConfigError

Kind = Literal["proc", "http", "command"]
_KINDS: tuple[Kind, ...] = ("proc", "http", "command")


class Metric(NamedTuple):
    """One metric of a table: its name (a prefix where it ends in *), unit and meaning."""

    metric: str
    unit: str
    what: str


class Collector(NamedTuple):
    """One collector: how it runs, its default interval (s), its parser and its tables."""

    name: str
    kind: Kind
    interval_s: float
    parser: str
    required: bool
    families: dict[str, tuple[Metric, ...]]


class EngineMetrics(NamedTuple):
    """What one engine calls its request gauges, its prefix-cache counters and its preemptions."""

    running: str
    waiting: str
    cache_hits: str
    cache_queries: tuple[str, ...]
    preemptions: str | None


def parse_catalogue(document: str) -> dict[str, Collector]:
    """Return the collectors of a catalogue; ConfigError names the collector that is wrong."""
    content = yaml.safe_load(document)
    if not isinstance(content, dict) or content.get("schema") != 1:
        raise ConfigError("not a catalogue of schema 1", "telemetry catalogue", "set `schema: 1`")
    return {name: _collector(name, row) for name, row in content["collectors"].items()}


def _collector(name: str, row: dict[str, Any]) -> Collector:
    def refuse(what: str) -> ConfigError:
        return ConfigError(what, f"telemetry catalogue, collector {name}", "correct the entry")

    unknown = set(row) - {"kind", "interval_s", "parser", "required", "families"}
    if unknown:
        raise refuse(f"unknown keys {sorted(unknown)}")
    kind = next((known for known in _KINDS if known == row.get("kind")), None)
    if kind is None:
        raise refuse(f"kind {row.get('kind')!r} is not one of {', '.join(_KINDS)}")
    interval = row.get("interval_s")
    if not isinstance(interval, int | float) or interval <= 0:
        raise refuse(f"interval_s {interval!r} is not a positive number of seconds")
    families = {
        family: tuple(Metric(item["metric"], item["unit"], item["what"]) for item in metrics)
        for family, metrics in row["families"].items()
    }
    return Collector(name, kind, float(interval), row["parser"], bool(row["required"]), families)


@cache
def _document() -> str:
    file = resources.files("servemap.telemetry").joinpath("catalogue.yaml")
    return file.read_text(encoding="utf-8")


@cache
def catalogue() -> dict[str, Collector]:
    """Return the collectors by name."""
    return parse_catalogue(_document())


@cache
def engine_metrics() -> dict[str, EngineMetrics]:
    """Return what engines call the same things, by engine."""
    return {
        name: EngineMetrics(
            row["running"],
            row["waiting"],
            row["cache_hits"],
            tuple(row["cache_queries"]),
            row.get("preemptions"),
        )
        for name, row in yaml.safe_load(_document())["engines"].items()
    }


def family_of(collector: str, metric: str) -> str | None:
    """Return the table that a collector's metric belongs to; None where no table names it."""
    known = catalogue().get(collector)
    for family, metrics in (known.families if known else {}).items():
        for entry in metrics:
            prefix = entry.metric.removesuffix("*")
            if metric == entry.metric or (prefix != entry.metric and metric.startswith(prefix)):
                return family
    return None


def families() -> tuple[str, ...]:
    """Return every table's name in the catalogue's order."""
    return tuple(family for collector in catalogue().values() for family in collector.families)
