"""Rules for grids: each axis a variable of its own, each value a name of its own."""

from collections import Counter
from math import prod

from servemap.model.campaign import Axis, Campaign, Grid, Variable, Variant
from servemap.model.canon import digest
from servemap.model.check_nodes import known
from servemap.model.check_server import check_server
from servemap.model.errors import ConfigError
from servemap.model.grids import Cell, cells_of, levels_of, value_name
from servemap.model.resolve import variant_server
from servemap.model.steps import covers

MAX_CELLS = 256


def check_grids(campaign: Campaign) -> None:
    """Refuse grids whose cells could not be named, told apart or compared.

    Raises:
        ConfigError: the first rule that is broken.
    """
    variables = {variable.id: variable for variable in campaign.variables}
    for grid in campaign.grids:
        where = f"grids.{grid.id}"
        for axis in grid.axes:
            known(axis.variable, variables, f"{where}.axes", "variable")
        _check_apart(grid, variables)
        for axis in grid.axes:
            _check_axis(campaign, axis, variables[axis.variable], f"{where}.{axis.variable}")
        count = prod(len(levels_of(campaign, axis)) for axis in grid.axes)
        if count > MAX_CELLS:
            raise ConfigError(
                f"grid {grid.id!r} has {count} cells, each a server; {MAX_CELLS} are the most",
                where,
                "give fewer values, or split the grid",
            )
    _check_cells(campaign)


def _check_apart(grid: Grid, variables: dict[str, Variable]) -> None:
    """Refuse a grid in which two axes change the same key."""
    for position, axis in enumerate(grid.axes):
        for other in grid.axes[:position]:
            mine, others = variables[axis.variable].keys, variables[other.variable].keys
            shared = [key for key in mine if covers(others, key)]
            shared += [key for key in others if covers(mine, key)]
            if shared:
                raise ConfigError(
                    f"the axes {other.variable!r} and {axis.variable!r} both change {shared[0]}",
                    f"grids.{grid.id}.axes",
                    "give each variable keys of its own",
                )


def _check_axis(campaign: Campaign, axis: Axis, variable: Variable, where: str) -> None:
    if axis.values and len(variable.keys) > 1:
        raise ConfigError(
            f"variable {variable.id!r} has {len(variable.keys)} keys, so a value alone does not "
            "say what it sets",
            f"{where}.values",
            "name each value with `levels: [{ id: NAME, set: { KEY: VALUE } }]`",
        )
    levels = levels_of(campaign, axis)
    names = Counter(value_name(level.id) for level in levels)
    for name, count in names.items():
        if not name or count > 1:
            raise ConfigError(
                f"{count} values of {variable.id!r} have the same name {name!r}"
                if name
                else f"a value of {variable.id!r} has no letter or digit to name it by",
                where,
                "name each value with `levels: [{ id: NAME, set: { KEY: VALUE } }]`",
            )
    for level in levels:
        outside = sorted(key for key in level.set if not covers(variable.keys, key))
        if outside:
            raise ConfigError(
                f"the value {level.id!r} sets {', '.join(outside)}, which is not of its variable "
                f"{variable.id!r} ({', '.join(variable.keys)})",
                f"{where}.levels.{level.id}",
                "make that key an axis of its own, or add it to the variable",
            )


def _check_cells(campaign: Campaign) -> None:
    """Refuse a cell that is the same server as another variant, or that has its name."""
    names = {variant.id for variant in campaign.variants}
    servers = {_digest(campaign, variant): variant.id for variant in campaign.variants}
    for grid_id, cells in cells_of(campaign).items():
        where = f"grids.{grid_id}"
        for cell in cells:
            if cell.variant in campaign.variants:
                continue  # the combination that the server spec is
            _check_cell(campaign, cell, where)
            name, same = cell.variant.id, _digest(campaign, cell.variant)
            if name in names or same in servers:
                raise ConfigError(
                    f"the cell {name!r} is measured already, as {servers.get(same, name)!r}",
                    where,
                    "keep one of the two",
                )
            names.add(name)
            servers[same] = name


def _check_cell(campaign: Campaign, cell: Cell, where: str) -> None:
    server = variant_server(campaign, cell.variant)
    if server.attach:
        raise ConfigError(
            f"the cell {cell.variant.id!r} changes a server that is only attached to",
            where,
            "remove `server.attach`, or measure the other servers as runs of their own",
        )
    check_server(server, where)


def _digest(campaign: Campaign, variant: Variant) -> str:
    return digest(variant_server(campaign, variant).model_dump(mode="json"))
