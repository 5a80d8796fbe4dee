import numpy as np
import pytest
from runbuilder import request

from servemap.analysis.cached import EngineHits
from servemap.analysis.checks.cache import check_prefix
from servemap.analysis.checks.client import check_client
from servemap.analysis.checks.collectors import check_collectors, check_figures
from servemap.analysis.checks.requests import check_requests
from servemap.analysis.requests import parse_requests
from servemap.analysis.verdict import default_limits, resolve_limits, verdict
from servemap.model.errors import ConfigError
from servemap.parsers.jsonl import JsonLine
from servemap.telemetry.align import AlignedSeries, Coverage, Segment

LIMITS = default_limits()
S = 10**9


def check(name, records, sent=None, fixed=True, cache=False, engine=None):
    lines = [JsonLine(n, r) for n, r in enumerate(records, 1)]
    checks = check_requests(parse_requests(lines, {}).rows, sent, fixed, cache, engine, LIMITS)
    return next(c for c in checks if c.name == name)


def usage(given=64, out=4, cached=0):
    return {"prompt_tokens": given, "completion_tokens": out, "cached_tokens": cached}


@pytest.mark.parametrize(("failed", "ok"), [(0, True), (1, True), (2, False)])
def test_error_share(failed, ok):
    records = [request(k, status="failed" if k < failed else "ok") for k in range(100)]
    found = check("error_share", records)
    assert (found.value, found.ok) == (failed / 100, ok)


def test_no_request_at_all_is_invalid():
    assert check("requests_recorded", []).ok is False
    assert check("error_share", []).ok is None


def test_a_lost_record_is_seen():
    assert check("requests_recorded", [request(1)], sent=2).ok is False
    assert check("requests_recorded", [request(1)], sent=1).ok is True
    assert check("requests_recorded", [request(1)], sent=None).ok is False


def test_short_answers_fail_only_where_the_length_was_fixed():
    records = [request(1, osl=100, usage=usage(out=37))]
    assert check("output_tokens_vs_plan", records).ok is False
    assert check("output_tokens_vs_plan", records, fixed=False).ok is None
    longer = [request(1, osl=100, usage=usage(out=137))]
    assert check("output_tokens_vs_plan", longer, fixed=False).ok is False


def test_unknown_output_is_no_pass():
    assert check("output_tokens_vs_plan", [request(1, usage=None)]).ok is False


@pytest.mark.parametrize(
    ("asked", "counted", "ok"),
    [(1024, 1107, False), (1024, 1030, True), (64, 65, True), (64, 66, False)],
)
def test_prompt_lengths(asked, counted, ok):
    found = check("input_tokens_vs_plan", [request(1, isl=asked, usage=usage(given=counted))])
    assert found.ok is ok
    assert (str(counted) in found.note) is not ok


def test_unplanned_cache_hits():
    hit = [request(1, isl=1000, usage=usage(given=1000, cached=900))]
    assert check("unplanned_cache_hits", hit).ok is False
    assert check("unplanned_cache_hits", hit, cache=True).ok is None
    assert check("unplanned_cache_hits", [request(1, usage=usage(cached=None))]).ok is None


def hits(share):
    return EngineHits(share, 3.0, 3.6)


def test_the_engines_counters_tell_of_hits_where_usage_does_not():
    silent = [request(1, usage=usage(cached=None))]
    assert check("unplanned_cache_hits", silent, engine=hits(0.86)).ok is False
    assert check("unplanned_cache_hits", silent, engine=hits(0.0)).ok is True
    note = check("unplanned_cache_hits", silent, engine=hits(0.0)).note
    assert note.endswith("between scrapes inside the segments: 3.0 of 3.6 s")


def test_the_engines_counters_are_set_against_usage():
    told = [request(1, usage=usage(cached=0))]
    found = check("unplanned_cache_hits", told, engine=hits(0.86))
    assert (found.value, found.ok) == (0.86, False)
    assert found.note.endswith("3.0 of 3.6 s; usage tells of 0.0%")
    # Scrapes leave out a segment's edges.
    assert check("unplanned_cache_hits", told, engine=hits(0.02)).ok is True
    hit = [request(1, usage=usage(cached=32))]
    assert check("unplanned_cache_hits", hit, engine=hits(0.0)).value == 0.5


@pytest.mark.parametrize(
    ("engine", "ok", "value"), [(None, True, 0.0), (0.41, True, 0.0), (0.0, False, 0.5)]
)
def test_a_prefix_that_only_usage_reached_is_not_believed(engine, ok, value):
    stream = {"name": "main", "kind": "closed", "isl": 64, "prefix_tokens": 32}
    load = {"segments": [{"name": "main", "streams": [stream]}]}
    rows = parse_requests([JsonLine(1, request(1, usage=usage(cached=32)))], {}).rows
    (found,) = check_prefix(load, rows, None if engine is None else hits(engine), LIMITS)
    assert (found.ok, found.value) == (ok, value)


def test_requests_of_a_segment_that_is_not_measured_are_not_recorded_ones():
    rows = parse_requests([JsonLine(1, request(1, segment="other"))], {}).rows
    (found, *_) = check_requests(rows, 1, True, False, None, LIMITS, ["main"])
    assert (found.value, found.ok) == (0, False)
    assert found.note == "1 belong to no measured segment: other"


def test_answers_without_latencies_are_counted():
    records = [request(k) for k in range(4)]
    for record in records[1:]:
        record["t_ns"].reverse()
    found = check("latencies_missing", records)
    assert (found.value, found.ok) == (0.75, False)
    assert found.note == "3 of 4 that succeeded: event_times_run_backwards"
    assert check("latencies_missing", records[:1]).ok is True
    assert check("latencies_missing", [request(1, status="failed")]).ok is None


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"tokens": [10, 20, 30, 40, 4, None]}, "token_counts_contradicted: 1"),
        ({"tokens": [1, 2, 3, 9, 4, None]}, "token_counts_contradicted: 1"),
        ({"tokens": [2, 1, 3, 4, 4, None]}, "token_counts_contradicted: 1"),
        ({"usage": usage(out=0)}, "more_chunks_than_tokens: 1"),
        ({"usage": usage(out=3)}, "more_chunks_than_tokens: 1"),
        ({"usage": usage(cached=65)}, "cached_count_contradicted: 1"),
        ({"usage": {**usage(), "reasoning_tokens": 5}}, "more_reasoning_than_output: 1"),
    ],
)
def test_counts_that_contradict_each_other(changes, note):
    found = check("token_counts", [request(1, **changes)], fixed=False)
    assert (found.value, found.ok, found.note) == (1.0, False, note)
    assert check("token_counts", [request(1, **changes), *map(request, range(2, 101))]).ok is True


@pytest.mark.parametrize(
    "counts",
    [None, [1, 2, 3, 4, 4, None], [2, 2, 4, 4, 4, None], [4, 4, 4, 4, 4, None], [1, None] * 3],
)
def test_counts_that_agree(counts):
    assert check("token_counts", [request(1, tokens=counts)]).ok is True


def test_no_counts_contradict_nothing():
    assert check("token_counts", [request(1, usage=None)]).ok is None


def test_client_checks():
    good = {"status": "ok", "max_lag_ms": 2.0, "cpu_s": 1.0, "started_ns": 0, "ended_ns": 4 * 10**9}
    good |= {"late_ms": {"p50": 0.1, "p99": 1.0, "p995": 2.0, "max": 500.0}}
    assert [c.ok for c in check_client(good, [], LIMITS)] == [True, True, True, True]
    late = {"p50": 0.1, "p99": 400.0, "p995": 500.0, "max": 500.0}
    busy = {**good, "cpu_s": 3.9, "max_lag_ms": 500.0, "late_ms": late, "status": "failed"}
    assert [c.ok for c in check_client(busy, [], LIMITS)] == [False, False, False, False]
    assert [c.ok for c in check_client({}, [], LIMITS)] == [False, None, None, None]


@pytest.mark.parametrize(("ttft_ms", "limit"), [(100.0, 100.0), (9970.0, 1000.0)])
def test_a_late_client_matters_less_to_long_requests(ttft_ms, limit):
    record = request(1, ttft_ms=ttft_ms, gap_ms=10, osl=4)
    rows = parse_requests([JsonLine(1, record)], {}).rows
    lag = check_client({"status": "ok", "max_lag_ms": 400.0}, rows, LIMITS)[1]
    assert lag.limit == pytest.approx(limit)
    assert lag.ok is (limit == 1000.0)


def covered(samples, expected, too_short=False):
    ratio = None if too_short else min(samples / expected, 1.0)
    return Coverage("head", "proc", "main", samples, expected, ratio, 0.5, too_short, 0.5, [])


def collectors(status="ok", required=True):
    return {"head/proc": {"status": status, "required": required}}


@pytest.mark.parametrize(
    ("coverage", "ok"),
    [
        (covered(10, 10.0), True),
        (covered(7, 10.0), False),
        (covered(3, 3.98), True),
        (covered(10, 10.0)._replace(coverage=0.5, samples=20), False),
        (covered(10, 60.0)._replace(coverage=0.96), True),
        (covered(60, 60.0)._replace(coverage=0.94), False),
        (covered(0, 10.0), False),
        (covered(1, 2.0, too_short=True), None),
    ],
)
def test_coverage(coverage, ok):
    found = check_collectors(collectors(), [coverage], LIMITS)
    assert [c.ok for c in found] == [True, ok]


def test_a_required_collector_that_failed_or_left_nothing():
    found = check_collectors(collectors("failed"), [], LIMITS)
    assert [c.ok for c in found] == [False, False]
    assert check_collectors(collectors("failed", required=False), [], LIMITS) == []


def test_verdict_says_why():
    checks = check_client({"status": "failed", "max_lag_ms": 500.0}, [], LIMITS)
    outcome, reasons = verdict(checks)
    assert outcome == "invalid"
    assert reasons == ["client_status: failed, limit ok", "client_lag_ms: 500, limit 100"]
    assert verdict([]) == ("valid", [])


def test_limits_by_name():
    assert resolve_limits({"error_share": 0.5})["error_share"] == 0.5
    with pytest.raises(ConfigError, match="eror_share"):
        resolve_limits({"eror_share": 0.5})


def told(*entities, metric="m", collector="nvidia_smi", until=60):
    times = np.arange(1, until) * S
    inside = np.ones(times.size, np.bool_)
    values = np.zeros(times.size)
    names = ("head", collector)
    return [
        AlignedSeries(*names, e, metric, "u", "main", times, None, values, inside) for e in entities
    ]


def figures(series, collector="nvidia_smi", engine="vllm"):
    seen = covered(60, 60.0)._replace(collector=collector, interval_s=1.0)
    required = {f"head/{collector}": {"status": "ok", "required": True}}
    whole = [Segment("main", 0, 60 * S)]
    return check_figures(required, series, [seen], whole, LIMITS, engine)


def test_a_card_that_vanished_makes_telemetry_invalid():
    found = figures([*told("gpu0"), *told("gpu1", until=20), *told("gpu1/pid:7", until=5)])
    assert [(c.name.split()[-1], c.ok) for c in found] == [("gpu0", True), ("gpu1", False)]


@pytest.mark.parametrize(
    ("metric", "engine", "ok"),
    [
        ("vllm:num_requests_running", "vllm", True),
        ("node_cpu_total", "vllm", False),
        ("node_cpu_total", "of_my_own", True),
        ("node_cpu_total", None, True),
    ],
)
def test_pages_of_another_exporter_are_not_the_engines(metric, engine, ok):
    series = told("server", metric=metric, collector="engine_metrics")
    (found,) = figures(series, "engine_metrics", engine)
    assert found.ok is ok


def test_a_required_collector_that_told_nothing():
    (found,) = figures([])
    assert (found.ok, found.note) == (False, "its output has no figure")
