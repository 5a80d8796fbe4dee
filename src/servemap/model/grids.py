"""Grids: every combination of some variables' values, each a variant named by its values."""

import re
from dataclasses import dataclass
from itertools import product
from typing import Any

from servemap.model.campaign import Axis, Campaign, Grid, Level, Variant
from servemap.model.errors import ConfigError
from servemap.model.resolve import changed_keys, variant_server

UNSET = "unset"
"""Name of the value null: the key is taken away, or is not given in the first place."""


@dataclass(frozen=True)
class Cell:
    """One combination: the variant that measures it, and {variable: name of its value}.

    The combination that is the server spec itself is measured as the variant that changes nothing.
    """

    variant: Variant
    levels: dict[str, str]


def levels_of(campaign: Campaign, axis: Axis) -> list[Level]:
    """Return an axis as named sets of keys; a plain value sets its variable's only key."""
    if axis.levels:
        return list(axis.levels)
    key = next(item.keys[0] for item in campaign.variables if item.id == axis.variable)
    return [Level.model_construct(id=value_name(value), set={key: value}) for value in axis.values]


def value_name(value: Any) -> str:
    """Return how a value is spelled in a name: lower-case letters, digits and `-`.

    No name has a `_`, so that the parts of a cell's name can be told apart. It is empty where
    nothing is left of the value.
    """
    if value is None:
        return UNSET
    if isinstance(value, list):
        return "-".join(map(value_name, value))
    name = re.sub(r"[^a-z0-9]+", "-", str(value).lower())
    return "" if name == "-" else name


def cell_name(levels: dict[str, str]) -> str:
    """Return the name of a combination: `VARIABLE-VALUE`, joined by `_`, in the grid's order."""
    return "_".join(f"{variable}-{value_name(level)}" for variable, level in levels.items())


def cells_of(campaign: Campaign) -> dict[str, list[Cell]]:
    """Return the cells of each grid by its id, the last axis varying fastest.

    Raises:
        ConfigError: a name is too long, or a value does not fit its key.
    """
    unchanged = next((v for v in campaign.variants if not v.set and v.variable is None), None)
    return {
        grid.id: [
            _cell(campaign, grid, dict(zip(names, combination, strict=True)), unchanged)
            for names in [[axis.variable for axis in grid.axes]]
            for combination in product(*(levels_of(campaign, axis) for axis in grid.axes))
        ]
        for grid in campaign.grids
    }


def variants_of(campaign: Campaign) -> list[Variant]:
    """Return the variants of the file, then those of the grids' cells, each once."""
    variants = {variant.id: variant for variant in campaign.variants}
    for cells in cells_of(campaign).values():
        for cell in cells:
            variants.setdefault(cell.variant.id, cell.variant)
    return list(variants.values())


def _cell(
    campaign: Campaign, grid: Grid, chosen: dict[str, Level], unchanged: Variant | None
) -> Cell:
    levels = {variable: level.id for variable, level in chosen.items()}
    name = cell_name(levels)
    if len(name) > 64:
        raise ConfigError(
            f"the name {name!r} of a cell has {len(name)} characters, 64 are the most",
            f"grids.{grid.id}",
            "shorten the variables' ids, or name the values with `levels`",
        )
    given = campaign.server.model_dump(mode="json")
    settings = {
        key: value
        for level in chosen.values()
        for key, value in level.set.items()
        if value is not None or _gives(given, key)
    }
    variant = Variant(id=name, set=settings)
    if unchanged and not changed_keys(campaign.server, variant_server(campaign, variant)):
        variant = unchanged
    return Cell(variant, levels)


def _gives(server: dict[str, Any], key: str) -> bool:
    """Whether a server spec has a key, so that null has something to take away."""
    parent, _, name = key.partition(".")
    return parent not in ("args", "env", "request") or name in server[parent]
