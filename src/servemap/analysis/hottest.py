"""Tables of many alike entities, of which only the busiest are shown."""

from collections.abc import Sequence
from typing import Any

from servemap.telemetry.catalogue import busiest


def keep_busiest(family: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table that are shown: of some families those of the busiest entities.

    Args:
        family: the table's name.
        rows: rows of one repeat, with segment, node, entity, metric and mean.

    Of each segment and node the entities with the highest mean stay, with all their metrics, the
    busiest one first; entities of the same mean in the order of their names.
    """
    shown = busiest().get(family)
    if shown is None:
        return list(rows)
    kept: list[dict[str, Any]] = []
    places = dict.fromkeys((row["segment"], row["node"]) for row in rows)
    for place in places:
        own = [row for row in rows if (row["segment"], row["node"]) == place]
        told = {row["metric"] for row in own}
        by = next((metric for metric in shown.by if metric in told), None)
        means = {row["entity"]: row["mean"] for row in own if row["metric"] == by}
        known = [entity for entity, mean in means.items() if isinstance(mean, int | float)]
        order = sorted(known, key=lambda entity: (-means[entity], len(entity), entity))
        for entity in order[: shown.most]:
            kept += [row for row in own if row["entity"] == entity]
    return kept
