"""The table of collectors, as data: `catalogue.yaml` beside this file."""

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

import yaml

from servemap.model.errors import ConfigError
from servemap.parsers.readings import PAGES, PRINTED, Field, Reading

Kind = Literal["proc", "http", "command", "files"]
_KINDS: tuple[Kind, ...] = ("proc", "http", "command", "files")
_COMMON = frozenset({"kind", "interval_s", "parser", "required", "families"})
_READ = frozenset({"entity", "name"})
_KEYS: dict[Kind, frozenset[str]] = {
    "proc": _COMMON,
    "http": _COMMON,
    "files": _COMMON | _READ | {"paths"},
    "command": _COMMON
    | _READ
    | {"argv", "otherwise", "least_interval_s", "probe", "probe_kind", "remedy"},
}


class Metric(NamedTuple):
    """One metric of a table: its name (a prefix where it ends in *), unit and meaning."""

    metric: str
    unit: str
    what: str


class Tool(NamedTuple):
    """A program of the node that prints until it is stopped.

    Args:
        choices: the argv, and others for versions of the tool that do not know all its options.
        least_interval_s: the shortest interval that it can be asked for.
        probe: a command that succeeds where the tool has something to say.
        remedy: what to do where that fails.
        probe_kind: the kind of `servemap parse` whose `status` must be `ok` besides; None if none.
    """

    choices: tuple[tuple[str, ...], ...]
    least_interval_s: float
    probe: tuple[str, ...]
    remedy: str
    probe_kind: str | None = None

    def possible_s(self, interval_s: float) -> float:
        """Return the shortest interval that the tool knows and that is not shorter than this."""
        longer_s = max(interval_s, self.least_interval_s)
        whole = any("{interval_s}" in word for argv in self.choices for word in argv)
        return float(math.ceil(longer_s)) if whole else longer_s

    def commands(self, interval_s: float) -> list[list[str]]:
        """Return the argv of each choice for an interval that is possible."""
        said = {"interval_ms": str(round(interval_s * 1000)), "interval_s": f"{interval_s:.0f}"}
        return [[word.format_map(said) for word in argv] for argv in self.choices]


class Collector(NamedTuple):
    """One collector: how it runs, its default interval (s), its parser and its tables.

    A `command` has a tool, `files` have paths (glob); both have a reading.
    """

    name: str
    kind: Kind
    interval_s: float
    parser: str
    required: bool
    families: dict[str, tuple[Metric, ...]]
    tool: Tool | None = None
    paths: tuple[str, ...] = ()
    reading: Reading | None = None


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
    words = content.get("words", {})
    return {name: _collector(name, row, words) for name, row in content["collectors"].items()}


def _collector(name: str, row: dict[str, Any], words: Mapping[str, Any]) -> Collector:
    def refuse(what: str) -> ConfigError:
        return ConfigError(what, f"telemetry catalogue, collector {name}", "correct the entry")

    kind = next((known for known in _KINDS if known == row.get("kind")), None)
    if kind is None:
        raise refuse(f"kind {row.get('kind')!r} is not one of {', '.join(_KINDS)}")
    unknown = set(row) - _KEYS[kind]
    if unknown:
        raise refuse(f"unknown keys {sorted(unknown)}")
    interval = row.get("interval_s")
    if not isinstance(interval, int | float) or interval <= 0:
        raise refuse(f"interval_s {interval!r} is not a positive number of seconds")
    families = {
        family: tuple(Metric(item["metric"], item["unit"], item["what"]) for item in metrics)
        for family, metrics in row["families"].items()
    }
    collector = Collector(
        name, kind, float(interval), row["parser"], bool(row["required"]), families
    )
    if kind not in ("command", "files"):
        return collector
    parsers = sorted(PRINTED if kind == "command" else PAGES)
    if row["parser"] not in parsers:
        raise refuse(f"parser {row['parser']!r} is not one of {', '.join(parsers)}")
    return collector._replace(
        tool=_tool(row) if kind == "command" else None,
        paths=tuple(row.get("paths", ())),
        reading=_reading(row, words),
    )


def _tool(row: dict[str, Any]) -> Tool:
    choices = [row["argv"], *row.get("otherwise", [])]
    return Tool(
        tuple(tuple(argv) for argv in choices),
        float(row["least_interval_s"]),
        tuple(row["probe"]),
        row["remedy"],
        row.get("probe_kind"),
    )


def _reading(row: dict[str, Any], words: Mapping[str, Any]) -> Reading:
    fields = tuple(
        Field(
            item["metric"],
            item["unit"],
            tuple(item["fields"]),
            bool(item.get("counter", False)),
            float(item.get("scale", 1)),
            words[item["words"]] if "words" in item else None,
        )
        for metrics in row["families"].values()
        for item in metrics
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
