"""NVLinks of cards from the frozen `nvidia-smi nvlink -s`."""

import pytest
from frozentools import UUID, answers

from servemap.analysis.bounds.nvlink import nvlink_missing, nvlink_rates
from tests.corpus import read_sample


def said(*links: list[str]) -> dict:
    text = "".join(
        f"GPU {i}: NVIDIA H200 {UUID}\n" + "".join(f"\t Link {n}: {x}\n" for n, x in enumerate(own))
        for i, own in enumerate(links)
    )
    return answers({"nvidia-smi nvlink -s": text})


def test_the_rates_are_those_of_active_links():
    assert nvlink_rates(said(["25 GB/s", "<inactive>"], ["25 GB/s"] * 2)) == {
        0: [25e9],
        1: [25e9] * 2,
    }
    assert nvlink_rates({}) == {}


def test_a_card_with_fewer_or_slower_links_than_the_best_is_named():
    facts = {"a": said(["25 GB/s"] * 4, ["25 GB/s"] * 3 + ["<inactive>"], ["20 GB/s"] * 4)}
    assert nvlink_missing(facts) == [
        "a gpu1 has 3 of 4 NVLinks",
        "a gpu2 has NVLinks that are slower than others'",
    ]
    assert nvlink_missing({"a": said(["25 GB/s"], ["25 GB/s"]), "b": said([], []), "c": {}}) == []


@pytest.mark.parametrize(
    ("sample", "links", "rate"),
    [
        ("nvidia_smi/034_gpud_nvlink_a100.txt", 12, 25e9),
        ("nvidia_smi/012_h200_nvlink_s_18links.txt", 18, 26.562e9),
    ],
)
def test_real_cards(sample, links, rate):
    facts = answers({"nvidia-smi nvlink -s": read_sample(sample).decode()})
    assert all(found == [rate] * links for found in nvlink_rates(facts).values())
    assert nvlink_missing({"a": facts}) == []


def test_a_real_card_without_nvlink_has_none():
    sample = read_sample("nvidia_smi/014_l40s_nvlink_unsupported.txt").decode()
    assert nvlink_rates(answers({"nvidia-smi nvlink -s": sample})) == {0: []}
