"""Frozen facts of cards, whatever a tool said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.bounds.nvlink import nvlink_missing
from servemap.analysis.bounds.pcie import below_own
from servemap.analysis.frozen_cards import Card, frozen_cards
from tests.corpus import read_sample

COMMANDS = ("nvidia-smi -L", "nvidia-smi -q", "nvidia-smi nvlink -s", "amd-smi static",
            "rocm-smi --showallinfo", "ixsmi", "mx-smi", "npu-smi info", "xpu-smi")  # fmt: skip
WHOLE = """GPU 0: NVIDIA H200 (UUID: GPU-0)
  MIG 1g.18gb     Device  0: (UUID: MIG-0)
Link 0: 25 GB/s
GPU: 0
    ASIC:
        MARKET_NAME: N/A
    BUS:
        BDF: zz
GPU[0] : Card Series: x
GPU 00000000:01:00.0
    PCI
        GPU Link Info
            PCIe Generation
                Max : 99999999999999999999
            Link Width
                Max : \u00b2x
| IX-ML: 4.3.8
| 0    Iluvatar BI-V150 | x | 1 2 |
{
[]
\x1b[4m"""
LINES = st.sampled_from(WHOLE.splitlines())
TEXT = st.lists(LINES | st.text(max_size=20), max_size=12).map("\n".join)


@given(st.dictionaries(st.sampled_from(COMMANDS), TEXT | st.none() | st.integers(), max_size=4))
def test_no_output_of_a_tool_breaks_what_reads_it(said):
    facts = {"accelerators": {"tools": {name: {"stdout": text} for name, text in said.items()}}}
    assert all(isinstance(card, Card) for card in frozen_cards(facts))
    assert below_own({"a": facts}) is not None
    assert nvlink_missing({"a": facts}) is not None


@pytest.mark.parametrize("facts", [{}, {"accelerators": {"error": "x"}}, {"accelerators": 3}])
def test_facts_without_tools_name_no_card(facts):
    assert frozen_cards(facts) == []
    assert below_own({"a": {**facts, "pci": {"error": "x"}, "nics": {"error": "y"}}}) == []


def test_real_cards_have_their_addresses():
    text = read_sample("vendor_smi/012_ixsmi_bi_v150_2gpu.txt").decode()
    found = frozen_cards({"accelerators": {"tools": {"ixsmi": {"stdout": text}}}})
    assert [card.address for card in found] == ["0000:10:00", "0000:13:00"]
