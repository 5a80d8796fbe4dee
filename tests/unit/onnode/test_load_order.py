"""What a case sends before its window, how often and when, by raw records and the server's log.

Each case goes from campaign YAML through the load client to the reference server. Times are
compared with the schedule that the client was given, never with how long something took.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ref_process import Load, read_load, reference_server

from servemap.analysis.metrics import interference, segment_figures
from servemap.analysis.requests import Requests, parse_requests
from servemap.measure.load import load_spec
from servemap.measure.setup import load_context
from servemap.model.resolve import resolved_case
from servemap.onnode import bench
from servemap.parsers.jsonl import stream_jsonl
from servemap.telemetry.align import Segment
from tests.fakes import campaign

SCRIPT = {"answer": {"ttft_ms": 4, "gap_ms": 2, "cached_tokens": "prefix"}}
MODEL = {"name": "m", "path": "m.gguf", "context": 32768, "vocab": [300, 4000]}


def measured(tmp_path: Path, case: dict[str, Any], script: dict[str, Any] = SCRIPT) -> Load:
    context = load_context(campaign(model=MODEL, cases=[{"id": "c", **case}]))
    resolved = resolved_case(context.plan.campaign, context.plan.cases["c"])
    with reference_server(tmp_path, script) as (url, log):
        spec = load_spec(
            resolved,
            url=url,
            endpoint="/v1/completions",
            model=context.plan.campaign.model.model_dump(mode="json"),
            request={"ignore_eos": True},
            seed="s",
            load_id="x",
        )
        (tmp_path / "load.json").write_text(json.dumps(spec))
        argv = ["--spec", str(tmp_path / "load.json"), "--out", str(tmp_path / "out")]
        code = bench.main(argv)
    return read_load(code, tmp_path / "out", log)


def before(got: Load, tmp_path: Path) -> list[dict[str, Any]]:
    """The requests before the window, prompts that are only counted left out."""
    lines = list(stream_jsonl(tmp_path / "out/requests.jsonl", []))
    return [line.value for line in lines if line.value["segment"] == "warmup"]


CLOSED = {"isl": 200, "osl": 70, "concurrency": 3, "num_prompts": 6}
SHAPES: list[tuple[str, dict[str, Any], tuple[int, int, int], tuple[int, int, int]]] = [
    # kind, its keys, then (requests, ISL, OSL) of the warm-ups `same` and `short`
    ("fixed", CLOSED, (3, 200, 70), (1, 64, 64)),
    ("rate", {"isl": 200, "osl": 70, "rate_rps": 200, "num_prompts": 4}, (1, 200, 70), (1, 64, 64)),
    ("chat", {**CLOSED, "system_words": 5}, (3, 200, 70), (1, 64, 64)),
    ("tools", {**CLOSED, "isl": 900, "tools": 2}, (3, 900, 70), (1, None, 64)),
    ("prefix", {**CLOSED, "share": 0.5}, (3, 200, 70), (1, 200, 64)),
    (
        "mixed",
        {"background": CLOSED, "inject": {"isl": 900, "osl": 1, "after_s": 0}},
        (3, 200, 70),
        (1, 64, 64),
    ),
]  # fmt: skip


@pytest.mark.parametrize("how", ["same", "short", "none"])
@pytest.mark.parametrize(
    ("kind", "keys", "same", "short"), SHAPES, ids=[kind for kind, *_ in SHAPES]
)
def test_a_warmup_is_what_was_asked(tmp_path, kind, keys, same, short, how):
    if (kind, how) == ("prefix", "none"):
        return  # refused: nothing would bring the prefix in
    got = measured(tmp_path, {"kind": kind, "warmup": how, **keys})
    assert got.client["status"] == "ok"
    sent = before(got, tmp_path)
    wanted = {"same": same, "short": short, "none": (0, 0, 0)}[how]
    assert len(sent) == wanted[0]
    log = {row["id"].split("-", 1)[1]: row for row in got.log}
    for record in sent:
        served = log[record["id"]]
        assert (record["status"], record["warmup"]) == ("ok", True)
        # What template and tools take alone may be more than a short prompt.
        least = wanted[1] or record["isl"]
        assert served["prompt_tokens"] == least
        assert served["max_tokens"] == wanted[2]
    start_ns = got.client["segments"][0]["start_ns"]
    assert all(record["last_ns"] < start_ns for record in sent)
    assert all(record["sent_ns"] >= start_ns for record in got.records)
    if how == "none":
        assert got.client["warmup"] is None
    else:
        assert got.client["warmup"]["ok"] == wanted[0]
        assert got.client["warmup"]["end_ns"] <= start_ns
    assert got.client["counts"]["ok"] == len(got.records), "no warm-up is counted"


WAVES = {"isl": 40, "osl": 2, "concurrency": 2, "num_prompts": 4, "min_window_s": 1.0}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("fixed", {}),
        ("chat", {"system_words": 5}),
        ("tools", {"isl": 900, "tools": 2}),
        ("prefix", {"share": 0.4}),
        ("mixed", {}),
    ],
)
def test_whole_waves_are_repeated_until_the_window_is_long_enough(tmp_path, kind, more):
    case: dict[str, Any] = {"kind": kind, **WAVES, **more}
    if kind == "mixed":
        case = {"kind": kind, "background": WAVES, "inject": {"isl": 64, "osl": 1, "after_s": 0}}
    got = measured(tmp_path, case)
    assert got.client["status"] == "ok"
    for segment in got.client["segments"]:
        begin, end = segment["start_ns"], segment["end_ns"]
        until = begin + 1_000_000_000
        own = [
            record
            for record in got.records
            if record["segment"] == segment["name"] and record["stream"] != "injected"
        ]
        assert len(own) % 4 == 0
        # The first wave takes some 20 ms; it is alone only where a standstill made it last.
        assert len(own) > 4 or own[-1]["last_ns"] >= until
        assert end >= until
        waves = [own[place : place + 4] for place in range(0, len(own), 4)]
        assert all(wave[0]["scheduled_ns"] < until for wave in waves)
        assert own[-1]["last_ns"] <= end
    cached = {row.cached_tokens for row in got.rows if row.stream != "injected"}
    # Prompts of repeated waves are new ones: only what is shared on purpose is found.
    assert cached == {"prefix": {16}, "tools": cached, "chat": cached}.get(kind, {0})
    assert len({record["id"] for record in got.records}) == len(got.records)


INJECT = {"isl": 600, "osl": 3, "after_s": 0.15}


@pytest.mark.parametrize(("every_s", "count"), [(None, 1), (0.1, 3)])
def test_injections_come_at_fixed_times_after_the_backgrounds_measurement_began(
    tmp_path, every_s, count
):
    script = {"answer": {"ttft_ms": 5, "gap_ms": 10}}
    background = {"isl": 16, "osl": 20, "concurrency": 2, "min_window_s": 0.6}
    inject = {**INJECT, "every_s": every_s, "count": count}
    case = {"kind": "mixed", "background": background, "inject": inject}
    got = measured(tmp_path, case, script)
    control, injected = got.client["segments"]
    assert (control["name"], injected["name"]) == ("control", "injected")
    assert control["end_ns"] <= injected["start_ns"], "the control run is part of the case"
    assert control["overlaps"] == []
    long = [record for record in got.records if record["stream"] == "injected"]
    assert {record["segment"] for record in long} == {"injected"}
    asked = [int((0.15 + place * (every_s or 0)) * 1e9) for place in range(count)]
    assert [record["scheduled_ns"] - injected["start_ns"] for record in long] == asked
    first = min(
        record["sent_ns"]
        for record in got.records
        if (record["segment"], record["stream"]) == ("injected", "background")
    )
    assert injected["start_ns"] <= first
    for record in long:
        # The server saw it, of the asked length, and not before it was due.
        served = got.served(record)
        assert (served["prompt_tokens"], served["max_tokens"]) == (600, 3)
        assert record["scheduled_ns"] <= record["sent_ns"] <= served["received_ns"]
    spans = [(begin, end) for begin, end in injected["overlaps"]]
    assert [begin for begin, _ in spans] == [record["sent_ns"] for record in long]
    assert all(end >= r["last_ns"] for (_, end), r in zip(spans, long, strict=True))
    check_tags(got, tmp_path, spans)


def check_tags(got: Load, tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    """Each ITL value is tagged by whether its own gap touches an injected request."""
    lines = list(stream_jsonl(tmp_path / "out/requests.jsonl", []))
    found: Requests = parse_requests(lines, {"injected": spans})
    records = {record["id"]: record for record in got.records}
    for row in found.rows:
        times = [
            t
            for t, kind in zip(records[row.id]["t_ns"], records[row.id]["kinds"], strict=True)
            if kind == "t"
        ]
        wanted = [
            row.segment == "injected" and any(a < end and b > begin for begin, end in spans)
            for a, b in pairwise(times)
        ]
        assert row.itl_overlaps_injection.tolist() == wanted
        assert row.itl_s == pytest.approx(np.diff(times) / 1e9)
    segments = [Segment(s["name"], s["start_ns"], s["end_ns"]) for s in got.client["segments"]]
    streams = frozenset({"injected"})
    blocks = [segment_figures(one, found.rows, streams, None, None) for one in segments]
    compared = interference(*blocks, found.rows, streams)
    assert compared is not None
    assert list(compared) == ["background"]
    split = compared["background"]["itl_s"]
    values = sum(
        row.itl_s.size
        for row in found.rows
        if (row.segment, row.stream) == ("injected", "background")
    )
    assert split["overlaps_injection"]["n"] + split["steady"]["n"] == values
    assert compared["background"]["change"]["tpot_p95_s"]["change_pct"] is not None
