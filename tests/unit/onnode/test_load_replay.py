"""Replays: traces read, lengths and times kept or capped, prompts alike where they were alike."""

import hashlib
import itertools
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ref_process import Load, measure, read_load, reference_server

from servemap.onnode import bench
from servemap.onnode.checked import SpecError
from servemap.onnode.load_prompts import Prompts
from servemap.onnode.load_spec import Recorded, parse_spec
from servemap.onnode.load_trace import Caps, least_s, read_trace
from servemap.onnode.load_trace_rows import TraceError

ALL = Caps()
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


def text_of(folder: Path, text: str) -> str:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_own_lines_and_caps(tmp_path):
    own = {"isl": 100, "osl": 20, "at_s": 5.5, "conversation": 7, "comment": "left out"}
    path = write(tmp_path, own, {"isl": 1, "osl": 2}, {**own, "at_s": 7.5, "hash_ids": [3]})
    trace = read_trace(path, ALL)
    assert (trace.form, trace.left_out, trace.block_tokens) == ("servemap", 0, 16)
    assert trace.sha256 == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert trace.requests == [
        {"isl": 100, "osl": 20, "at_s": 0.0, "conversation": "7"},
        {"isl": 1, "osl": 2},
        {"isl": 100, "osl": 20, "at_s": 2.0, "conversation": "7", "blocks": [3]},
    ]
    capped = read_trace(path, Caps(isl=30, osl=3, requests=2, block_tokens=5))
    assert [(row["isl"], row["osl"]) for row in capped.requests] == [(30, 3), (1, 2)]
    assert (capped.block_tokens, capped.sha256) == (5, trace.sha256)


def test_public_forms_are_told_from_their_first_line(tmp_path):
    mooncake = {"timestamp": 7000, "input_length": 40, "output_length": 3, "hash_ids": [1, 2]}
    trace = read_trace(write(tmp_path, mooncake, {**mooncake, "timestamp": 9000}), Caps(speed=2.0))
    assert (trace.form, trace.block_tokens) == ("mooncake", 512)
    assert trace.requests[1] == {"isl": 40, "osl": 3, "at_s": 1.0, "blocks": [1, 2]}
    seconds = read_trace(write(tmp_path, mooncake, {**mooncake, "timestamp": 7002}), Caps(
        timestamp_s=1.0, block_tokens=8,
    ))  # fmt: skip
    assert (seconds.requests[1]["at_s"], seconds.block_tokens) == (2.0, 8)

    chats = [
        {"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": 9,
         "output_length": 1, "type": "text", "turn": 1, "hash_ids": [chat]}
        for chat, parent, at in ((1, -1, 0.5), (2, -1, 1.0), (3, 1, 2.5), (4, 3, 5.0), (9, 8, 6.0))
    ]  # fmt: skip
    trace = read_trace(write(tmp_path, *chats), Caps(think=1.0))
    assert (trace.form, trace.block_tokens) == ("qwen-bailian", 16)
    assert [row["conversation"] for row in trace.requests] == ["1", "2", "1", "1", "8"]
    assert [row["at_s"] for row in trace.requests] == [0.0, 0.5, 2.0, 4.5, 5.5]
    assert [row.get("think_s") for row in trace.requests] == [None, None, 2.0, 2.5, None]

    azure = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 23:59:59.5000000,4808,10\r\n2023-11-17 00:00:01.2500000,3180,8\r\n"
    )
    trace = read_trace(text_of(tmp_path, azure), ALL)
    assert trace.form == "azure"
    assert trace.requests == [
        {"isl": 4808, "osl": 10, "at_s": 0.0},
        {"isl": 3180, "osl": 8, "at_s": 1.75},
    ]

    burst = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n"
        "118,GPT-4,417,276,693,Conversation log\n"
    )
    trace = read_trace(text_of(tmp_path, burst), ALL)
    assert (trace.form, trace.left_out) == ("burstgpt", 1)
    assert [row["at_s"] for row in trace.requests] == [0.0, 113.0]

    sessions = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n0,4.0,2.5,GPT-4,10,5,15,Conversation log\n"
        "8,4.0,1,GPT-4,20,5,25,Conversation log\n9,,1,GPT-4,20,5,25,API log\n"
    )
    trace = read_trace(text_of(tmp_path, sessions), Caps(think=0.5))
    assert [row.get("conversation") for row in trace.requests] == ["4.0", "4.0", None]
    # 8 s after the turn before arrived, which took 2.5 s; half of the pause is kept.
    assert trace.requests[1]["think_s"] == 2.75


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no request"),
        ('{"isl": 5, "osl": 1}\n{"isl"', "line 2: the line is not JSON"),
        ("[1]", "line 1: the file is one JSON list.*tokenizer"),
        ("5", "line 1: no form of trace has the fields 5"),
        ('{"id": "a", "conversations": [{"from": "human", "value": "Hi"}]}', "texts.*tokenizer"),
        ('{"isl": 5, "osl": 1}\n7', "line 2: the line is 7; give an object"),
        ('{"isl": 0, "osl": 1}', "line 1: isl is 0; give a whole number from 1"),
        ('{"isl": 5}', "line 1: osl is null"),
        ('{"isl": 5, "osl": 1.5}', "line 1: osl is 1.5"),
        ('{"isl": 5, "osl": true}', "line 1: osl is true"),
        ('{"isl": 5, "osl": 1, "at_s": -1}', "line 1: at_s is -1"),
        ('{"isl": 5, "osl": 1, "at_s": "noon"}', "line 1: at_s"),
        ('{"isl": 5, "osl": 1, "at_s": NaN}', "line 1: at_s is NaN"),
        ('{"isl": 5, "osl": 1, "think_s": -1}', "line 1: think_s is -1"),
        ('{"isl": 5, "osl": 1, "conversation": [1]}', "line 1: conversation"),
        ('{"isl": 5, "osl": 1, "hash_ids": ["a"]}', "line 1: hash_ids"),
        ('{"isl": 5, "osl": 1, "at_s": 0}\n{"isl": 5, "osl": 1, "at_s": 1e7}', "span 1e.07 s"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1", 'line 2: TIMESTAMP is "noon"'),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-01 00:00:00,1,1", "line 2: TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n1,1", "line 2: the line has 2 fields"),
        ("Timestamp,Request tokens,Response tokens\n1,x,1", 'line 2: Request tokens is "x"'),
        ("Timestamp,Request tokens,Response tokens\n1,0,1", "holds no request"),
        (
            "Timestamp,Request tokens,Response tokens,Request tokens\n1,5,1,9",
            "line 1: the column Request tokens is there twice",
        ),
        ('{"isl": 5, "osl": 1, "isl": 9}', "line 1: the line is not JSON .the key 'isl' is there"),
        ('{"isl": 5, "osl": 1}\n{"isl": 5, "osl": 1, "osl": 2}', "line 2:.*the key 'osl'"),
        ("\xff", "no form of trace"),
        ("\r0", "line 1: the line is not CSV"),
        ('Timestamp,Request tokens,Response tokens\n1,"1,1', "line 2: the line is not CSV"),
    ],
)
def test_a_bad_trace_is_named_by_line(tmp_path, text, says):
    path = text_of(tmp_path, text)
    with pytest.raises(TraceError, match=says) as caught:
        read_trace(path, ALL)
    assert caught.value.where.startswith(path)
    assert caught.value.remedy


def test_a_column_that_is_not_used_may_be_there_twice(tmp_path):
    text = "Timestamp,Request tokens,Response tokens,Note,Note\n1,5,2,a,b"
    (request,) = read_trace(text_of(tmp_path, text), ALL).requests
    assert (request["isl"], request["osl"]) == (5, 2)


def test_what_is_no_text_or_no_file(tmp_path):
    path = tmp_path / "trace"
    path.write_bytes(b'{"isl": 5, "osl": 1}\n\xff')
    with pytest.raises(TraceError, match="line 2: the text is not UTF-8"):
        read_trace(str(path), ALL)
    for wrong in (tmp_path / "none", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(str(wrong), ALL)
    # What comes after the last wanted request is not looked at.
    assert len(read_trace(str(path), Caps(requests=1)).requests) == 1


LENGTH = st.integers(1, 5000)
PAUSE = st.integers(0, 10**6).map(lambda ms: ms / 1000)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LENGTH, LENGTH, PAUSE), min_size=1, max_size=8), st.integers(1, 4000))
def test_every_form_says_the_same(tmp_path, rows, cap):
    """The same requests in each form are the same trace, whatever they are."""
    begin = datetime(2024, 5, 10, 23, 59, tzinfo=timezone(timedelta(hours=-7)))
    dates = [(begin + timedelta(seconds=at)).isoformat(" ") for _, _, at in rows]
    forms = {
        "servemap": [json.dumps({"isl": i, "osl": o, "at_s": at}) for i, o, at in rows],
        "mooncake": [
            json.dumps({"timestamp": at * 1000, "input_length": i, "output_length": o})
            for i, o, at in rows
        ],
        "azure": [
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            *(f"{date},{i},{o}" for date, (i, o, _) in zip(dates, rows, strict=True)),
        ],
        "burstgpt": [
            "Model,Timestamp,Response tokens,Request tokens",
            *(f"GPT-4,{at},{o},{i}" for i, o, at in rows),
        ],
    }
    first = min(at for _, _, at in rows)
    for name, lines in forms.items():
        trace = read_trace(text_of(tmp_path, "\n".join(lines)), Caps(isl=cap, osl=cap, speed=2.0))
        assert trace.form == name
        for (isl, osl, at), request in zip(rows, trace.requests, strict=True):
            assert (request["isl"], request["osl"]) == (min(isl, cap), min(osl, cap))
            assert request["at_s"] == pytest.approx((at - first) / 2, abs=1e-6)
        assert least_s(trace.requests, None) == max(row["at_s"] for row in trace.requests)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(max_size=60), st.binary(max_size=60)), st.booleans())
def test_any_file_is_read_or_refused(tmp_path, content, header):
    path = tmp_path / "trace"
    data = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    path.write_bytes(b"Timestamp,Request tokens,Response tokens\n" * header + data)
    try:
        trace = read_trace(str(path), ALL)
    except TraceError as error:
        assert str(path) in error.where
    else:
        assert trace.requests


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from("abc"), PAUSE, st.none() | PAUSE), min_size=1, max_size=9),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.integers(1, 4),
)
def test_pauses_and_the_time_that_a_closed_loop_takes(tmp_path, turns, factor, concurrency):
    rows = [
        {"isl": 1, "osl": 1, "conversation": name, "at_s": at}
        | ({} if think is None else {"think_s": think})
        for name, at, think in turns
    ]
    trace = read_trace(write(tmp_path, *rows), Caps(think=factor))
    before: dict[str, float] = {}
    sums: dict[str, float] = {}
    for (name, at, think), request in zip(turns, trace.requests, strict=True):
        pause = 0.0
        if name in before:
            pause = max(0.0, at - before[name]) if think is None else think
        assert request.get("think_s", 0.0) == pytest.approx(pause * factor)
        before[name] = at
        sums[name] = sums.get(name, 0.0) + pause * factor
    took = least_s(trace.requests, concurrency)
    longest, total = max(sums.values()), sum(sums.values())
    assert took >= longest or took == pytest.approx(longest)
    assert took <= total or took == pytest.approx(total)
    if concurrency == 1:
        assert took == pytest.approx(total)
    if concurrency >= len(sums):
        assert took == pytest.approx(longest)


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


@pytest.mark.parametrize(
    ("line", "factor"),
    [("", 1.0), ("--think compress --think-factor 0.5", 0.5), ("--think none", 0.0)],
)
def test_a_turn_comes_after_the_pause(tmp_path, capsys, line, factor):
    rows = [
        {"isl": 16 * turn, "osl": 2, "conversation": name, "think_s": pause}
        for turn, pauses in ((1, (9, 9, 9)), (2, (0.2, 0.3, 0.0)), (3, (0.1, 0.2, 0.3)))
        for name, pause in zip("abc", pauses, strict=True)
    ]
    got = replay(tmp_path, rows, f"--concurrency 2 {line}", {"gap_ms": 5})
    assert [row.status for row in got.rows] == ["ok"] * 9
    by_index = {int(record["id"][-6:]) - 1: record for record in got.records}
    start = got.client["segments"][0]["start_ns"]
    assert [by_index[index]["scheduled_ns"] for index in (0, 1)] == [start, start]
    behind = []
    for index in range(3, 9):
        due = by_index[index]["scheduled_ns"] - by_index[index - 3]["t_ns"][-1]
        pause = rows[index]["think_s"] * factor
        # Due that long after the last byte came, which is at or after the last event's stamp.
        behind.append(due - pause * 1e9)
        assert by_index[index]["sent_ns"] >= by_index[index]["scheduled_ns"]
    # Most last bytes come with the last event; one that lies unread for a while is no pause.
    assert min(behind) >= 0 and sorted(behind)[2] < 4e7
    # What was sent late is told of the turns that had a time of their own.
    assert ("schedule  sent" in capsys.readouterr().out) == (factor > 0)
    # The slot stays with its conversation: the third one begins when the first of the two ends.
    ends = [by_index[index]["t_ns"][-1] for index in (6, 7)]
    assert by_index[2]["scheduled_ns"] >= min(ends)


def test_a_fixed_window_does_not_repeat_a_replay(tmp_path):
    stream = {"name": "main", "kind": "replay", "concurrency": 2}
    segments = [{"name": "main", "streams": [{**stream, "requests": [{"isl": 4, "osl": 2}] * 3}]}]
    got = measure(tmp_path, {}, segments=segments, min_window_s=0.2)
    assert [row.status for row in got.rows] == ["ok"] * 3


DATES = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.68,8,2
2023-11-16 18:15:46.70,8,0
"""


def test_requests_that_were_left_out_are_said(tmp_path, capsys):
    (tmp_path / "dates.csv").write_text(DATES)
    with reference_server(tmp_path, {}) as (url, _):
        argv = ["--url", url, "--model", "reference", "--trace", str(tmp_path / "dates.csv")]
        assert bench.main([*argv, "--out", str(tmp_path / "out")]) == 0
    said = "trace     1 requests (form azure), 1 left out that had failed when recorded\n"
    assert capsys.readouterr().out.startswith(said)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--trace {trace}", "--trace: not every request has a time"),
        ("--trace {trace} --concurrency 1 --isl 5", "--isl: does not go with --trace"),
        ("--trace {trace} --rate 5", "--trace: does not go with --rate"),
        ("--isl-cap 5", "--isl-cap: goes with --trace"),
        ("--trace {trace} --speed 0", "--speed: 0.0"),
        ("--trace {trace} --speed nan", "--speed: nan"),
        ("--trace {trace} --speed 2 --concurrency 1", "--speed: goes without --concurrency"),
        ("--trace {trace} --think none", "--think: goes with --concurrency"),
        ("--trace {trace} --concurrency 1 --think long", "--think: long"),
        ("--trace {trace} --concurrency 1 --think compress", "--think-factor: goes with"),
        ("--trace {trace} --concurrency 1 --think-factor 0.5", "--think-factor: goes with"),
        ("--trace {trace} --concurrency 1 --think compress --think-factor 2", "--think-factor: 2"),
        ("--trace {trace} --concurrency 0", "--concurrency: 0"),
        ("--trace {trace} --concurrency 1 --block-tokens 0", "--block-tokens: 0"),
        ("--trace {tmp}/none --concurrency 1", "cannot be read"),
        ("--trace {tmp}/dates.csv --timestamp-s 2", "has dates, which timestamp_s does not change"),
        ("--trace {tmp}/dates.csv --block-tokens 9", "has no hash ids"),
    ],
)
def test_bad_options_are_one_line(tmp_path, capsys, line, says):
    trace = write(tmp_path, {"isl": 5, "osl": 1})
    (tmp_path / "dates.csv").write_text(DATES)
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
        ({"requests": [{"isl": 1, "osl": 1, "at_s": 1, "think_s": 1}]}, "think_s"),
        ({"requests": [{"isl": 1, "osl": 1}], "concurrency": 1, "trace": "a"}, "trace"),
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
