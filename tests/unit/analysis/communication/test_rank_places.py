"""Ranks of NCCL beside frozen facts."""

import pytest

from servemap.analysis.communication.ranks import rank_places
from servemap.analysis.frozen_cards import pci_address

TOPOLOGY = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV18\t0-47\t0\t\tN/A\nGPU1\tNV18\t X \t48-95\t1\t\tN/A\n"
)
QUERY = "Attached GPUs : 2\nGPU 00000000:17:00.0\n    Product Name : H\nGPU 00000000:65:00.0\n"
FACTS = {
    "n1": {
        "accelerators": {
            "tools": {
                "nvidia-smi -q": {"stdout": QUERY},
                "nvidia-smi topo -m": {"stdout": TOPOLOGY},
            }
        },
        "nics": {"rdma": {"mlx5_0": {"numa_node": 1}}},
    }
}


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("17000", "0000:17:00"),
        ("1e0", "0000:00:1e"),
        ("0000:2d:00.0", "0000:2d:00"),
        ("00000000:2D:00.0", "0000:2d:00"),
        ("0x10000a1f3", "1000:0a:1f"),
        ("no bus", None),
        (None, None),
    ],
)
def test_the_address_of_a_card_however_it_is_written(written: str, address: str) -> None:
    assert pci_address(written) == address


def test_a_rank_has_the_cards_index_numa_node_and_that_of_its_network_device() -> None:
    rank = {"node": "n1", "rank": 3, "gpu": 0, "bus_id": "65000", "nics": ["mlx5_0", "mlx5_9"]}
    assert rank_places([rank], FACTS) == [
        {"node": "n1", "rank": 3, "gpu": 1, "bus_id": "0000:65:00", "numa_node": 1,
         "nics": [{"name": "mlx5_0", "numa_node": 1}, {"name": "mlx5_9", "numa_node": None}]}
    ]  # fmt: skip


def test_what_the_facts_do_not_say_is_missing() -> None:
    rank = {"node": "n9", "rank": 0, "gpu": 0, "bus_id": "65000", "nics": []}
    (place,) = rank_places([rank], FACTS)
    assert (place["gpu"], place["bus_id"], place["numa_node"]) == (0, "0000:65:00", None)
    assert rank_places([{**rank, "node": "n1", "bus_id": None}], FACTS)[0]["numa_node"] is None


def test_the_kernels_numa_node_counts_where_it_is_known() -> None:
    pci = {"devices": {"0000:65:00.0": {"kind": "card", "numa_node": 3}}}
    rank = {"node": "n1", "rank": 0, "gpu": 0, "bus_id": "65000", "nics": []}
    (place,) = rank_places([rank], {"n1": {**FACTS["n1"], "pci": pci}})
    assert place["numa_node"] == 3


def test_a_rank_on_a_card_of_amds_with_a_plain_interface() -> None:
    rocm = "GPU[0]\t\t: PCI Bus: 0000:05:00.0\nGPU[1]\t\t: PCI Bus: 0000:26:00.0\n"
    facts = {
        "accelerators": {"tools": {"rocm-smi --showallinfo": {"stdout": rocm}}},
        "pci": {"devices": {"0000:26:00.0": {"kind": "card", "numa_node": 1}}},
        "nics": {"interfaces": {"eth0": {"numa_node": 0}}, "rdma": {}},
    }
    rank = {"node": "n1", "rank": 1, "gpu": 0, "bus_id": "26000", "nics": ["eth0"]}
    (place,) = rank_places([rank], {"n1": facts})
    assert (place["gpu"], place["numa_node"]) == (1, 1)
    assert place["nics"] == [{"name": "eth0", "numa_node": 0}]
