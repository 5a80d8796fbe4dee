"""The reference server itself, and the client's and the analysis' answer to all it can send.

In virtual time its frames go straight into the client's reader, so every value is exact.
"""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ref_process import load, measure, read_load, reference_server

from servemap.analysis.requests import FLAG_HIDDEN, parse_requests
from servemap.measure.setup import load_context
from servemap.onnode.checked import SpecError
from servemap.onnode.load_call import Call, Lane
from servemap.onnode.load_records import build_record
from servemap.onnode.load_spec import Stream
from servemap.onnode.ref_frames import BLOCK, OWNER, Asked, PrefixCache, frames, produced
from servemap.onnode.ref_script import choose, parse_script, under_load
from servemap.parsers.jsonl import JsonLine
from tests.fakes import campaign
from tests.waiting import WAIT_S

SENT = 1_000_000_000


def answer_of(**keys: Any) -> Any:
    return parse_script({"schema": 1, "answer": keys}).answer


def seen(answer: Any, asked: Asked) -> tuple[dict[str, Any], Any]:
    """Return the client's record of an answer in virtual time, and the analysis' row."""
    stream = Stream("main", "closed", len(asked.prompt), asked.max_tokens, 1, 1, ())
    call = Call(Lane(stream, lambda _: ("x", b"")), "main-000001", b"", SENT)
    call.connected_ns, call.sent_ns, call.attempts = SENT, SENT, 1
    last, done = SENT, False
    for frame in frames(answer, asked, None):
        last = SENT + frame.due_ns
        done = call.response.feed(frame.data, last)
    call.outcome, call.detail, call.ended_ns = ("complete" if done else "cut"), "", last
    record = build_record(call, "main", False, 0)
    return record, parse_requests([JsonLine(1, record)], {}).rows[0]


ANSWERS = st.fixed_dictionaries(
    {
        "role_ms": st.none() | st.just(1),
        "ttft_ms": st.integers(2, 5000),
        "gap_ms": st.lists(st.integers(0, 400), min_size=1, max_size=6),
        "chunk": st.lists(st.integers(1, 9), min_size=1, max_size=6),
        "tokens": st.integers(1, 60),
        "reasoning": st.integers(0, 9),
        "tools": st.integers(0, 9),
        "reasoning_field": st.sampled_from(["reasoning", "reasoning_content"]),
        "text": st.sampled_from([" tok", " ", "é", "漢字", "\n", '"', "\u2028"]),
        "split": st.sampled_from(["none", "middle", "character"]),
        "done": st.booleans(),
    }
)
ASKED = st.builds(
    Asked,
    chat=st.booleans(),
    stream=st.just(True),
    model=st.just("m"),
    max_tokens=st.just(60),
    prompt=st.lists(st.just("7"), min_size=1, max_size=4),
)


@settings(deadline=None)
@given(ANSWERS, ASKED)
def test_with_continuous_usage_every_value_is_exact(keys, asked):
    sizes, at = [], []
    when = keys["ttft_ms"]
    while sum(sizes) < keys["tokens"]:
        size = keys["chunk"][min(len(sizes), len(keys["chunk"]) - 1)]
        sizes.append(min(size, keys["tokens"] - sum(sizes)))
        at.append(when)
        when += keys["gap_ms"][min(len(at) - 1, len(keys["gap_ms"]) - 1)]
    answer = answer_of(**keys, usage="continuous", hidden=min(3, keys["tokens"] - sizes[-1]))
    record, row = seen(answer, asked)
    assert (row.status, row.output_tokens) == ("ok", keys["tokens"])
    assert row.input_tokens == len(asked.prompt)
    assert row.ttft_s == pytest.approx(keys["ttft_ms"] / 1e3)
    assert row.chunk_tokens.tolist() == sizes
    assert row.chunk_gap_s == pytest.approx(np.diff(at) / 1e3)
    assert row.itl_s == pytest.approx(
        [gap / 1e3 / n for gap, n in zip(np.diff(at), sizes[1:], strict=True) for _ in range(n)]
    )
    assert row.e2e_s == pytest.approx(at[-1] / 1e3)
    if FLAG_HIDDEN not in row.flags and keys["tokens"] > 1 and at[-1] > at[0]:
        assert row.tpot_s == pytest.approx((at[-1] - at[0]) / 1e3 / (keys["tokens"] - 1))
    else:
        assert row.tpot_s is None
    assert ("r" in record["kinds"]) or keys["role_ms"] is None


@settings(deadline=None)
@given(ANSWERS, ASKED, st.sampled_from(["final", "finish"]))
def test_with_one_usage_the_totals_are_exact_and_times_are_those_of_the_chunks(keys, asked, usage):
    _, row = seen(answer_of(**keys, usage=usage), asked)
    assert (row.status, row.output_tokens) == ("ok", keys["tokens"])
    assert row.ttft_s == pytest.approx(keys["ttft_ms"] / 1e3)
    assert int(row.chunk_tokens.sum()) == keys["tokens"]
    assert len(row.itl_s) == keys["tokens"] - row.chunk_tokens[0]
    assert float(row.itl_s.sum()) == pytest.approx(row.e2e_s - row.ttft_s)


@settings(deadline=None)
@given(ANSWERS, ASKED)
def test_without_usage_nothing_is_counted(keys, asked):
    _, row = seen(answer_of(**keys, usage="none"), asked)
    assert (row.status, row.output_tokens, row.tpot_s) == ("ok", None, None)
    assert row.ttft_s == pytest.approx(keys["ttft_ms"] / 1e3)


@settings(deadline=None)
@given(
    ANSWERS,
    ASKED,
    st.sampled_from(["error_after", "cut_after", "hang_after"]),
    st.integers(0, 59),
    st.sampled_from(["final", "continuous", "none"]),
)
def test_an_answer_that_does_not_end_well_is_failed_and_has_no_latency(keys, asked, how, n, usage):
    record, row = seen(answer_of(**keys, usage=usage, **{how: n}), asked)
    assert row.status == "failed"
    assert record["error"]["class"] == ("stream_error" if how == "error_after" else "cut")
    assert (row.ttft_s, row.tpot_s, row.e2e_s) == (None, None, None)
    assert not row.itl_s.size
    assert not row.chunk_tokens.size


@settings(deadline=None)
@given(ASKED, st.booleans(), st.sampled_from(["final", "continuous", "finish", "none"]))
def test_an_answer_without_a_token_is_failed(asked, role, usage):
    answer = answer_of(tokens=0, usage=usage, role_ms=0 if role else None)
    record, row = seen(answer, asked)
    assert (row.status, record["error"]["class"]) == ("failed", "empty")
    assert row.ttft_s is None


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=80), max_size=8))
def test_the_prefix_cache_finds_whole_blocks_of_what_it_saw(prompts):
    cache = PrefixCache()
    for number, prompt in enumerate(prompts):
        common = 0
        for other in prompts[:number]:
            pairs = zip(prompt, other, strict=False)
            same = next(
                (i for i, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(other))
            )
            common = max(common, same // BLOCK * BLOCK)
        if common == len(prompt):
            common -= BLOCK
        assert cache.cached([str(item) for item in prompt]) == common


def test_rules_are_tried_in_order():
    script = parse_script(
        {
            "schema": 1,
            "answer": {"ttft_ms": 7},
            "rules": [
                {"when": {"tries": [0, 2], "requests": [0, 3]}, "status": 503},
                {"when": {"share": 0.25}, "status": 429, "message": "slow down"},
            ],
        }
    )
    assert choose(script, "a", 0, 1).status == 503
    assert choose(script, "a", 0, 1).ttft_ms == 7
    drawn = [choose(script, f"r{n}", 9, 0).status for n in range(2000)]
    assert drawn == [choose(script, f"r{n}", 9, 5).status for n in range(2000)]
    assert 400 < drawn.count(429) < 600


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ([], "script: .* give an object"),
        ({}, "schema: null is refused"),
        ({"schema": 1, "answers": {}}, "answers: .* is not known"),
        ({"schema": 1, "answer": {"gap": 1}}, "answer.gap: 1 is refused"),
        ({"schema": 1, "answer": {"gap_ms": []}}, "answer.gap_ms"),
        ({"schema": 1, "answer": {"gap_ms": [1, -1]}}, "answer.gap_ms: -1"),
        ({"schema": 1, "answer": {"chunk": [0]}}, "answer.chunk: 0"),
        ({"schema": 1, "answer": {"usage": "sometimes"}}, "answer.usage: .* final"),
        ({"schema": 1, "answer": {"text": 5}}, "answer.text"),
        ({"schema": 1, "answer": {"status": 99}}, "answer.status"),
        ({"schema": 1, "answer": {"status": 600}}, "answer.status"),
        ({"schema": 1, "answer": {"cached_tokens": "all"}}, "answer.cached_tokens"),
        ({"schema": 1, "answer": {"cut_after": 1, "hang_after": 2}}, "give one of"),
        ({"schema": 1, "rules": {}}, "rules: .* give a list"),
        ({"schema": 1, "rules": [{"when": {"tries": [2, 1]}}]}, r"rules\[0\].when.tries"),
        ({"schema": 1, "rules": [{"when": {"share": 0}}]}, r"rules\[0\].when.share"),
        ({"schema": 1, "rules": [{"when": {"day": 1}}]}, r"rules\[0\].when.day"),
    ],
)
def test_a_bad_script_is_refused_by_key(script, says):
    with pytest.raises(SpecError, match=says):
        parse_script(script)


def test_the_log_is_what_was_sent_and_the_client_saw_it_later(tmp_path):
    got = measure(tmp_path, {"answer": {"ttft_ms": 20, "gap_ms": 5}}, concurrency=3, num_prompts=9)
    assert [row.status for row in got.rows] == ["ok"] * 9
    got.check_causality()
    for record in got.records:
        served = got.served(record)
        assert served["kinds"] == "ttttud"
        assert served["tokens"] == [1, 2, 3, 4, 4, 4]
        assert all(t >= due for t, due in zip(served["t_ns"], served["due_ns"], strict=True))
        dues = [due - served["received_ns"] for due in served["due_ns"]]
        assert dues == [20_000_000, 25_000_000, 30_000_000, 35_000_000, 35_000_000, 35_000_000]
        assert (served["prompt_tokens"], served["max_tokens"], served["ended"]) == (8, 4, "done")


def test_it_says_on_every_page_that_it_is_no_engine(tmp_path):
    with reference_server(tmp_path, {"model": "pretender"}) as (url, _):
        for path in ("/v1/models", "/health"):
            with urllib.request.urlopen(url + path, timeout=WAIT_S) as reply:
                assert reply.headers["Server"] == OWNER
                assert OWNER in reply.read().decode()
        body = json.dumps({"model": "m", "prompt": "one two three", "max_tokens": 2}).encode()
        with urllib.request.urlopen(url + "/v1/completions", body, timeout=WAIT_S) as reply:
            assert reply.headers["Server"] == OWNER
            whole = json.load(reply)
        assert whole["choices"][0]["text"] == " tok tok"
        assert whole["usage"]["prompt_tokens"] == 3
        for bad in (b"{", b"[]", b'{"prompt": 5}', b'{"prompt": "a", "max_tokens": -1}'):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(url + "/v1/completions", bad, timeout=WAIT_S)
            assert caught.value.code == 400
            caught.value.close()


def test_a_client_that_leaves_and_a_server_that_is_ended_are_logged(tmp_path):
    with reference_server(tmp_path, {"answer": {"ttft_ms": 1e6}}) as (url, log):
        port = int(url.rpartition(":")[2])
        body = b'{"model":"m","prompt":[1],"stream":true}'
        request = b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        socks = [socket.create_connection(("127.0.0.1", port), WAIT_S) for _ in range(2)]
        for sock in socks:
            sock.sendall(request)
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        socks[0].close()
        while len(log.read_text().splitlines()) < 2:
            time.sleep(0.01)
    socks[1].close()
    rows = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert [row["ended"] for row in rows] == ["client closed", "server stopped"]
    assert [row["kinds"] for row in rows] == ["", ""]


def await_standstill(sock: socket.socket) -> None:
    """Wait until as much has come as there is room for: nothing more during a tenth of a second."""
    looks: list[int] = []
    while len(set(looks[-10:])) > 1 or len(looks) < 10 or not looks[-1]:
        time.sleep(0.01)
        looks.append(len(sock.recv(1 << 24, socket.MSG_PEEK)))


def test_what_could_not_be_written_at_once_is_logged(tmp_path):
    script = {"answer": {"text": "x" * 60_000, "usage": "none"}}
    body = json.dumps({"model": "m", "prompt": [5], "max_tokens": 400, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with reference_server(tmp_path, script) as (url, log), socket.socket() as sock:
        # Nothing is read until the server could not go on.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = url.rpartition("//")[2].rpartition(":")
        sock.connect((host, int(port)))
        sock.settimeout(WAIT_S)
        sock.sendall(head + body)
        await_standstill(sock)
        size, tail = 0, b""
        while b"[DONE]" not in tail:
            data = sock.recv(1 << 20)
            size, tail = size + len(data), (tail + data)[-100:]
        while len(log.read_text().splitlines()) < 2:
            time.sleep(0.01)
    (row,) = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    assert (row["ended"], size > 400 * 60_000) == ("done", True)
    assert row["unsent_writes"] >= 1


def test_bad_input_is_one_line(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('{"schema": 1}')
    argv = [sys.executable, "-m", "servemap.onnode", "reference-server", "--script", str(path)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for more, code in (
            (["--log", str(tmp_path / "log"), "--port", port], 1),
            (["--log", str(tmp_path / "none" / "log")], 1),
            (["--log", str(tmp_path / "log"), "--script", str(tmp_path / "no.json")], 2),
        ):
            done = subprocess.run([*argv, *more], capture_output=True, text=True, timeout=WAIT_S)
            assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)
            assert done.stderr.startswith("reference-server: ")


def test_two_loads_share_what_the_server_remembers(tmp_path):
    with reference_server(tmp_path, {"answer": {"cached_tokens": "prefix"}}) as (url, log):
        first = load(tmp_path / "a", url, log, isl=64, num_prompts=4)
        second = load(tmp_path / "b", url, log, isl=64, num_prompts=4)
    cached = [[row.cached_tokens for row in read_load(*one, log).rows] for one in (first, second)]
    assert cached == [[0] * 4, [48] * 4]


def test_produced_is_what_was_asked_unless_the_script_says_otherwise():
    asked = Asked(False, True, "m", 9, ["1"])
    assert produced(answer_of(), asked) == 9
    assert produced(answer_of(tokens=37), asked) == 37


def test_the_documents_script_is_one():
    text = (Path(__file__).parents[3] / "docs" / "workloads.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    script = parse_script(yaml.safe_load(next(b for b in blocks if b.startswith("schema:"))))
    assert len(script.rules) == 6
    cases = yaml.safe_load(next(b for b in blocks if b.startswith("- {")))
    model = {"name": "m", "path": "/m", "context": 32768}
    phases = [{"id": "phase1", "cases": [case["id"] for case in cases]}]
    found = load_context(campaign(cases=cases, phases=phases, model=model)).plan.cases
    assert [case.kind for case in found.values()] == [
        "fixed", "rate", "rate", "prefix", "chat", "tools", *["fixed"] * 4, "search",
    ]  # fmt: skip


def test_long_answers_and_prompts_of_many_reads(tmp_path):
    got = measure(tmp_path, {}, isl=300_000, osl=5000, num_prompts=2)
    assert [(row.status, row.output_tokens) for row in got.rows] == [("ok", 5000)] * 2
    got.check_causality()
    got = measure(tmp_path / "paced", {"answer": {"gap_ms": 0.1}}, osl=3000)
    assert [(row.status, row.output_tokens) for row in got.rows] == [("ok", 3000)]


def test_a_capacity_slows_answers_down_with_load() -> None:
    answer = answer_of(ttft_ms=10, capacity=2, queue_ms=5)
    assert [under_load(answer, n).ttft_ms for n in (1, 2, 3, 5)] == [10, 10, 15, 25]
    assert under_load(answer_of(ttft_ms=10, queue_ms=5), 99).ttft_ms == 10
