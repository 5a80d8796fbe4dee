"""Memory bandwidth of nodes: declared, from the cards' names, or not known."""

import pytest
from frozentools import UUID, answers, listed

from servemap.analysis.bounds.cards import card_bandwidth, card_names, rank_bandwidth, sheet
from servemap.analysis.bounds.known import NotKnownError, table
from tests.corpus import read_sample

AMD = """GPU: {index}
    ASIC:
        MARKET_NAME: {name}
        VENDOR_ID: 0x1002
    BUS:
        BDF: 0000:0{index}:00.0
    PARTITION:
        COMPUTE_PARTITION: {mode}
        MEMORY_PARTITION: NPS1
"""


def facts(*names: str, extra: str = "") -> dict:
    return answers({"nvidia-smi -L": listed(*names) + extra})


def amd(*names: str, mode: str = "SPX") -> dict:
    blocks = [AMD.format(index=i, name=name, mode=mode) for i, name in enumerate(names)]
    return answers({"amd-smi static": "".join(blocks)})


def test_names_are_those_that_nvidia_smi_lists():
    assert card_names(facts("NVIDIA H200", "NVIDIA H200")) == ["NVIDIA H200"] * 2
    with pytest.raises(NotKnownError, match="no card"):
        card_names({"accelerators": {"found": False, "tools": {}}})
    with pytest.raises(NotKnownError, match="MIG"):
        card_names(facts("NVIDIA H200", extra=f"  MIG 1g.18gb     Device  0: {UUID}\n"))


@pytest.mark.parametrize(
    "written",
    ["AMD Instinct MI300X", "AMD Instinct MI300X VF", "AMD Instinct MI300X OAM: 750W SKU"],
)
def test_one_card_of_amds_has_one_name(written):
    assert card_names(amd(written, written)) == ["AMD Instinct MI300X"] * 2
    said = f"GPU[0]\t\t: Card Series: \t\t{written}\nGPU[0]\t\t: Compute Partition: SPX\n"
    if ": 750W" not in written:
        assert card_names(answers({"rocm-smi --showallinfo": said})) == ["AMD Instinct MI300X"]


def test_cards_of_amds_of_other_models_keep_their_names():
    assert card_names(amd("AMD Instinct MI308X", "AMD Radeon RX 7900 XTX")) == [
        "AMD Instinct MI308X",
        "AMD Radeon RX 7900 XTX",
    ]


def test_a_card_of_amds_that_is_divided_is_not_known():
    with pytest.raises(NotKnownError, match=r"partitioned .CPX"):
        card_names(amd("AMD Instinct MI300X", mode="CPX"))
    assert card_names(amd("AMD Instinct MI300X", mode="N/A")) == ["AMD Instinct MI300X"]


def test_a_card_without_a_name_makes_none_known():
    with pytest.raises(NotKnownError, match="do not name every card"):
        card_names(amd("AMD Instinct MI300X", "N/A"))


@pytest.mark.parametrize(
    ("command", "sample", "names"),
    [
        ("amd-smi static", "011_amd_smi_static_text.txt", ["AMD Instinct MI300A"] * 4),
        ("ixsmi", "012_ixsmi_bi_v150_2gpu.txt", ["Iluvatar BI-V150"] * 2),
        ("npu-smi info", "014_npu_smi_ascend910_dualchip.txt", ["Ascend910"] * 2),
        ("npu-smi info", "016_npu_smi_22_310P3.txt", ["310P3"]),
        ("mx-smi", "017_mx_smi_c550.txt", ["MetaX C550"] * 2),
        ("xpu-smi", "009_xpu_smi_v2_table.txt", ["Intel(R) Arc(TM) B580"]),
    ],
)
def test_real_cards_of_other_vendors(command, sample, names):
    said = read_sample(f"vendor_smi/{sample}").decode()
    assert card_names(answers({command: said})) == names


def test_a_card_has_the_figure_of_its_sheet():
    found = card_bandwidth("NVIDIA H200")
    assert found.bytes_per_s == 4.8e12
    assert found.source.startswith("NVIDIA H200, https://")
    with pytest.raises(NotKnownError, match="not in the table: NVIDIA H2000"):
        card_bandwidth("NVIDIA H2000")
    assert (
        rank_bandwidth(["a"], 8, {}, {"a": amd(*["AMD Instinct MI300X"] * 8)}).bytes_per_s == 5.3e12
    )


def test_a_card_that_is_not_in_the_table_has_the_bandwidth_that_its_tool_tells():
    facts = amd("AMD Instinct MI308X")
    with pytest.raises(NotKnownError, match="not in the table"):
        rank_bandwidth(["a"], 1, {}, {"a": facts})
    tools = facts["accelerators"]["tools"]["amd-smi static"]
    tools["stdout"] += "    VRAM:\n        TYPE: HBM3\n        MAX_BANDWIDTH: 5300 GB/s\n"
    found = rank_bandwidth(["a"], 1, {}, {"a": facts})
    assert found == (5.3e12, "AMD Instinct MI308X, as amd-smi tells it")


def test_a_figure_without_a_source_is_missing():
    card = sheet("NVIDIA A40")
    assert (card.bf16_tflops, card.fp8_tflops, card.link_gb_s, card.power_w) == (
        150,
        None,
        None,
        None,
    )


def test_every_card_has_sources_and_sound_figures():
    known = table("cards")
    cited = [
        key for card in known["cards"].values() for key in (card["source"], *card.get("others", []))
    ]
    assert set(cited) == set(known["sources"])
    for name in known["cards"]:
        card = sheet(name)
        figures = [one for one in card[1:7] if one is not None]
        assert all(one > 0 for one in figures), name
        if card.bf16_tflops and card.fp8_tflops:
            assert card.fp8_tflops / card.bf16_tflops == pytest.approx(2, rel=0.03), name


def test_a_rank_has_a_card():
    two = facts("NVIDIA L4", "NVIDIA L4")
    assert rank_bandwidth(["a"], 2, {}, {"a": two}).bytes_per_s == 300e9
    assert rank_bandwidth(["a", "b"], 4, {}, {"a": two, "b": two}).bytes_per_s == 300e9


@pytest.mark.parametrize(
    ("ranks", "nodes", "reason"),
    [
        (3, {"a": facts("NVIDIA L4", "NVIDIA L4")}, "2 cards for 3 ranks"),
        (2, {"a": facts("NVIDIA L4", "NVIDIA A10")}, "different cards"),
        (1, {}, "a has no frozen facts"),
        (1, {"a": {}}, "a: .*no card"),
        (3, {"a": facts("NVIDIA L4"), "b": facts("NVIDIA L4")}, "evenly"),
        (2, {"a": facts("NVIDIA L4"), "b": facts("NVIDIA A10")}, "differs"),
    ],
)
def test_bandwidth_that_is_not_known(ranks, nodes, reason):
    with pytest.raises(NotKnownError, match=reason):
        rank_bandwidth(list(nodes) or ["a"], ranks, {}, nodes)


def test_declared_bandwidth_is_of_a_card_or_of_a_node_without_cards():
    cards = {"a": {"gb_s": 100, "accelerators": 4}}
    host = {"a": {"gb_s": 100, "accelerators": 0}}
    assert rank_bandwidth(["a"], 4, cards, {}).bytes_per_s == 100e9
    assert rank_bandwidth(["a"], 4, host, {}).bytes_per_s == 25e9
