"""Prompts that share a prefix: how much, where they part, and what the cache made of it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ref_process import load, measure, read_load, reference_server

from servemap.analysis.cached import EngineHits
from servemap.analysis.checks.cache import check_prefix
from servemap.analysis.verdict import default_limits
from servemap.onnode import bench
from servemap.onnode.checked import SpecError
from servemap.onnode.load_prompts import Prompts
from servemap.onnode.load_spec import parse_spec


def shared(isl: int, prefix: int, **more: Any) -> dict[str, Any]:
    stream = {"name": "main", "kind": "closed", "isl": isl, "osl": 2, "prefix_tokens": prefix}
    return {**stream, "concurrency": 4, "num_prompts": 40, **more}


def spec_of(isl: int, prefix: int, seed: str = "s") -> dict[str, Any]:
    stream = shared(isl, prefix)
    warmup = {key: stream[key] for key in ("isl", "osl", "prefix_tokens")}
    return {
        "segments": [{"name": "main", "streams": [stream]}],
        "warmup": {**warmup, "concurrency": 1, "num_prompts": 1},
        "seed": seed,
    }


@settings(deadline=None)
@given(st.integers(1, 200), st.data(), st.text(max_size=5))
def test_prompts_share_exactly_the_prefix(isl, data, seed):
    prefix = data.draw(st.integers(0, isl - 1))
    prompts = Prompts(seed, [str(token) for token in range(300, 4000)])
    made = [prompts.tokens(ordinal, isl, prefix) for ordinal in range(5)]
    assert {len(one) for one in made} == {isl}
    assert len({tuple(one[:prefix]) for one in made}) == 1
    assert len({one[prefix] for one in made}) == 5
    longer = prompts.tokens(9, isl + 50, prefix + 50)
    assert longer[:prefix] == made[0][:prefix]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
def test_the_asked_share_is_reached(tmp_path, share):
    isl = 640
    spec = spec_of(isl, int(share * isl))
    got = measure(tmp_path, {"answer": {"cached_tokens": "prefix"}}, **spec)
    (check,) = check_prefix(spec, got.rows, None, default_limits())
    assert check.ok is True
    assert check.value == pytest.approx(0, abs=16 / isl)
    assert f"{share:.1%} asked" in check.note
    # What is not shared is not found: the prompts part right behind the prefix.
    assert max(row.cached_tokens for row in got.rows) <= share * isl


def test_a_server_without_a_cache_is_found_out(tmp_path):
    spec = spec_of(64, 32)
    got = measure(tmp_path, {"answer": {"cached_tokens": 0}}, **spec)
    (check,) = check_prefix(spec, got.rows, None, default_limits())
    assert (check.ok, check.value) == (False, 0.5)
    assert "50.0% asked, 0.0% reached" in check.note


def test_the_engines_counters_are_asked_where_usage_does_not_tell(tmp_path):
    spec = spec_of(64, 32)
    got = measure(tmp_path, {}, **spec)
    limits = default_limits()
    assert check_prefix(spec, got.rows, EngineHits(0.48, 1, 2), limits)[0].ok is True
    assert check_prefix(spec, got.rows, EngineHits(0.2, 1, 2), limits)[0].ok is False
    (unknown,) = check_prefix(spec, got.rows, None, limits)
    assert (unknown.value, unknown.ok) == (None, False)
    assert check_prefix(spec_of(64, 0), got.rows, None, limits)[0].ok is None
    del spec["segments"][0]["streams"][0]["prefix_tokens"]
    assert check_prefix(spec, got.rows, EngineHits(0.5, 1, 2), limits) == []


def test_what_was_reached_says_what_it_covers(tmp_path):
    spec = spec_of(64, 32)
    got = measure(tmp_path, {"answer": {"cached_tokens": "prefix"}}, **spec)
    (check,) = check_prefix(spec, got.rows, EngineHits(3 / 7, 3.04, 4.5), default_limits())
    assert (check.ok, check.value) == (True, 0), "usage is of all requests, and counts"
    assert check.note == (
        "50.0% asked, 50.0% reached by usage (42.9% by the engine's counters, between scrapes "
        "inside the segments: 3.0 of 4.5 s)"
    )


def test_bench_prints_what_was_cached(tmp_path, capsys):
    with reference_server(tmp_path, {"answer": {"cached_tokens": "prefix"}}) as (url, _):
        argv = ["--url", url, "--model", "reference", "--isl", "64", "--osl", "2"]
        argv += ["--num-prompts", "4", "--prefix-share", "0.5", "--out", str(tmp_path / "out")]
        assert bench.main(argv) == 0
    assert "cached    50.0% of the input, by the server's usage" in capsys.readouterr().out


def test_another_run_shares_nothing_with_this_one(tmp_path):
    with reference_server(tmp_path, {"answer": {"cached_tokens": "prefix"}}) as (url, log):
        runs = [load(tmp_path / seed, url, log, **spec_of(64, 32, seed)) for seed in "ab"]
    for one in runs:
        got = read_load(*one, log)
        assert {row.cached_tokens for row in got.rows} == {32}
    first = [row["cached_tokens"] for row in got.log]
    assert first.count(0) == 2, "each run's warm-up brings its prefix in"


@pytest.mark.parametrize("prefix", [8, 9, -1, 1.5, "half"])
def test_a_prefix_leaves_room_for_a_difference(prefix):
    spec = {
        "schema": 1,
        "url": "http://127.0.0.1:1",
        "model": "m",
        "seed": "s",
        "vocab": [300, 4000],
        "timeout_s": 20,
        "case_timeout_s": 60,
        "segments": [{"name": "main", "streams": [shared(8, prefix)]}],
    }
    with pytest.raises(SpecError, match="prefix_tokens"):
        parse_spec(spec)
