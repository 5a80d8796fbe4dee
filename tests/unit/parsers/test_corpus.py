"""Nothing in the corpus is forgotten."""

from servemap.parsers.kinds import KINDS
from tests.corpus import index
from tests.kinds import samples

# Read by other tests, not by `servemap parse`.
ELSEWHERE = ("server_logs/", "kineto_traces/", "kineto_full/", "nsys/", "bench_results/", "own/")
# A list of names, which is no exposition.
NO_SCRAPE = ("server_metrics/006_vllm_families_v0260.txt",)
# Kinds of which the corpus holds no sample; their made-up texts are the only ones.
NO_SAMPLE = {"perftest", "ethtool", "cuda-bandwidth", "ncu", "ibv-devinfo"}


def test_every_sample_of_the_index_has_a_test_of_its_values() -> None:
    left = [file for file in index() if not file.startswith(ELSEWHERE)]
    tested = {file for file, _ in samples()}
    assert [file for file in left if file not in tested and not file.startswith(NO_SCRAPE)] == []
    assert [file for file in tested if file not in index()] == []


def test_the_samples_tested_name_kinds_that_exist() -> None:
    assert {kind for _, kind in samples()} <= set(KINDS)
    assert set(KINDS) - NO_SAMPLE == {kind for _, kind in samples()}
