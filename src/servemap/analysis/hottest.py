"""Tables of many alike entities, of which only the busiest are shown."""

from collections.abc import Sequence

from servemap.analysis.telemetry_rows import SeriesRow
from servemap.telemetry.catalogue import Busiest, busiest


def keep_busiest(rows: Sequence[SeriesRow]) -> list[SeriesRow]:
    """Return the rows that tables show: of some families those of the busiest entities.

    Of each segment, part and node the entities with the highest mean stay, with all their metrics,
    the busiest one first; entities of the same mean in the order of their names.
    """
    places: dict[tuple[str, ...], list[SeriesRow]] = {}
    for row in rows:
        if row.family in busiest():
            place = (row.family, row.segment, row.part, row.node)
            places.setdefault(place, []).append(row)
    kept = [row for row in rows if row.family not in busiest()]
    for (family, *_), own in places.items():
        kept += _busiest(own, busiest()[family])
    return kept


def _busiest(rows: Sequence[SeriesRow], shown: Busiest) -> list[SeriesRow]:
    told = {row.metric for row in rows if row.figures.mean is not None}
    by = next((metric for metric in shown.by if metric in told), None)
    means = {
        row.entity: row.figures.mean
        for row in rows
        if row.metric == by and row.figures.mean is not None
    }
    order = sorted(means, key=lambda entity: (-means[entity], len(entity), entity))
    return [row for entity in order[: shown.most] for row in rows if row.entity == entity]
