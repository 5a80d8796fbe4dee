"""PCIe links from `nvidia-smi -q`: what they carry, and lanes that are missing."""

import pytest

from servemap.analysis.bounds.pcie import Link, links, narrow
from tests.corpus import read_sample


def card(generation: int, width: int) -> str:
    return (
        "GPU 00000000:01:00.0\n    PCI\n        GPU Link Info\n            PCIe Generation\n"
        f"                Max    : {generation}\n                Current    : 1\n"
        "                Host Max    : N/A\n            Link Width\n"
        f"                Max    : 16x\n                Current    : {width}x\n"
    )


def said(*cards: str) -> dict:
    return {"accelerators": {"tools": {"nvidia-smi -q": {"stdout": "".join(cards)}}}}


def test_the_link_of_each_card():
    assert links(said(card(5, 16), card(4, 8), "GPU 00000000:03:00.0\n    Name : x\n")) == [
        Link(5, 16, 16),
        Link(4, 8, 16),
        None,
    ]
    assert links({}) == []


@pytest.mark.parametrize(
    ("link", "gb_s"), [((1, 16), 4.0), ((3, 16), 15.7538), ((4, 16), 31.5077), ((5, 8), 31.5077)]
)
def test_bytes_of_a_direction(link, gb_s):
    assert Link(*link, 16).bytes_per_s == pytest.approx(gb_s * 1e9, rel=1e-5)


def test_an_unknown_generation_has_no_bound():
    assert Link(9, 16, 16).bytes_per_s is None


def test_fewer_lanes_than_the_card_has_are_named():
    facts = {"a": said(card(5, 16), card(5, 8)), "b": said(card(5, 16)), "c": {}}
    assert narrow(facts) == ["a gpu1 has 8 of 16 PCIe lanes"]


def test_a_real_card():
    real = read_sample("nvidia_smi/019_h100_mig_q_text.txt").decode()
    assert links(said(real)) == [Link(5, 16, 16)]
