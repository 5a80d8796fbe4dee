"""The gate `rails`: links that the campaign names and the nodes do not have (simulated)."""

from typing import Any

import pytest

from servemap.model.server_spec import Rail
from servemap.server.gates.rails import rails_there

RAILS = {"n1": [Rail(netdev="eth0", hca="mlx5_0"), Rail(netdev="tun0")], "n2": []}


def facts(operstate: str | None = "up", hca: str = "mlx5_0") -> dict[str, Any]:
    links = {"eth0": {"operstate": operstate}, "tun0": {"operstate": "unknown"}}
    return {"nics": {"interfaces": links, "rdma": {hca: {}}}}


def test_links_that_are_there() -> None:
    check = rails_there(RAILS, {"n1": facts(), "n2": None})
    assert (check.name, check.ok) == ("rails", True)
    assert check.evidence == "up: n1 eth0 mlx5_0, n1 tun0"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (facts("down"), "n1: eth0 is down"),
        (facts(None), "n1: eth0 is in an unknown state"),
        (facts(hca="mlx5_7"), "n1: there is no RDMA device mlx5_0 (there: mlx5_7)"),
        ({"nics": {"interfaces": {"lo": {}, "tun0": {"operstate": "up"}}, "rdma": {"mlx5_0": {}}}},
         "n1: there is no interface eth0 (there: lo, tun0)"),
    ],
)  # fmt: skip
def test_links_that_are_not(found: dict[str, Any], said: str) -> None:
    check = rails_there(RAILS, {"n1": found})
    assert (check.ok, check.evidence) == (False, said)
    assert check.remedy


@pytest.mark.parametrize("found", [None, {}, {"nics": {"error": "OSError"}}])
def test_links_of_which_nothing_is_known(found: dict[str, Any] | None) -> None:
    check = rails_there(RAILS, {"n1": found})
    assert (check.ok, check.evidence) == (None, "the frozen facts say nothing of the links of n1")
