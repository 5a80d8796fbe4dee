"""What the started servers said of themselves: settings in force and memory of each rank."""

from typing import Any

from servemap.parsers.values import mapping, sequence, text
from servemap.report.document import Cell, Table, cell
from servemap.report.numbers import size
from servemap.report.run import Run

_PARTS = ("weights", "kv", "graphs", "rest")


def said_tables(run: Run) -> list[Table]:
    """Return a table of the settings by variant and one of the memory; those without rows not."""
    gates = {variant: mapping(record.get("gate")) for variant, record in run.launches.items()}
    tables = []
    if settings := _settings(gates):
        tables.append(
            Table(
                ["Setting", *gates],
                settings,
                caption="Settings in force, as the server said them after its first start",
            )
        )
    if memory := _memory(gates):
        tables.append(
            Table(
                ["Variant", "Node", "Rank", "Weights", "KV cache", "Graphs", "Rest"],
                memory,
                frozenset({"Weights", "KV cache", "Graphs", "Rest"}),
                "Memory of each rank, as its log says; an empty cell was not said",
            )
        )
    return tables


def _settings(gates: dict[str, dict[str, Any]]) -> list[list[Cell]]:
    said = {
        variant: mapping(mapping(gate.get("effective")).get("settings"))
        for variant, gate in gates.items()
    }
    names = dict.fromkeys(name for settings in said.values() for name in settings)
    return [
        [Cell(name), *(cell(settings.get(name)) for settings in said.values())] for name in names
    ]


def _memory(gates: dict[str, dict[str, Any]]) -> list[list[Cell]]:
    return [
        [
            Cell(variant),
            Cell(node),
            cell(text(rank.get("rank"))),
            *(Cell(size(rank.get(f"{part}_bytes"))) for part in _PARTS),
        ]
        for variant, gate in gates.items()
        for node, ranks in mapping(gate.get("memory")).items()
        for rank in map(mapping, sequence(ranks))
    ]
