"""Which variants may be compared: those that differ in one variable alone."""

from typing import Any

from servemap.model.campaign import Campaign, Variant
from servemap.model.grids import cells_of, variants_of
from servemap.model.resolve import flat_server, variant_server

_ABSENT = object()


def compared_with(campaign: Campaign) -> dict[str, list[str]]:
    """Return for each variant those that its change may be told against, the best first.

    They differ from it in one variable, and come before it: what changes nothing first, then the
    others in the planned order. So a cell of a grid is compared with its one-step neighbours.
    """
    variables = {variable.id: variable.keys for variable in campaign.variables}
    bundles = {v.id: [variables[v.variable]] for v in campaign.variants if v.variable is not None}
    for cells in cells_of(campaign).values():
        for cell in cells:
            bundles.setdefault(cell.variant.id, []).extend(variables[name] for name in cell.levels)
    plain = flat_server(campaign.server)
    changes = {v.id: _changes(campaign, v, plain) for v in variants_of(campaign)}
    order = sorted(changes, key=lambda name: bool(changes[name]))
    return {
        name: [
            other
            for other in order[:position]
            if _one_step(
                _differing(changes[name], changes[other]),
                bundles.get(name, []) + bundles.get(other, []),
            )
        ]
        for position, name in enumerate(order)
    }


def covers(keys: list[str], key: str) -> bool:
    """Whether a variable with these keys may change a key: its own, or one below."""
    return any(key == owned or key.startswith(f"{owned}.") for owned in keys)


def _changes(campaign: Campaign, variant: Variant, plain: dict[str, Any]) -> dict[str, Any]:
    """Return the leaf keys in which a variant differs from the server spec, with its values."""
    flat = flat_server(variant_server(campaign, variant))
    return {
        key: flat.get(key, _ABSENT)
        for key in plain.keys() | flat.keys()
        if plain.get(key, _ABSENT) != flat.get(key, _ABSENT)
    }


def _differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the keys in which two variants differ; what neither changes they have in common."""
    missing = object()
    return [
        key for key in one.keys() | other.keys() if one.get(key, missing) != other.get(key, missing)
    ]


def _one_step(differing: list[str], bundles: list[list[str]]) -> bool:
    """Whether there is a difference, and all of it is of one variable."""
    return bool(differing) and any(all(covers(keys, key) for key in differing) for keys in bundles)
