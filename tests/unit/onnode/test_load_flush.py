"""The prefix cache is emptied when it is asked for, before what is measured, or the load fails."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_server import Request, ScriptServer, answer, stream
from ref_process import Load, load, measure, read_load, reference_server
from test_load_bench import Results, closed, run, run_in, spec_of
from test_run_client import run as others

from servemap.onnode import bench, load_flush
from servemap.onnode.checked import SpecError
from servemap.onnode.load_flush import judge_flush, parse_flush
from servemap.onnode.load_run import flushed
from servemap.onnode.load_spec import parse_spec
from tests.waiting import longer

FLUSH = {"path": "/reset_prefix_cache"}
CHAT = {"roles": ["system", "user"], "system_words": 64}
CACHED = {"answer": {"cached_tokens": "prefix"}}


def chat(tmp_path: Any, **more: Any) -> Load:
    return measure(
        tmp_path, CACHED, chat=CHAT, endpoint="/v1/chat/completions", isl=320, num_prompts=3, **more
    )


def order(got: Load) -> list[str]:
    """What the server was asked, in its own order, each request by the stream's name."""
    return [
        row["path"] if row["id"] == "flush" else row["id"].split("-", 1)[1].rsplit("-", 1)[0]
        for row in sorted(got.log, key=lambda row: row["received_ns"])
    ]


def test_the_cache_is_emptied_between_warmup_and_window(tmp_path):
    warmup = {"isl": 320, "osl": 2, "concurrency": 1, "num_prompts": 2}
    kept = chat(tmp_path / "kept", warmup=warmup)
    assert [row.cached_tokens for row in kept.rows] == [64, 64, 64]
    assert "flushes" not in kept.client
    emptied = chat(tmp_path / "emptied", warmup=warmup, flush=FLUSH)
    # The system message of the warm-up is gone, so the first measured request brings it in anew.
    assert [row.cached_tokens for row in emptied.rows] == [0, 64, 64]
    assert order(emptied) == [
        *["sizing"] * 2, *["warmup"] * 2, "/reset_prefix_cache", *["main"] * 3
    ]  # fmt: skip
    (done,) = emptied.client["flushes"]
    assert (done["before"], done["method"], done["path"]) == ("main", "POST", FLUSH["path"])
    assert (done["status"], done["tries"], done["problem"]) == (200, 1, None)
    assert json.loads(done["answer"]) == {"success": True}
    assert emptied.client["warmup"]["end_ns"] <= done["start_ns"] < done["end_ns"]
    assert done["end_ns"] <= emptied.client["segments"][0]["start_ns"]


def test_without_a_warmup_the_window_begins_on_an_empty_cache(tmp_path):
    with reference_server(tmp_path, CACHED) as (url, log):
        loads = [
            load(tmp_path / name, url, log, isl=64, num_prompts=2, **more)
            for name, more in (("a", {}), ("b", {}), ("c", {"flush": FLUSH}))
        ]
    cached = [[row.cached_tokens for row in read_load(*one, log).rows] for one in loads]
    assert cached == [[0, 0], [48, 48], [0, 0]]


def test_of_a_prefix_case_the_warmup_brings_the_prefix_in_after_the_flush(tmp_path):
    shape = {"isl": 64, "osl": 2, "concurrency": 1, "num_prompts": 3, "prefix_tokens": 32}
    stream_ = {"name": "main", "kind": "closed", **shape}
    segments = [{"name": "main", "streams": [stream_]}]
    warmup = {**shape, "num_prompts": 1}
    got = measure(tmp_path, CACHED, segments=segments, warmup=warmup, flush=FLUSH)
    assert order(got) == [FLUSH["path"], "warmup", "main", "main", "main"]
    assert [done["before"] for done in got.client["flushes"]] == ["warmup"]
    assert [row.cached_tokens for row in got.rows] == [32, 32, 32]


def test_of_a_mixed_case_both_segments_begin_on_an_empty_cache(tmp_path):
    background = {"name": "background", "kind": "closed", "isl": 8, "osl": 2, "concurrency": 1}
    background["num_prompts"] = 2
    timed = {"name": "injected", "kind": "at", "isl": 16, "osl": 1, "at_s": [0.01]}
    segments = [
        {"name": "control", "streams": [background]},
        {"name": "injected", "streams": [background, timed]},
    ]
    warmup = {"isl": 8, "osl": 1, "concurrency": 1, "num_prompts": 1}
    got = measure(tmp_path, CACHED, segments=segments, warmup=warmup, flush=FLUSH)
    path = FLUSH["path"]
    assert order(got)[:5] == ["warmup", path, *["control/background"] * 2, path]
    assert set(order(got)[5:]) == {"injected/background", "injected"}
    control, injected = got.client["flushes"]
    assert (control["before"], injected["before"]) == ("control", "injected")
    begins, ends = ([s[key] for s in got.client["segments"]] for key in ("start_ns", "end_ns"))
    assert control["end_ns"] <= begins[0]
    assert ends[0] <= injected["start_ns"] <= injected["end_ns"] <= begins[1]


def flushing(tmp_path: Any, answers: list[bytes | None], **more: Any) -> tuple[Results, list[str]]:
    """Run a load with a warm-up of one; the calls to empty the cache get `answers` in turn."""
    left = list(answers)

    def script(number: int, body: dict[str, Any]) -> Any:
        if server.requests[number].head.startswith("POST /flush_cache "):
            yield left.pop(0)
        else:
            yield from stream(body)

    def word(request: Request) -> str:
        return "flush" if request.head.startswith("POST /flush_cache ") else "load"

    warmup = {"isl": 5, "osl": 1, "concurrency": 1, "num_prompts": 1}
    flush = {"path": "/flush_cache", "method": "POST"}
    with ScriptServer(script) as server:
        one = closed(concurrency=1, num_prompts=2)
        got = run(tmp_path, spec_of(server.url, one, warmup=warmup, flush=flush, **more))
    return got, [word(request) for request in server.requests]


DONE = answer("200 OK", b"Cache flushed.\n", "text/plain")
# What SGLang and vLLM say while requests run.
BUSY = [
    answer("400 Bad Request", b"Flush cache failed.\n", "text/plain"),
    answer("200 OK", b'{"success":false}'),
]


def test_a_server_that_is_still_busy_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(load_flush, "PAUSE_S", 0.01)
    got, asked = flushing(tmp_path, [*BUSY, DONE])
    assert asked == ["load", "flush", "flush", "flush", "load", "load"]
    assert (got.code, got.client["flushes"][0]["tries"]) == (0, 3)
    assert got.statuses() == ["ok", "ok"]


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (BUSY[0], "HTTP status 400: Flush cache failed."),
        (BUSY[1], 'the server says {"success":false}'),
    ],
)
def test_a_server_that_stays_busy_fails_the_load_in_bounded_time(
    tmp_path, monkeypatch, refusal, says
):
    monkeypatch.setattr(load_flush, "PAUSE_S", 0.01)
    for limit_s in longer(0.1):
        monkeypatch.setattr(load_flush, "BUSY_S", limit_s)
        folder = tmp_path / f"{limit_s:g}"
        folder.mkdir()
        got, asked = flushing(folder, [refusal] * 1000)
        if asked.count("flush") > 1:
            break
    assert (got.code, got.client["status"], got.measured) == (1, "failed", [])
    (reason,) = got.client["reasons"]
    path = "POST /flush_cache"
    assert reason.startswith(f"the prefix cache was not emptied before main: {path}: {says}")
    done = got.client["flushes"][0]
    assert 1 < done["tries"] == asked.count("flush")
    assert done["problem"] == says
    assert got.client["segments"] == []


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (answer("404 Not Found", b"{}"), "HTTP status 404: {}; the server does not offer it"),
        (answer("401 Unauthorized", b"no"), "HTTP status 401: no"),
        (None, "RemoteDisconnected"),
    ],
)
def test_a_server_that_will_not_is_asked_once(tmp_path, refusal, says):
    got, asked = flushing(tmp_path, [refusal])
    assert (got.code, got.client["status"], asked) == (1, "failed", ["load", "flush"])
    assert says in got.client["reasons"][0]
    assert got.client["counts"]["sent"] == 0


def test_a_flush_without_an_answer_ends_with_the_case(tmp_path):
    def script(number: int, body: dict[str, Any]) -> Any:
        slow = server.requests[number].head.startswith("POST /flush_cache ")
        yield from [30.0] if slow else stream(body)

    for limit_s in longer(0.5):
        with ScriptServer(script) as server:
            flush = {"path": "/flush_cache"}
            spec = spec_of(server.url, flush=flush, case_timeout_s=limit_s)
            got = run_in(tmp_path / f"{limit_s:g}", spec)
        if server.requests:
            break
    assert got.client["status"] == "failed"
    assert "no answer within" in got.client["reasons"][0]


@given(
    st.sampled_from([200, 204, 400, 401, 404, 405, 409, 429, 500, 503, None]),
    st.sampled_from(["", "{}", '{"success":true}', '{"success":false}', "[", "Cache flushed.\n"]),
)
def test_what_is_done_and_what_may_be_asked_again(status, text):
    good = status is not None and status < 300
    error = None if good else f"HTTP status {status}"
    reply = {"url": "http://h", "status": status, "text": text, "error": error}
    problem, again = judge_flush(reply)
    assert (problem is None) == (good and text != '{"success":false}')
    assert again == (status in (400, 409, 429, 503) or (good and problem is not None))


def test_a_key_goes_to_the_server_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "hush-hush")
    with ScriptServer(lambda _, body: stream(body) if "prompt" in body else [DONE]) as server:
        got = run(tmp_path, spec_of(server.url, flush=FLUSH, api_key_env="SOME_KEY"))
    assert got.client["status"] == "ok"
    assert all("Authorization: Bearer hush-hush" in request.head for request in server.requests)
    assert "hush" not in json.dumps(got.client)


def test_the_option_names_the_path(tmp_path):
    with reference_server(tmp_path, {}) as (url, log):
        line = f"--url {url} --model m --num-prompts 2 --flush /flush_cache"
        assert bench.main([*line.split(), "--out", str(tmp_path / "out")]) == 0
    got = read_load(0, tmp_path / "out", log)
    assert order(got) == ["warmup", "/flush_cache", "main", "main"]


@pytest.mark.parametrize(
    ("flush", "says"),
    [
        ({}, r"flush\.path"),
        ({"path": "flush_cache"}, r"flush\.path: .* give the path on the server"),
        ({"path": "/a b"}, r"flush\.path"),
        ({"path": "/x", "method": "PUT"}, r"flush\.method: .* POST, GET"),
        ({"path": "/x", "url": "y"}, r"flush\.url: .* not known"),
        (5, "flush: 5"),
    ],
)
def test_a_bad_flush_is_refused_by_key(flush, says):
    with pytest.raises(SpecError, match=says):
        parse_flush(flush)


def test_nothing_is_emptied_unasked():
    assert parse_flush(None) is None
    assert flushed(parse_spec(spec_of("http://h:1"))) == ()


def test_before_a_client_of_others_as_well(tmp_path):
    warmup = {"isl": 8, "osl": 1, "concurrency": 1, "num_prompts": 1}
    with reference_server(tmp_path, {}) as (url, log):
        more = {"url": url, "warmup": warmup, "flush": FLUSH}
        code, said = others(tmp_path / "load", "print('start'); print('stop')", **more)
    (done,) = said["flushes"]
    assert (code, done["before"], done["problem"]) == (0, "main", None)
    assert said["warmup"]["end_ns"] <= done["start_ns"]
    assert done["end_ns"] <= said["marks"]["begin"]["t_ns"]
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert [row["path"] for row in rows] == ["/v1/completions", FLUSH["path"]]


def test_a_client_of_others_does_not_begin_on_a_cache_that_was_kept(tmp_path):
    code, said = others(tmp_path, "print('start')", flush=FLUSH)
    assert (code, said["status"], said["marks"]) == (1, "failed", {})
    assert "was not emptied before main" in said["reasons"][0]
