"""Collectors that a campaign declares: a command, and how the table that it prints is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from servemap.model.collectors import CollectorTable
from servemap.parsers.columns import COLUMNS
from servemap.parsers.fields import Field, Reading
from servemap.telemetry.catalogue import DECLARED, catalogue, metric_of
from servemap.telemetry.collectors import Collector, Metric, Probe, Tool

INTERVAL_S = 2.0
LEAST_INTERVAL_S = 0.5


def declared_collector(name: str, table: CollectorTable, argv: Sequence[str] = ()) -> Collector:
    """Return a collector that runs `argv` for each sample and reads a table of it."""
    families: dict[str, list[Metric]] = {}
    for column in table.columns:
        found = metric_of(column.metric)
        metric = Metric(column.metric, column.unit, f"column {column.column}")
        families.setdefault(found[0] if found else DECLARED, []).append(metric)
    before, heading, after = table.entity_parts()
    reading = Reading(
        COLUMNS,
        f"{before}{{entity}}{after}",
        tuple(
            Field(one.metric, one.unit, (one.column,), one.counter, one.scale)
            for one in table.columns
        ),
        columns=tuple(dict.fromkeys([heading, *(one.column for one in table.columns)])),
    )
    return Collector(
        name,
        "poll",
        INTERVAL_S,
        COLUMNS,
        False,
        {family: tuple(metrics) for family, metrics in families.items()},
        "the command fails, or prints no line with the headings",
        tool=Tool((tuple(argv),), LEAST_INTERVAL_S),
        probe=Probe(tuple(argv), f"look what `{' '.join(argv)}` says, or set required to false"),
        reading=reading,
        table=table.model_dump(mode="json"),
    )


def known_collector(name: str, record: Mapping[str, Any]) -> Collector | None:
    """Return a collector of the catalogue, or one by the table that its record has; else None."""
    known = catalogue().get(name)
    if known is not None or not isinstance(record.get("table"), dict):
        return known
    try:
        return declared_collector(name, CollectorTable.model_validate(record["table"]))
    except ValidationError:
        return None
