import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.traces.modules_text import modules_text
from servemap.model.errors import ConfigError
from servemap.parsers.traces.modules import module_pattern, read_modules

PATTERN = (
    r"step=(?P<step>\d+) (?P<phase>prefill|decode)\.(?P<module>\S+) total=(?P<total_ms>\S+)ms "
    r"avg=(?P<mean_ms>\S+)ms n=(?P<count>\d+)"
)
LOG = """
INFO starting
step=16 decode.layer.mlp total=972.0ms avg=1.62ms n=600
step=24 decode.layer.mlp total=1456.57ms avg=1.66ms n=880
step=24 decode.moe.tp_all_reduce total=265.92ms avg=0.30ms n=880
step=24 prefill.layer.mlp total=10ms avg=5ms n=2
step=24 prefill.odd total=10ms avg=5ms n=7
step=24 prefill.worse total=nanms avg=5ms n=7
"""


def test_the_last_total_of_each_module_counts() -> None:
    found = read_modules(LOG.splitlines(), module_pattern(PATTERN))
    assert [(one.phase, one.module, one.total_ns, one.count, one.step, one.line) for one in
            found.modules] == [
        ("decode", "layer.mlp", 1_456_570_000, 880, 24, 4),
        ("decode", "moe.tp_all_reduce", 265_920_000, 880, 24, 5),
        ("prefill", "layer.mlp", 10_000_000, 2, 24, 6),
    ]  # fmt: skip
    assert found.modules[1].mean_ns == pytest.approx(300_000)
    assert found.skipped == {
        "its total is not its mean times its count": 1,
        "its total is no number": 1,
    }


def test_lines_of_module_total_mean_and_count() -> None:
    lines = [
        "decode.layer.mlp 1456.57ms 1.66ms 880",
        "prefill.moe.routed_prefill_experts 5239.90ms 65.50ms 80",
    ]
    pattern = (
        r"^(?P<phase>prefill|decode)\.(?P<module>\S+) (?P<total_ms>[\d.]+)ms "
        r"(?P<mean_ms>[\d.]+)ms (?P<count>\d+)$"
    )
    found = read_modules(lines, module_pattern(pattern))
    assert [(one.phase, one.module, one.total_ns, one.mean_ns, one.count) for one in
            found.modules] == [
        ("prefill", "moe.routed_prefill_experts", 5_239_900_000, 65_500_000, 80),
        ("decode", "layer.mlp", 1_456_570_000, pytest.approx(1_660_000), 880),
    ]  # fmt: skip


def test_what_a_line_does_not_say_is_missing() -> None:
    found = read_modules(["a: 3 us"], module_pattern(r"(?P<module>\w+): (?P<total_us>\d+) us"))
    [one] = found.modules
    assert (one.total_ns, one.mean_ns, one.count, one.phase, one.step) == (
        3000,
        None,
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    "pattern", ["(", r"(?P<module>\S+)", r"(?P<total_ms>\d+)", r"(?P<module>a)(?P<total>\d)", ""]
)
def test_a_pattern_that_says_too_little_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        module_pattern(pattern)


@given(st.lists(st.text(), max_size=5))
def test_any_line_is_read_or_left(lines: list[str]) -> None:
    assert read_modules(lines, module_pattern(r"(?P<module>.*)(?P<total_s>.+)")).modules is not None


def test_impossible_totals_are_left_out_and_no_match_is_said() -> None:
    pattern = module_pattern(r"(?P<module>\S+) (?P<total_ms>\S+)ms")
    found = read_modules(["a 1e99ms", "b 2ms"], pattern)
    assert [one.module for one in found.modules] == ["b"]
    assert found.skipped == {"its total is impossible": 1}
    assert "no line of the log matches" in modules_text(read_modules(["other"], pattern))
