import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbuilder import MS, T0, request

from servemap.analysis.goodput import meeting
from servemap.analysis.metrics import figures, interference, segment_figures, weighted_throughput
from servemap.analysis.requests import parse_requests
from servemap.parsers.jsonl import JsonLine
from servemap.telemetry.align import Segment

WEIGHTS = {"uncached_input": 2.8, "cached_input": 0.56, "output": 16.8}
STUDY = [
    (178.330, 512.015, 5.789, 883.109),
    (139.628, 400.894, 4.631, 693.102),
    (172.454, 495.142, 5.379, 850.328),
]


def rows(*records, overlaps=None):
    lines = [JsonLine(n, r) for n, r in enumerate(records, 1)]
    return parse_requests(lines, overlaps or {}).rows


@pytest.mark.parametrize(("uncached", "cached", "output", "weighted"), STUDY)
def test_weighted_throughput_of_the_study(uncached, cached, output, weighted):
    rates = {"uncached_input": uncached, "cached_input": cached, "output": output}
    assert weighted_throughput(rates, WEIGHTS) == pytest.approx(weighted, rel=5e-4)


def test_weighted_throughput_of_an_unknown_part_is_unknown():
    rates = {"uncached_input": 1.0, "cached_input": None, "output": 1.0}
    assert weighted_throughput(rates, WEIGHTS) is None


def usage(cached):
    return {"prompt_tokens": 100, "completion_tokens": 4, "cached_tokens": cached}


def test_rates_use_the_window_and_the_tokens_really_produced():
    requests = rows(
        request(1, isl=100, usage=usage(40)),
        request(2, isl=100, usage=usage(0)),
        request(3, isl=100, status="failed"),
    )
    block = figures(requests, 2.0, WEIGHTS)
    assert (block["requests"], block["ok"], block["failed"]) == (3, 2, 1)
    assert block["request_s"] == 1.0
    assert block["agg_output_tps"] == 4.0
    assert block["input_tok_s"] == 100.0
    assert block["total_tok_s"] == 104.0
    assert block["uncached_input_tok_s"] == 80.0
    assert block["cached_input_tok_s"] == 20.0
    assert block["cache_hit_rate"] == 0.2
    assert block["weighted_tok_s"] == pytest.approx(2.8 * 80 + 0.56 * 20 + 16.8 * 4)
    assert block["tokens"]["input_planned"] == 300
    assert block["tokens"]["input_actual"] == 200
    assert block["ttft_s"]["n"] == 2


def test_nothing_succeeded_is_null_not_zero():
    block = figures(rows(request(1, status="failed")), 2.0, WEIGHTS, {"ttft_s": 1.0})
    for name in (
        "request_s",
        "agg_output_tps",
        "input_tok_s",
        "total_tok_s",
        "weighted_tok_s",
        "goodput_req_s",
        "ttft_s",
        "tpot_s",
        "itl_s",
        "e2e_s",
        "cache_hit_rate",
    ):
        assert block[name] is None, name


def test_an_unreported_count_is_unknown_for_all():
    block = figures(rows(request(1, usage=usage(None)), request(2, usage=usage(3))), 1.0)
    assert block["tokens"]["cached"] is None
    assert block["uncached_input_tok_s"] is None
    assert block["input_tok_s"] == 200.0


def test_low_tail_of_output_speed():
    """Two slow requests of ten: P10 of the per-request speed is theirs, the mean hides them."""
    speeds = [100.0] * 2 + [10.0] * 8
    requests = rows(*(request(k, gap_ms=gap, osl=11) for k, gap in enumerate(speeds)))
    tps = figures(requests, 10.0)["req_output_tps"]
    assert tps["p10"] == pytest.approx(11.0)
    assert tps["p50"] == pytest.approx(110.0)


def test_goodput_needs_a_declared_objective_and_every_limit_met():
    requests = rows(
        request(1, ttft_ms=50, gap_ms=10),
        request(2, ttft_ms=500, gap_ms=10),
        request(3, ttft_ms=50, gap_ms=90),
        request(4, ttft_ms=50, osl=1),
    )
    assert figures(requests, 2.0)["goodput_req_s"] is None
    slo = {"ttft_s": 0.1, "tpot_s": 0.02}
    assert figures(requests, 2.0, slo=slo)["goodput_req_s"] == 1.0
    assert figures(requests, 2.0, slo={"itl_p99_s": 0.02})["goodput_req_s"] == 1.5


def test_retries_are_counted():
    assert figures(rows(request(1, attempts=3), request(2)), 1.0)["retried"] == 1


def mixed():
    control = [
        request(k, segment="control", sent_ms=0, ttft_ms=20, gap_ms=10, osl=10) for k in range(2)
    ]
    slowed = [
        request(k, segment="injected", sent_ms=1000, ttft_ms=20, gap_ms=20, osl=10)
        for k in range(2)
    ]
    long = request(9, stream="injected", segment="injected", sent_ms=1100, ttft_ms=900, osl=1)
    overlaps = {"injected": [(T0 + 1100 * MS, T0 + 2000 * MS)]}
    requests = rows(*control, *slowed, long, overlaps=overlaps)
    segments = [
        Segment("control", T0, T0 + 200 * MS),
        Segment("injected", T0 + 1000 * MS, T0 + 2000 * MS),
    ]
    streams = frozenset({"injected"})
    blocks = [segment_figures(s, requests, streams, None, None) for s in segments]
    return blocks, requests, streams


def test_the_disturbance_is_not_part_of_the_disturbed_workload():
    (_, injected), _, _ = mixed()
    assert injected["metrics"]["ok"] == 2
    assert injected["service"]["requests"] == 3
    assert injected["streams"]["injected"]["ttft_s"]["max"] == pytest.approx(0.9)


def test_interference_compares_a_stream_over_its_own_window():
    (control, injected), requests, streams = mixed()
    change = interference(control, injected, requests, streams)["main"]["change"]
    assert change["tpot_p95_s"]["change_pct"] == pytest.approx(100.0)
    assert change["ttft_p95_s"]["change_pct"] == pytest.approx(0.0)
    # 20 tokens in 110 ms, then in 200 ms; the injected request's 1000 ms do not enter.
    assert change["agg_output_tps"]["control"] == pytest.approx(20 / 0.110)
    assert change["agg_output_tps"]["injected"] == pytest.approx(20 / 0.200)
    assert change["agg_output_tps"]["change_pct"] == pytest.approx(-45.0)


def test_interference_of_the_seeds():
    """Output 455.68 -> 345.95 tok/s, TPOT P95 65.88 -> 109.73 ms, as a mixed case reports them."""

    def block(tps, tpot_ms):
        stream = {"agg_output_tps": tps, "tpot_s": {"p95": tpot_ms / 1e3}}
        return {"name": "any", "streams": {"background": stream, "injected": stream}}

    control, injected = block(455.68, 65.88), block(345.95, 109.73)
    (compared,) = interference(control, injected, [], frozenset({"injected"})).values()
    change = compared["change"]
    assert round(change["agg_output_tps"]["change_pct"], 2) == -24.08
    # The seeds print 66.55, from values that were not rounded.
    assert round(change["tpot_p95_s"]["change_pct"], 2) == 66.56
    assert change["ttft_p95_s"]["change_pct"] is None


def test_interference_splits_gaps_by_overlap():
    (control, injected), requests, streams = mixed()
    itl = interference(control, injected, requests, streams)["main"]["itl_s"]
    # Tokens at 1020, 1040, .. 1200 ms; the injection begins at 1100, so 1100-1120 is the first hit.
    assert itl["steady"]["n"] == 2 * 4
    assert itl["overlaps_injection"]["n"] == 2 * 5


def test_success_rate_and_share_within_the_slo_count_what_failed():
    requests = rows(request(1), request(2, ttft_ms=90.0), request(3, status="failed"), request(4))
    block = figures(requests, 2.0, None, {"ttft_s": 0.06})
    assert block["success_rate"] == 0.75
    assert block["slo_share"] == 0.5
    assert block["goodput_req_s"] == 1.0
    assert figures(requests, 2.0)["slo_share"] is None


def test_nobody_waits_between_tokens_that_come_at_one_time():
    at_once = request(1, osl=8, t_ns=[T0 + 50 * MS], kinds="t", tokens=[8])
    # 40 of 41 tokens came with the first event, after 1000 ms; the last one 1 ms behind it.
    hidden = request(2, osl=41, t_ns=[T0 + 1000 * MS, T0 + 1001 * MS], kinds="tt", tokens=[40, 41])
    single = request(3, osl=1)
    measured = rows(at_once, hidden, single)
    assert [r.tpot_s for r in measured] == [None, None, None]
    assert meeting(measured, {"tpot_s": 0.01}).tolist() == [True, False, True]
    assert meeting(measured, {"tpot_s": 0.025}).tolist() == [True, True, True]
    assert meeting(measured, {"itl_p99_s": 0.01}).tolist() == [True, True, True]
    uncounted = rows(request(4, osl=8, t_ns=[T0 + 50 * MS], kinds="t", usage=None))
    assert meeting(uncounted, {"tpot_s": 0.01}).tolist() == [False]


@given(
    st.lists(st.lists(st.integers(1, 60), max_size=12), min_size=1, max_size=8),
    st.sampled_from([5, 10, 29.9, 30, 59.8]),
)
def test_the_p99_of_itl_is_judged_as_it_is_computed(answers, limit_ms):
    records = []
    for number, gaps in enumerate(answers):
        times = (T0 + np.cumsum([50, *gaps]) * MS).tolist()
        usage = {"prompt_tokens": 64, "completion_tokens": len(times)}
        kinds = "t" * len(times)
        records.append(request(number, t_ns=times, kinds=kinds, usage=usage))
    measured = rows(*records)
    expected = [not r.itl_s.size or np.percentile(r.itl_s, 99) <= limit_ms / 1e3 for r in measured]
    assert meeting(measured, {"itl_p99_s": limit_ms / 1e3}).tolist() == expected


def test_one_stream_has_the_segments_distributions_over_its_own_window():
    records = [request(i, sent_ms=100.0 * i) for i in range(4)]
    found = segment_figures(
        Segment("main", T0, T0 + 2_000 * MS), rows(*records), frozenset(), WEIGHTS, {"ttft_s": 1.0}
    )
    block, stream = found["metrics"], found["streams"]["main"]
    assert stream["ttft_s"] == block["ttft_s"]
    assert stream["window_s"] == pytest.approx(0.38)
    assert stream["goodput_req_s"] == pytest.approx(4 / 0.38)
    assert block["goodput_req_s"] == 2.0


def test_littles_law_holds_where_all_requests_lie_inside():
    records = [request(i, sent_ms=100.0 * i) for i in range(4)]
    whole = segment_figures(
        Segment("main", T0, T0 + 500 * MS), rows(*records), frozenset(), None, None
    )
    assert whole["metrics"]["measured_in_flight"] == pytest.approx(4 * 0.08 / 0.5)
    assert whole["metrics"]["littles_law_ratio"] == pytest.approx(1.0)
    late = Segment("main", T0 + 340 * MS, T0 + 500 * MS)
    cut = segment_figures(late, rows(*records), frozenset(), None, None)
    assert cut["metrics"]["measured_in_flight"] == pytest.approx(0.04 / 0.16)
