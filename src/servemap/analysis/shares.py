"""Rows that follow from others: balance between the rails of a node, the cores in most use."""

import re
from collections.abc import Sequence

from servemap.analysis.series_figures import SeriesFigures
from servemap.analysis.telemetry_rows import SeriesRow

ALL_RAILS = "rails"
BALANCED = ("hca_rx", "hca_tx")
HOT_CORES = "hot_cores"
MOST_CORES = 8
_CORE = re.compile(r"cpu[0-9]+")


def balance_rows(rows: Sequence[SeriesRow]) -> list[SeriesRow]:
    """Return how a node's traffic is spread over its rails, from the means of each.

    Each rail has its share of the sum (`hca_tx_share`), the entity `rails` the largest mean over
    the mean of all (`hca_tx_balance`): 1 is even, the number of rails is all on one. None where a
    node has one rail or none of them moved anything.
    """
    groups: dict[tuple[str, ...], list[SeriesRow]] = {}
    for row in rows:
        if row.metric in BALANCED and row.figures.mean is not None:
            key = (row.segment, row.part, row.node, row.collector, row.metric)
            groups.setdefault(key, []).append(row)
    found = []
    for own in groups.values():
        means = [row.figures.mean or 0.0 for row in own]
        if len(own) < 2 or sum(means) <= 0:
            continue
        for row, mean in zip(own, means, strict=True):
            share = SeriesFigures(row.figures.n, mean=mean / sum(means))
            found.append(row._replace(metric=f"{row.metric}_share", unit="share", figures=share))
        even = SeriesFigures(len(own), mean=max(means) * len(own) / sum(means))
        found.append(
            own[0]._replace(
                entity=ALL_RAILS,
                metric=f"{own[0].metric}_balance",
                unit="max_over_mean",
                figures=even,
            )
        )
    return found


def hot_cores(rows: Sequence[SeriesRow]) -> list[SeriesRow]:
    """Return the use of the eight cores of each node that were used most, the busiest first."""
    groups: dict[tuple[str, ...], list[SeriesRow]] = {}
    for row in rows:
        use = row.metric == "cpu_util" and row.figures.mean is not None
        if use and _CORE.fullmatch(row.entity):
            key = (row.segment, row.part, row.node, row.collector)
            groups.setdefault(key, []).append(row)
    return [
        row._replace(family=HOT_CORES)
        for own in groups.values()
        for row in sorted(own, key=lambda one: -(one.figures.mean or 0.0))[:MOST_CORES]
    ]
