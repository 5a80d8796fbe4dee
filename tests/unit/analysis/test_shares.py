"""Balance between rails. Simulated: values made up here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.netdevs import plain_rails
from servemap.analysis.series_figures import SeriesFigures
from servemap.analysis.shares import ALL_RAILS, balance_rows
from servemap.analysis.telemetry_rows import SeriesRow


def row(entity, mean, metric="hca_tx", node="head"):
    figures = SeriesFigures(9, mean=mean)
    return SeriesRow("rails", "main", "whole", node, "hca", entity, metric, "u", figures)


def found(rows, plain=None):
    return {(r.node, r.entity, r.metric): r.figures.mean for r in balance_rows(rows, plain or {})}


def test_shares_and_the_largest_over_the_mean():
    rails = [row("mlx5_0:1", 3e9), row("mlx5_3:1", 1e9), row("mlx5_0:1", 5.0, "hca_rx", "worker")]
    assert found(rails) == {
        ("head", "mlx5_0:1", "hca_tx_share"): 0.75,
        ("head", "mlx5_3:1", "hca_tx_share"): 0.25,
        ("head", ALL_RAILS, "hca_tx_balance"): 1.5,
    }


def test_one_rail_or_none_that_moved_anything_has_no_balance():
    assert found([row("mlx5_0:1", 1e9)]) == {}
    assert found([row("a:1", 0.0), row("b:1", 0.0)]) == {}
    assert found([row("a:1", None), row("b:1", 1.0)]) == {}


def test_interfaces_are_balanced_only_where_they_are_rails_without_an_hca():
    rows = [row(name, mean, "net_tx") for name, mean in (("lo", 8.0), ("eth1", 3.0), ("eth2", 1.0))]
    assert found(rows) == {}
    assert found(rows, {"worker": {"eth1", "eth2"}}) == {}
    assert found(rows, {"head": {"eth1", "eth2"}}) == {
        ("head", "eth1", "net_tx_share"): 0.75,
        ("head", "eth2", "net_tx_share"): 0.25,
        ("head", ALL_RAILS, "net_tx_balance"): 1.5,
    }


def test_plain_rails_are_those_of_the_record():
    rails = [
        {"netdev": "eth1", "hca": None},
        {"netdev": "ib0", "hca": "mlx5_0"},
        {"netdev": "eth2"},
    ]
    nodes = [{"id": "head", "rails": rails}, {"id": "worker"}]
    assert plain_rails({"spec": {"server": {"nodes": nodes}}}) == {
        "head": {"eth1", "eth2"},
        "worker": set(),
    }


@given(st.lists(st.floats(0, 1e12), min_size=2, max_size=8))
def test_balance_is_between_even_and_all_on_one(means):
    rails = [row(f"mlx5_{n}:1", mean) for n, mean in enumerate(means)]
    result = found(rails)
    if not result:
        return
    shares = [value for (_, _, metric), value in result.items() if metric == "hca_tx_share"]
    assert sum(shares) == pytest.approx(1.0)
    even = result[("head", ALL_RAILS, "hca_tx_balance")]
    assert 1.0 - 1e-9 <= even <= len(means) * (1 + 1e-9)
