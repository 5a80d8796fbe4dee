"""PCIe links: what they carry, and those that cannot do what their device could."""

import pytest
from frozentools import answers, device, queried
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.bounds.pcie import Link, below_own, generation, links
from tests.corpus import read_sample


def said(*cards: str) -> dict:
    return answers({"nvidia-smi -q": "".join(cards)})


def test_the_link_of_each_card():
    blocks = [queried(1, 5, 16), queried(2, 4, 8, own=5), "GPU 00000000:03:00.0\n    Name : x\n"]
    assert links(said(*blocks)) == [Link(5, 16, 16), Link(4, 8, 16, 5), None]
    assert links({}) == []


@pytest.mark.parametrize(
    ("link", "gb_s"), [((1, 16), 4.0), ((3, 16), 15.7538), ((4, 16), 31.5077), ((5, 8), 31.5077)]
)
def test_bytes_of_a_direction(link, gb_s):
    assert Link(*link, 16).bytes_per_s == pytest.approx(gb_s * 1e9, rel=1e-5)


def test_an_unknown_generation_has_no_bound():
    assert Link(9, 16, 16).bytes_per_s is None


def test_fewer_lanes_and_a_lower_slot_than_the_card_has_are_named():
    facts = {"a": said(queried(1, 5, 16, 5), queried(2, 4, 8, 5)), "b": said(queried(1, 5, 16))}
    assert below_own({**facts, "c": {}}) == [
        "a gpu1 has 8 of 16 PCIe lanes",
        "a gpu1 can run at PCIe generation 4 of its 5",
    ]


def test_an_idle_cards_generation_is_not_judged():
    idle = queried(1, 5, 16, 5)
    assert "Current    : 1\n" in idle
    assert below_own({"a": said(idle)}) == []
    card = device("card", "2.5", "32.0")
    rocm = {"rocm-smi --showallinfo": "GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X\n"
            "GPU[0]\t\t: PCI Bus: 0000:05:00.0\n"}  # fmt: skip
    facts = {**answers(rocm), "pci": {"devices": {"0000:05:00.0": card}}}
    assert links(facts) == [Link(5, 16, 16)]
    assert below_own({"a": facts}) == []


def test_a_network_device_in_a_slow_or_narrow_slot_is_named_with_its_interfaces():
    devices = {
        "0000:17:00.0": device("network", "16.0", "32.0"),
        "0000:65:00.0": device("network", "32.0", "32.0", width=8),
        "0000:66:00.0": device("network", "32.0", "32.0"),
        "0000:67:00.0": {"kind": "network", "speed": None, "max_speed": None},
    }
    nics = {
        "interfaces": {
            "eth0": {"bus_address": "0000:17:00.0"},
            "eth2": {"bus_address": "0000:66:00.0"},
            "vf0": {"bus_address": "0000:67:00.0"},
            "lo": {"bus_address": None},
        },
        "rdma": {
            "mlx5_0": {"bus_address": "0000:17:00.0"},
            "mlx5_1": {"bus_address": "0000:65:00.0"},
        },
    }
    assert below_own({"a": {"nics": nics, "pci": {"devices": devices}}}) == [
        "a eth0/mlx5_0 runs at PCIe generation 4 of its 5",
        "a mlx5_1 has 8 of 16 PCIe lanes",
    ]


@pytest.mark.parametrize(
    ("printed", "found"),
    [("2.5 GT/s PCIe", 1), ("8 GT/s", 3), ("64.0 GT/s PCIe", 6), ("Unknown", None), (None, None)],
)
def test_the_generation_of_a_speed(printed, found):
    assert generation(printed) == found


@given(st.text(max_size=30))
def test_any_text_of_a_speed_is_a_generation_or_not_known(printed):
    assert generation(printed) in (1, 2, 3, 4, 5, 6, None)


def test_a_real_card():
    real = read_sample("nvidia_smi/019_h100_mig_q_text.txt").decode()
    assert links(said(real)) == [Link(5, 16, 16, 5)]
