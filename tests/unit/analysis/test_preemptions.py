"""Preemptions by the engines' own counters, named as their installed versions name them."""

import pytest

from servemap.analysis.checks.server import check_preemptions
from servemap.analysis.server_marks import scrape_mark
from servemap.analysis.verdict import default_limits
from servemap.parsers.jsonl import JsonLine
from servemap.telemetry.align import Segment
from servemap.telemetry.clock import NodeClock

SEGMENT = Segment("main", 10, 20)


def check(*texts: str, step: int = 5, requests: int = 100):
    lines = [JsonLine(k, {"t_ns": 5 + step * k, "text": text}) for k, text in enumerate(texts)]
    found = (scrape_mark("n", line, NodeClock()) for line in lines)
    marks = [mark for mark in found if mark is not None]
    return check_preemptions(marks, [SEGMENT], {"main": requests}, default_limits())


def vllm(*counts: int) -> str:
    return "".join(
        f'vllm:num_preemptions_total{{engine="{k}",model_name="a b}}"}} {count}.0\n'
        for k, count in enumerate(counts)
    )


SGLANG = 'sglang:prompt_tokens_total{tp_rank="0"} 9.0\n'


@pytest.mark.parametrize(
    ("texts", "value", "ok"),
    [
        # the last sample before the segment and the first one after it; engines are summed
        ([vllm(1, 0), vllm(1, 0), vllm(1, 1), vllm(2, 1), vllm(2, 1)], 0.02, False),
        ([vllm(7, 7)] * 5, 0.0, True),
        ([vllm(1), vllm(1), vllm(2), vllm(2), vllm(2)], 0.01, True),
        # SGLang's counter has no series before it counted for the first time
        ([SGLANG] * 5, 0.0, True),
        ([SGLANG] * 3 + [f"{SGLANG}sglang:num_retracted_requests_total 3.0\n"] * 2, 0.03, False),
        # a restart, and a single sample, tell nothing
        ([vllm(3), vllm(3), vllm(0), vllm(1), vllm(1)], None, None),
        ([vllm(3)], None, None),
    ],
)
def test_the_growth_over_a_segment(texts, value, ok):
    (found,) = check(*texts)
    assert (found.name, found.value, found.ok) == ("preempted_share main", value, ok)


def test_an_engine_that_never_preempts_has_no_check():
    assert check("llamacpp:prompt_tokens_total 5\n", "llamacpp:prompt_tokens_total 6\n") == []
    assert check() == []
    (none,) = check(vllm(1), vllm(1), requests=0)
    assert none.ok is None
