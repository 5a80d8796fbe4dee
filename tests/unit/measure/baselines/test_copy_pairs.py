"""Which pairs of cards have a rate, of recorded output with something of it taken away."""

import re
from collections.abc import Callable

import pytest

from servemap.measure.baselines.copy_pairs import NoPairsError, copy_pairs
from servemap.parsers.kinds import parse
from tests.corpus import read_sample

P2P = "p2p_bandwidth/003_p2p_4gpu_nvlink_v100ish.txt"
NVBANDWIDTH = "p2p_bandwidth/004_nvbandwidth_readme_d2d_write.txt"
KINDS = {P2P: "p2p-bandwidth", NVBANDWIDTH: "nvbandwidth"}
ONE_WAY = "Unidirectional P2P=Enabled (P2P Writes) Bandwidth Matrix (GB/s)"


def rates(file: str, change: Callable[[str], str] = str) -> list[float | None]:
    text = change(read_sample(file).decode())
    return [
        one["bandwidth_bytes_per_s"] for one in copy_pairs(parse(KINDS[file], text.encode()).data)
    ]


def lines_after(title: str, first: int, end: int) -> Callable[[str], str]:
    """A change that takes some lines after a title away; 0 is the title itself."""

    def change(text: str) -> str:
        lines = text.splitlines(True)
        at = next(number for number, line in enumerate(lines) if title in line)
        return "".join([*lines[: at + first], *lines[at + end :]])

    return change


def in_row(title: str, card: int, value: str) -> Callable[[str], str]:
    """A change that puts a value into all cells of a card's row."""

    def change(text: str) -> str:
        lines = text.splitlines(True)
        at = next(number for number, line in enumerate(lines) if title in line) + 2 + card
        lines[at] = re.sub(r"\d+\.\d+", value, lines[at])
        return "".join(lines)

    return change


def test_whole_matrices_have_a_rate_of_each_two_cards() -> None:
    assert (len(rates(P2P)), min(filter(None, rates(P2P)))) == (12, 48.34e9)
    assert (len(rates(NVBANDWIDTH)), min(filter(None, rates(NVBANDWIDTH)))) == (56, 274.89e9)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (P2P, lines_after(ONE_WAY, 0, 6), "printed no matrix of copies one way"),
        (P2P, lines_after(ONE_WAY, 0, 1), "printed no matrix of copies one way"),
        (P2P, lambda text: text.replace(ONE_WAY, ONE_WAY.replace("GB", "MB")), "printed no matrix"),
        (P2P, lambda text: text + "\n".join(text.split("\n")[11:17]), "printed 2 matrices"),
        (P2P, lines_after(ONE_WAY, 4, 6), "rows 0 1 and columns 0 1 2 3"),
        (P2P, in_row(ONE_WAY, 2, "N/A"), "no rate between card 2 and 0, 2 and 1, 2 and 3"),
        (P2P, in_row(ONE_WAY, 2, "nan"), "no rate between card 2 and 0"),
        (P2P, in_row(ONE_WAY, 2, "-3.00"), "no rate between card 2 and 0"),
        (P2P, in_row(ONE_WAY, 2, "0.00"), "no rate between card 2 and 0"),
        (P2P, lambda text: "Device: 4, A, pciBusID: 1, pciDeviceID: 0\n" + text, "of cards 4"),
        (NVBANDWIDTH, lines_after("bandwidth (GB/s)", 4, 6), "rows 0 1 4 5 6 7"),
        (NVBANDWIDTH, in_row("bandwidth (GB/s)", 3, "0.00"), "no rate between card 3 and 0"),
        (NVBANDWIDTH, in_row("bandwidth (GB/s)", 3, "-1.00"), "and 3 more"),
        (
            NVBANDWIDTH,
            lambda text: re.sub(r"device_to_device", "host_to_device", text),
            "no matrix",
        ),
        (NVBANDWIDTH, lambda text: re.sub(r"_memcpy", "_bidirectional_memcpy", text), "no matrix"),
        (NVBANDWIDTH, lambda text: re.sub(r"(?<= )\d+\.\d+", "N/A", text), "no rate between"),
    ],
)
def test_what_is_not_whole_says_what_is_missing(
    file: str, change: Callable[[str], str], said: str
) -> None:
    with pytest.raises(NoPairsError, match=re.escape(said)):
        rates(file, change)


def test_pairs_without_access_of_nvbandwidth_stand_there_without_a_rate() -> None:
    found = rates(NVBANDWIDTH, in_row("bandwidth (GB/s)", 3, "N/A"))
    assert (len(found), found.count(None)) == (56, 7)
