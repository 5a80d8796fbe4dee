"""busbw beside the sum of the rails: worked out by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from servemap.analysis.communication.rails import most_used, rail_rows


def hca(rate: str = "400 Gb/sec (4X NDR)", state: str = "4: ACTIVE") -> dict[str, Any]:
    return {"ports": {"1": {"state": state, "rate": rate, "link_layer": "InfiniBand"}}}


def facts(*rates: str) -> dict[str, Any]:
    devices = {f"mlx5_{number}": hca(rate) for number, rate in enumerate(rates)}
    return {"nics": {"rdma": devices, "interfaces": {"eth0": {"speed_mbit": 1000}}}}


NDR, HDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)"
TWO = {"n1": facts(NDR, NDR), "n2": facts(NDR, HDR)}


def part(
    *devices: str,
    unnamed: Sequence[int] = (),
    unread: Sequence[str] = (),
    missing: Sequence[str] = (),
    **keys: Any,
) -> dict[str, Any]:
    paths = [{"node": node, "scope": "inter_node", "path": "NET/IB", "devices": list(devices),
              "unnamed": list(unnamed)} for node in ("n1", "n2")]  # fmt: skip
    chosen = {"algorithm": "RING", "protocol": "SIMPLE", "channels": 16}
    rows = [{"operation": "all_reduce", "size_bytes": size, "busbw_bytes_per_s": rate,
             **chosen} for size, rate in ((8192, 1e9), (1 << 26, 60e9))]  # fmt: skip
    return {"nodes": ["n1", "n2"], "settings": {"NCCL_CROSS_NIC": "1"}, "rows": rows,
            "transport": {"paths": paths, "unread": unread, "missing": missing},
            **keys}  # fmt: skip


def rows(*parts: dict[str, Any], kind: str = "collective") -> list[dict[str, Any]]:
    return rail_rows({"ar": {"kind": kind, "results": list(parts)}}, TWO)


def test_the_node_with_the_least_rails_is_the_limit() -> None:
    _, row = rows(part("mlx5_0", "mlx5_1"))
    # n1 has 2 x 400, n2 has 400 + 200 Gbit/s: 75 GB/s.
    assert (row["rails_bytes_per_s"], row["rails"], row["share"]) == (75e9, "mlx5_0 mlx5_1", 0.8)
    assert (row["algorithm"], row["protocol"], row["channels"]) == ("RING", "SIMPLE", 16)
    assert (row["settings"], row["not_known"]) == ("NCCL_CROSS_NIC=1", "")


def test_only_devices_that_were_used_count() -> None:
    assert rows(part("mlx5_0"))[1]["rails_bytes_per_s"] == 50e9


def test_ranks_without_a_log_say_their_interface() -> None:
    ranks = [{"node": node, "interface": "eth0"} for node in ("n1", "n2")]
    row = rows(part(transport=None, ranks=ranks))[0]
    assert (row["rails"], row["rails_bytes_per_s"], row["share"]) == ("eth0", 125e6, 8.0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (part(transport=None), "n1 does not say over which network devices its data went"),
        (part("mlx5_9"), "n1: the frozen facts have no rate of mlx5_9"),
        (part("mlx5_0", "ib9"), "n1: the frozen facts have no rate of ib9"),
        (part("mlx5_0", unnamed=[1]), "n1: NCCL's log has no name for network device 1"),
        (part("mlx5_0", unread=["2 lines of"]), "NCCL's log may hide network devices: 2 lines of"),
        (part("mlx5_0", missing=["rank 3"]), "NCCL's log may hide network devices: rank 3"),
    ],
)
def test_what_is_not_known_is_missing_with_its_reason(found: dict[str, Any], said: str) -> None:
    row = rows(found)[1]
    assert (row["share"], row["rails_bytes_per_s"], row["not_known"]) == (None, None, said)


def test_a_port_that_is_down_has_no_rate() -> None:
    down = {"nics": {"rdma": {"mlx5_0": hca(state="1: DOWN")}}}
    (row, _) = rail_rows(
        {"ar": {"kind": "collective", "results": [part("mlx5_0")]}}, {"n1": down, "n2": down}
    )
    assert row["not_known"] == "n1: mlx5_0 has 0 active ports with a rate"


def test_other_baselines_and_single_nodes_are_left_out() -> None:
    assert rows(part("mlx5_0"), kind="tcp") == []
    assert rows(part("mlx5_0", nodes=["n1"])) == []


def test_the_report_shows_the_size_with_the_highest_busbw() -> None:
    (row,) = most_used(rows(part("mlx5_0")))
    assert row["size_bytes"] == 1 << 26
