"""Nothing in the corpus is forgotten, and no sample in any state breaks a parser."""

import importlib
from pathlib import Path

import pytest

from servemap.model.errors import ParseError
from servemap.parsers.kinds import KINDS
from tests.corpus import TESTED, extract, index, numbers, read_sample

for module in Path(__file__).parent.glob("test_corpus_*.py"):
    importlib.import_module(module.stem)

# Read by other tests, not by `servemap parse`.
ELSEWHERE = ("server_logs/", "kineto_traces/", "kineto_full/", "nsys/", "bench_results/", "own/")
# A list of names, which is no exposition.
NO_SCRAPE = ("server_metrics/006_vllm_families_v0260.txt",)
# Kinds of which the corpus holds no sample; their made-up texts are the only ones.
NO_SAMPLE = {"perftest", "ethtool", "cuda-bandwidth", "ncu", "ibv-devinfo"}
SAMPLES = [(file, kind) for file, kinds in TESTED.items() for kind in kinds]


def test_every_sample_of_the_index_has_a_test_of_its_values() -> None:
    left = [file for file in index() if not file.startswith(ELSEWHERE)]
    assert [file for file in left if file not in TESTED and not file.startswith(NO_SCRAPE)] == []
    assert [file for file in TESTED if file not in index()] == []


def test_the_samples_tested_name_kinds_that_exist() -> None:
    assert {kind for _, kind in SAMPLES} <= set(KINDS)
    assert set(KINDS) - NO_SAMPLE == {kind for _, kind in SAMPLES}


@pytest.mark.parametrize(("file", "kind"), SAMPLES)
def test_a_sample_that_is_cut_holds_no_number_that_the_whole_has_not(file, kind) -> None:
    raw = read_sample(file)
    whole = numbers(extract(kind, raw).data)
    for end in range(0, len(raw), max(1, len(raw) // 60)):
        try:
            cut = extract(kind, raw[:end])
        except ParseError:
            continue
        assert numbers(cut.data) <= whole, raw[max(0, end - 80) : end]


@pytest.mark.parametrize(("file", "kind"), SAMPLES)
def test_a_sample_that_begins_anywhere_or_is_mixed_gives_data_or_an_error(file, kind) -> None:
    raw = read_sample(file)
    pieces = [raw[start:] for start in range(0, len(raw), max(1, len(raw) // 60))]
    lines = raw.split(b"\n")
    pieces.append(b"\n".join(x for pair in zip(lines, lines[::-1], strict=True) for x in pair))
    for piece in pieces:
        try:
            extract(kind, piece)
        except ParseError:
            continue


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_takes_every_sample_of_another_one(kind) -> None:
    for file in TESTED:
        try:
            extract(kind, read_sample(file))
        except ParseError:
            continue
