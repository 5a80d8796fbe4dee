"""Replays: traces read, lengths and times kept or capped, prompts alike where they were alike."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ref_process import Load, measure, read_load, reference_server

from servemap.onnode import bench
from servemap.onnode.checked import SpecError
from servemap.onnode.load_prompts import Prompts
from servemap.onnode.load_spec import Recorded, parse_spec
from servemap.onnode.load_trace import Caps, read_trace

ALL = Caps(None, None, None, 1.0, 1.0)
IDS = [str(token) for token in range(300, 4000)]


def write(folder: Path, *rows: Any) -> str:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    return str(path)


def replay(
    tmp_path: Path, rows: list[Any], line: str, answer: dict[str, Any] | None = None
) -> Load:
    trace = write(tmp_path, *rows)
    with reference_server(tmp_path / "server", {"answer": answer or {}}) as (url, log):
        argv = ["--url", url, "--model", "m", "--trace", trace, "--warmup", "0", *line.split()]
        code = bench.main([*argv, "--out", str(tmp_path / "out")])
    return read_load(code, tmp_path / "out", log)


def test_both_forms_of_a_line(tmp_path):
    own = {"isl": 100, "osl": 20, "at_s": 5.5, "conversation": 7, "comment": "left out"}
    public = {"timestamp": 7000, "input_length": 40, "output_length": 3, "hash_ids": [1, 2, 3]}
    assert read_trace(write(tmp_path, own, {"isl": 1, "osl": 2}), ALL) == [
        {"isl": 100, "osl": 20, "at_s": 0.0, "conversation": "7"},
        {"isl": 1, "osl": 2},
    ]
    caps = Caps(30, 2, None, 0.001, 2.0)
    rows = read_trace(write(tmp_path, public, {**public, "timestamp": 9000}), caps)
    assert rows[0] == {"isl": 30, "osl": 2, "at_s": 0.0, "blocks": [1, 2, 3]}
    assert rows[1]["at_s"] == 1.0
    assert len(read_trace(write(tmp_path, own, own, own), ALL._replace(requests=2))) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no request"),
        ('{"isl": 5, "osl": 1}\n{"isl"', "line 2: is not JSON"),
        ("[1]", "line 1: .* give an object"),
        ('{"isl": 0, "osl": 1}', "line 1.isl: 0"),
        ('{"isl": 5}', "line 1.osl: null"),
        ('{"isl": 5, "osl": 1, "at_s": -1}', "line 1.at_s: -1"),
        ('{"isl": 5, "osl": 1, "at_s": "noon"}', "line 1.at_s"),
        ("\xff", "is not JSON"),
    ],
)
def test_a_bad_trace_is_named_by_line(tmp_path, text, says):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(SpecError, match=says):
        read_trace(str(path), ALL)
    with pytest.raises(SpecError, match="cannot be read"):
        read_trace(str(tmp_path / "none"), ALL)


@settings(deadline=None)
@given(st.lists(st.integers(1, 200), min_size=2, max_size=6), st.text(min_size=1, max_size=3))
def test_a_turn_begins_with_the_prompt_before_it(lengths, name):
    prompts = Prompts("s", IDS)
    made = [
        prompts.replayed(i, Recorded(n, 1, name, ()), 16) for i, n in enumerate(sorted(lengths))
    ]
    assert [len(one) for one in made] == sorted(lengths)
    for shorter, longer in itertools.pairwise(made):
        assert longer[: len(shorter)] == shorter
    other = prompts.replayed(0, Recorded(200, 1, name + "x", ()), 16)
    assert other != prompts.replayed(0, Recorded(200, 1, name, ()), 16)


@given(st.lists(st.integers(0, 9), max_size=5), st.integers(1, 100), st.integers(1, 20))
def test_blocks_are_alike_where_their_ids_are(blocks, isl, size):
    prompts = Prompts("s", IDS)
    made = [prompts.replayed(i, Recorded(isl, 1, None, tuple(blocks)), size) for i in (1, 2)]
    shared = min(isl, len(blocks) * size)
    assert [len(one) for one in made] == [isl, isl]
    assert made[0][:shared] == made[1][:shared]
    assert shared == isl or made[0][shared] != made[1][shared]


def test_recorded_times_and_lengths(tmp_path):
    rows = [{"isl": 30, "osl": 4, "at_s": 3.0}, {"isl": 10, "osl": 2, "at_s": 2.0}]
    got = replay(tmp_path, [*rows, {"isl": 90, "osl": 9, "at_s": 2.5}], "--speed 4 --osl-cap 5")
    assert [row.status for row in got.rows] == ["ok"] * 3
    start = got.client["segments"][0]["start_ns"]
    due = [record["scheduled_ns"] - start for record in got.records]
    assert due == [0, 125_000_000, 250_000_000]
    assert [(r["isl"], r["osl"]) for r in got.records] == [(10, 2), (90, 5), (30, 4)]
    assert [(row.input_tokens, row.output_tokens) for row in got.rows] == [
        (10, 2),
        (90, 5),
        (30, 4),
    ]
    assert got.checks()["output_tokens_vs_plan"].ok is True


def test_in_a_closed_loop_a_turn_waits_for_the_one_before(tmp_path):
    rows = [
        {"isl": 64 * turn, "osl": 2, "conversation": name}
        for turn in (1, 2, 3)
        for name in ("a", "b", "c", "d")
    ]
    answer = {"cached_tokens": "prefix", "gap_ms": 5}
    got = replay(tmp_path, [*rows, {"isl": 20, "osl": 2}], "--concurrency 3", answer)
    assert [row.status for row in got.rows] == ["ok"] * 13
    turns: dict[int, list[Any]] = {}
    for record in got.records:
        if record["isl"] != 20:
            served = got.served(record)
            turns.setdefault((int(record["id"][-6:]) - 1) % 4, []).append((record, served))
    for members in turns.values():
        assert [record["isl"] for record, _ in members] == [64, 128, 192]
        for (before, _), (after, served) in itertools.pairwise(members):
            assert after["sent_ns"] >= before["t_ns"][-1]
            # What the turn before brought in is found, whole blocks of it.
            assert served["cached_tokens"] == before["isl"]
        assert members[0][1]["cached_tokens"] == 0
    assert got.client["counts"]["planned"] == 13


def test_a_fixed_window_does_not_repeat_a_replay(tmp_path):
    stream = {"name": "main", "kind": "replay", "concurrency": 2}
    segments = [{"name": "main", "streams": [{**stream, "requests": [{"isl": 4, "osl": 2}] * 3}]}]
    got = measure(tmp_path, {}, segments=segments, min_window_s=0.2)
    assert [row.status for row in got.rows] == ["ok"] * 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--trace {trace}", "--trace: not every request has a time"),
        ("--trace {trace} --concurrency 1 --isl 5", "--isl: does not go with --trace"),
        ("--trace {trace} --rate 5", "--trace: does not go with --rate"),
        ("--isl-cap 5", "--isl-cap: goes with --trace"),
        ("--trace {trace} --concurrency 1 --speed 0", "--speed: 0.0"),
        ("--trace {trace} --concurrency 0", "concurrency: 0"),
        ("--trace {trace} --concurrency 1 --block-tokens 0", "block_tokens: 0"),
        ("--trace {tmp}/none --concurrency 1", "cannot be read"),
    ],
)
def test_bad_options_are_one_line(tmp_path, capsys, line, says):
    trace = write(tmp_path, {"isl": 5, "osl": 1})
    argv = ["--url", "http://127.0.0.1:1", "--model", "m", "--out", str(tmp_path / "out")]
    assert bench.main([*argv, *line.format(trace=trace, tmp=tmp_path).split()]) == 2
    shown = capsys.readouterr().err
    assert says in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ({"requests": []}, "requests: .* at least one"),
        ({"requests": [{"isl": 1, "osl": 1}]}, "give each its time"),
        ({"requests": [{"isl": 1, "osl": 1, "at_s": 1, "x": 2}]}, r"requests\[0\].x"),
        ({"requests": [{"isl": 1, "osl": 1, "at_s": 1, "blocks": "a"}]}, r"requests\[0\].blocks"),
        ({"requests": [{"isl": 1, "osl": 1}], "concurrency": "all"}, "concurrency"),
    ],
)
def test_bad_streams_are_refused_by_key(stream, says):
    spec = {
        "schema": 1, "url": "http://127.0.0.1:1", "model": "m", "seed": "s", "vocab": [300, 4000],
        "timeout_s": 20, "case_timeout_s": 60,
    }  # fmt: skip
    streams = [{"name": "main", "kind": "replay", **stream}]
    with pytest.raises(SpecError, match=says):
        parse_spec({**spec, "segments": [{"name": "main", "streams": streams}]})
