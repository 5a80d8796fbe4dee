"""The table of collectors, as data: `catalogue.yaml` beside this file."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import yaml

from servemap.model.errors import ConfigError
from servemap.parsers.fields import Field, Reading
from servemap.parsers.pages import PAGES
from servemap.parsers.printed import PRINTED
from servemap.telemetry.collectors import Collector, Kind, Metric, Probe, Tool

_COMMON = frozenset(
    {"kind", "interval_s", "parser", "required", "families", "missing", "by_default", "engines"}
)
_READ = _COMMON | {"entity", "name"}
_PROBED = _READ | {"probe", "remedy"}
_RUN = _PROBED | {"argv", "least_interval_s", "unless"}
_KEYS: dict[Kind, frozenset[str]] = {
    "proc": _COMMON,
    "http": _COMMON,
    "files": _PROBED | {"paths"},
    "log": _READ | {"keep"},
    "poll": _RUN | {"each", "keep", "any_status"},
    "command": _RUN | {"otherwise", "probe_kind"},
}
DECLARED = "declared"
"""The table of metrics that a campaign declares and the catalogue does not know."""


class EngineMetrics(NamedTuple):
    """What one engine calls its request gauges, its prefix-cache counters and its preemptions."""

    running: str
    waiting: str
    cache_hits: str
    cache_queries: tuple[str, ...]
    preemptions: str | None


class Busiest(NamedTuple):
    """A table that shows the `most` entities of a node with the highest mean of a metric.

    The metric is the first of `by` that any of them has.
    """

    most: int
    by: tuple[str, ...]


def parse_catalogue(document: str) -> dict[str, Collector]:
    """Return the collectors of a catalogue; ConfigError names the collector that is wrong."""
    content = yaml.safe_load(document)
    if not isinstance(content, dict) or content.get("schema") != 1:
        raise ConfigError("not a catalogue of schema 1", "telemetry catalogue", "set `schema: 1`")
    words = content.get("words", {})
    return {name: _collector(name, row, words) for name, row in content["collectors"].items()}


def _collector(name: str, row: dict[str, Any], words: Mapping[str, Any]) -> Collector:
    def refuse(what: str) -> ConfigError:
        return ConfigError(what, f"telemetry catalogue, collector {name}", "correct the entry")

    kind = next((known for known in _KEYS if known == row.get("kind")), None)
    if kind is None:
        raise refuse(f"kind {row.get('kind')!r} is not one of {', '.join(_KEYS)}")
    unknown = set(row) - _KEYS[kind]
    if unknown:
        raise refuse(f"unknown keys {sorted(unknown)}")
    interval = row.get("interval_s")
    if not isinstance(interval, int | float) or interval <= 0:
        raise refuse(f"interval_s {interval!r} is not a positive number of seconds")
    families = {
        family: tuple(
            Metric(item["metric"], item["unit"], item["what"], item.get("entities", ".*"))
            for item in metrics
        )
        for family, metrics in row["families"].items()
    }
    collector = Collector(
        name,
        kind,
        float(interval),
        row["parser"],
        bool(row["required"]),
        families,
        row["missing"],
        engines=tuple(row.get("engines", ())),
        by_default=bool(row.get("by_default", True)),
    )
    if kind in ("proc", "http"):
        return collector
    parsers = sorted({*PAGES, *PRINTED} if kind == "command" else PAGES)
    if row["parser"] not in parsers:
        raise refuse(f"parser {row['parser']!r} is not one of {', '.join(parsers)}")
    return collector._replace(
        tool=_tool(row) if kind in ("command", "poll") else None,
        probe=_probe(row) if kind != "log" else None,
        paths=tuple(row.get("paths", ())),
        keep=tuple(row.get("keep", ())),
        reading=_reading(row, words),
    )


def _tool(row: dict[str, Any]) -> Tool:
    choices = [row["argv"], *row.get("otherwise", [])]
    return Tool(
        tuple(tuple(argv) for argv in choices),
        float(row["least_interval_s"]),
        row.get("each"),
        row.get("unless"),
        bool(row.get("any_status", False)),
    )


def _probe(row: dict[str, Any]) -> Probe:
    return Probe(tuple(row["probe"]), row["remedy"], row.get("probe_kind"))


def _reading(row: dict[str, Any], words: Mapping[str, Any]) -> Reading:
    fields = tuple(
        Field(
            item["metric"],
            item["unit"],
            tuple(item["fields"]),
            bool(item.get("counter", False)),
            float(item.get("scale", 1)),
            words[item["words"]] if "words" in item else None,
            item.get("over"),
            tuple(item.get("but", ())),
        )
        for metrics in row["families"].values()
        for item in metrics
        if "fields" in item
    )
    return Reading(row["parser"], row["entity"], fields, row.get("name"))


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


@cache
def busiest() -> dict[str, Busiest]:
    """Return the tables that show the busiest entities only, by family."""
    return {
        family: Busiest(row["most"], tuple(row["by"]))
        for family, row in yaml.safe_load(_document())["busiest"].items()
    }


def metric_of(metric: str) -> tuple[str, Metric] | None:
    """Return the table and the entry of a metric that some collector has by its whole name."""
    for known in catalogue().values():
        for family, metrics in known.families.items():
            for entry in metrics:
                if entry.metric == metric:
                    return family, entry
    return None


def family_of(collector: str, metric: str, entity: str | None = None) -> str | None:
    """Return the table that a collector's metric of an entity belongs to; None where none does.

    What a campaign declares belongs where other collectors have the metric, else to `declared`.
    """
    known = catalogue().get(collector)
    if known is None:
        found = metric_of(metric)
        return found[0] if found else DECLARED
    for family, metrics in known.families.items():
        if any(entry.fits(metric, entity) for entry in metrics):
            return family
    return None


def families() -> tuple[str, ...]:
    """Return every table's name in the catalogue's order, what campaigns declare last."""
    named = [family for collector in catalogue().values() for family in collector.families]
    return (*dict.fromkeys(named), DECLARED)
