"""Open loops: arrival processes, their schedule, and how far the client fell behind it."""

import itertools
import json
import statistics
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from load_server import ScriptServer, stream
from ref_process import measure
from test_load_bench import run

from servemap.analysis.checks.client import check_schedule
from servemap.analysis.metrics import figures
from servemap.analysis.requests import parse_requests
from servemap.analysis.verdict import default_limits
from servemap.onnode import bench, bench_options
from servemap.onnode.checked import SpecError
from servemap.onnode.load_arrivals import PROCESSES, arrivals
from servemap.onnode.load_spec import parse_spec
from servemap.parsers.jsonl import stream_jsonl
from tests.reference import reference_server
from tests.waiting import WAIT_S, longer


def rate(**more: Any) -> dict[str, Any]:
    return {"name": "main", "kind": "rate", "isl": 8, "osl": 2, **more}


def spec_of(*streams: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "url": "http://127.0.0.1:1",
        "model": "m",
        "seed": "s",
        "vocab": [300, 4000],
        "timeout_s": 20,
        "case_timeout_s": 60,
        "segments": [{"name": "main", "streams": list(streams)}],
        **more,
    }


@settings(deadline=None)
@given(
    st.sampled_from(PROCESSES),
    st.floats(0.01, 1e5),
    st.floats(0.05, 500),
    st.integers(1, 300),
    st.text(max_size=5),
)
def test_times_rise_from_0_and_have_exactly_the_rate(process, rps, shape, count, seed):
    times = arrivals(process, rps, shape, count, seed)
    assert len(times) == count
    assert times[0] == 0
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx((count - 1) / rps)
    assert times == arrivals(process, rps, shape, count, seed)


@pytest.mark.parametrize(
    ("process", "shape", "cv"),
    [("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5), ("constant", 1.0, 0.0)],
)
def test_the_spread_of_the_gaps_is_that_of_the_process(process, shape, cv):
    # The CV of a gamma distribution of shape k is 1 / sqrt(k).
    times = arrivals(process, 10, shape, 20_000, "seed")
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, abs=0.06)


def test_two_seeds_two_streams_and_two_segments_have_times_of_their_own():
    streams = [rate(rate_rps=9, num_prompts=5), {**rate(rate_rps=9, num_prompts=5), "name": "b"}]
    segments = [{"name": name, "streams": streams} for name in ("one", "two")]
    found = [
        stream.at_s
        for seed in ("x", "y")
        for segment in parse_spec(spec_of(seed=seed, segments=segments)).segments
        for stream in segment.streams
    ]
    assert len(set(found)) == len(found) == 8


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_prompts": 5}, "rate_rps: null"),
        ({"rate_rps": 0, "num_prompts": 5}, "rate_rps: 0 .* in range"),
        ({"rate_rps": 5}, "num_prompts: null"),
        ({"rate_rps": 5, "num_prompts": 5, "arrivals": "pareto"}, "arrivals: .* poisson, gamma"),
        ({"rate_rps": 5, "num_prompts": 5, "arrivals": "gamma"}, "burstiness: null"),
        ({"rate_rps": 5, "num_prompts": 5, "burstiness": 2}, "burstiness: 2"),
        ({"rate_rps": 5, "num_prompts": 5, "arrivals": "gamma", "burstiness": 0}, "burstiness: 0"),
        ({"rate_rps": 5, "num_prompts": 5, "concurrency": 3}, "concurrency: 3 .* not known"),
    ],
)
def test_bad_streams_are_refused_by_key(more, says):
    with pytest.raises(SpecError, match=says):
        parse_spec(spec_of(rate(**more)))


def test_requests_go_out_at_their_times_whether_answers_came_or_not(tmp_path):
    # No answer comes before all are asked for.
    all_asked = threading.Barrier(10, timeout=WAIT_S)

    def script(_number: int, body: dict[str, Any]) -> Any:
        all_asked.wait()
        yield from stream(body)

    with ScriptServer(script) as server:
        load = rate(rate_rps=50, num_prompts=10, arrivals="constant")
        got = run(tmp_path, spec_of(load, url=server.url))
    assert got.statuses() == ["ok"] * 10
    segment = got.client["segments"][0]
    assert segment["overlaps"] == []
    due = [record["scheduled_ns"] - segment["start_ns"] for record in got.measured]
    assert due == [index * 20_000_000 for index in range(10)]
    assert all(record["sent_ns"] >= record["scheduled_ns"] for record in got.measured)
    rows = parse_requests(list(stream_jsonl(tmp_path / "out/requests.jsonl", [])), {}).rows
    lag = figures(rows, 1.0)["schedule_lag_s"]
    assert lag["n"] == 10
    behind = [(record["sent_ns"] - record["scheduled_ns"]) / 1e9 for record in got.measured]
    assert lag["max"] == pytest.approx(max(behind))


def test_an_idle_connection_serves_the_next_request(tmp_path):
    for gap_s in longer(0.05):
        load = rate(rate_rps=1 / gap_s, num_prompts=24, arrivals="constant")
        segments = [{"name": "main", "streams": [load]}]
        got = measure(tmp_path / f"{gap_s:g}", {}, segments=segments)
        assert [row.status for row in got.rows] == ["ok"] * 24
        if len({row["connection"] for row in got.log}) < 24:
            break
    # Those due within the first half second have a connection each, the others mostly reuse one.
    assert len({row["connection"] for row in got.log}) < 24


def test_a_client_that_falls_behind_is_found_out(tmp_path):
    poisson = rate(rate_rps=50, num_prompts=100, arrivals="poisson")
    got = measure(tmp_path, {}, segments=[{"name": "main", "streams": [poisson]}])
    load = {"segments": [{"streams": [poisson]}]}
    behind = [row._replace(sent_ns=(row.scheduled_ns or 0) + 250_000_000) for row in got.rows]
    (check,) = check_schedule(load, behind, default_limits())
    assert (check.name, check.value, check.ok) == ("schedule_lag_p99_ms", 250.0, False)
    on_time = [row._replace(sent_ns=(row.scheduled_ns or 0) + 1_000_000) for row in got.rows]
    (check,) = check_schedule(load, on_time, default_limits())
    assert (check.value, check.ok) == (1.0, True)
    # A long answer makes the same delay a small share of it.
    slow = [row._replace(e2e_s=60.0) for row in behind]
    assert check_schedule(load, slow, default_limits())[0].ok is True
    assert check_schedule({"segments": [{"streams": [{"kind": "closed"}]}]}, behind, {}) == []
    assert figures(behind, 1.0)["schedule_lag_s"]["p50"] == pytest.approx(0.25)


def test_the_options_make_an_open_loop(tmp_path, capsys):
    assert bench_of("--rate 5 --arrivals gamma --burstiness 0.5")["burstiness"] == 0.5
    stream = bench_of("--rate 5")
    assert (stream["kind"], stream["num_prompts"], stream["rate_rps"]) == ("rate", 10, 5.0)
    for line, says in (
        ("--rate 5 --concurrency 3", "--concurrency: does not go with --rate"),
        ("--rate 5 --min-window 3", "--min-window: does not go with --rate"),
        ("--arrivals gamma", "--arrivals: goes with --rate"),
        ("--rate 0", "--rate: 0.0"),
    ):
        argv = ["--url", "http://127.0.0.1:1", "--model", "m", *line.split()]
        assert bench.main([*argv, "--out", str(tmp_path / "out")]) == 2
        assert says in capsys.readouterr().err


def test_the_options_make_an_injection(tmp_path, capsys):
    with reference_server(tmp_path, {"answer": {"ttft_ms": 5, "gap_ms": 2}}) as (url, _):
        words = [
            "--isl",
            "8",
            "--osl",
            "4",
            "--num-prompts",
            "4",
            "--inject",
            "64:1",
            "--inject-at",
            "0.01,0.005",
        ]
        argv = ["--url", url, "--model", "m", *words, "--out", str(tmp_path / "out")]
        assert bench.main(argv) == 0
    said = capsys.readouterr().out
    for part in ("control, background\n", "injected, background\n", "injected, injected\n"):
        assert said.count(part) == 1
    load = json.loads((tmp_path / "out/load.json").read_text())
    control, injected = load["segments"]
    assert control["streams"] == [injected["streams"][0]]
    assert injected["streams"][1]["at_s"] == [0.01, 0.005]
    lines = list(stream_jsonl(tmp_path / "out/requests.jsonl", []))
    sent = [(line.value["segment"], line.value["stream"]) for line in lines]
    assert [sent.count(("injected", name)) for name in ("background", "injected")] == [4, 2]
    for line, says in (
        ("--inject 64:1", "--inject-at"),
        ("--inject 64 --inject-at 1", "give ISL:OSL"),
        ("--inject 64:1 --inject-at soon", "give seconds"),
        ("--inject 64:1 --inject-at 1 --rate 3", "does not go with --inject"),
        ("--inject-at 1", "goes with --inject"),
    ):
        argv = ["--url", "http://127.0.0.1:1", "--model", "m", *line.split()]
        assert bench.main([*argv, "--out", str(tmp_path / "out2")]) == 2
        assert says in capsys.readouterr().err


def bench_of(line: str) -> dict[str, Any]:
    argv = ["--url", "http://127.0.0.1:1", "--model", "m", "--out", "o", *line.split()]
    options = vars(bench_options.option_parser().parse_args(argv))
    options.pop("out")
    spec = bench_options.spec_from_options(options)
    parse_spec(spec)
    return spec["segments"][0]["streams"][0]
