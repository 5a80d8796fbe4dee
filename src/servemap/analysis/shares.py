"""Rows that follow from others: balance between the rails of a node."""

from collections.abc import Collection, Mapping, Sequence

from servemap.analysis.series_figures import SeriesFigures
from servemap.analysis.telemetry_rows import SeriesRow

ALL_RAILS = "rails"
BALANCED = ("hca_rx", "hca_tx")
BALANCED_PLAIN = ("net_rx", "net_tx")


def balance_rows(
    rows: Sequence[SeriesRow], plain_rails: Mapping[str, Collection[str]]
) -> list[SeriesRow]:
    """Return how a node's traffic is spread over its rails, from the means of each.

    Each rail has its share of the sum (`hca_tx_share`), the entity `rails` the largest mean over
    the mean of all (`hca_tx_balance`): 1 is even, the number of rails is all on one. None where a
    node has one rail or none of them moved anything.

    Args:
        rows: series of a repeat.
        plain_rails: the interfaces of each node that are rails without an HCA; of other interfaces
            the counters may miss what went over RDMA.
    """
    groups: dict[tuple[str, ...], list[SeriesRow]] = {}
    for row in rows:
        plain = row.metric in BALANCED_PLAIN and row.entity in plain_rails.get(row.node, ())
        if (plain or row.metric in BALANCED) and row.figures.mean is not None:
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
