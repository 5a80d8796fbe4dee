"""Every way in which a request fails, against the reference server: classed and kept apart."""

import json
import os
import signal
import threading
from typing import Any

import pytest
from ref_process import Load, load, measure, read_load, reference_server

from tests.waiting import WAIT_S, longer, wait_for

KEPT = {"answer": {"usage": "continuous"}}


def rule(first: int, last: int | None = None, **answer: Any) -> dict[str, Any]:
    """An answer for the requests from `first`, in the order of their first tries."""
    when: dict[str, Any] = {"requests": [first, (first if last is None else last) + 1]}
    if "tries" in answer:
        when["tries"] = answer.pop("tries")
    return {"when": when, **answer}


FAILURES = [
    # what the server does, class, http status, tries, tokens that came, events that came
    ({"status": 503, "message": "overloaded"}, "http", 503, 1, 0, ""),
    ({"drop": True}, "cut", None, 2, 0, ""),
    ({"error_after": 10}, "stream_error", 200, 1, 10, "t" * 10 + "ed"),
    ({"cut_after": 3}, "cut", 200, 1, 3, "ttt"),
    ({"hang_after": 5}, "timeout", 200, 1, 5, "ttttt"),
    ({"tokens": 0}, "empty", 200, 1, 0, "ud"),
    ({"status": 400, "message": "maximum context length is 9"}, "context", 400, 1, 0, ""),
    ({"status": 500, "message": "CUDA out of memory"}, "oom", 500, 1, 0, ""),
]


def test_each_failure_has_its_class_and_none_is_in_a_figure(tmp_path):
    rules = [rule(n, **what) for n, (what, *_) in enumerate(FAILURES, 1)]
    count = len(FAILURES) + 2
    script = {**KEPT, "rules": rules}
    for limit_s in longer(1.0):
        got = measure(
            tmp_path / f"{limit_s:g}", script, osl=12, num_prompts=count, timeout_s=limit_s
        )
        if got.client["counts"]["timed_out"] == 1 and got.records[5]["kinds"]:
            break
    failed = got.records[1:-1]
    for record, row, (_, kind, status, tries, tokens, kinds) in zip(
        failed, got.rows[1:-1], FAILURES, strict=True
    ):
        assert record["error"]["class"] == kind
        assert record["status"] == ("timed_out" if kind == "timeout" else "failed")
        assert (record["http_status"], record["attempts"]) == (status, tries)
        assert record["kinds"] == kinds, "what came is kept"
        assert row.partial_output_tokens == tokens
        assert (row.ttft_s, row.tpot_s, row.e2e_s, row.req_output_tps) == (None,) * 4
        assert row.itl_s.size == row.chunk_tokens.size == 0
    assert [got.rows[place].status for place in (0, -1)] == ["ok", "ok"]
    counts = got.client["counts"]
    assert counts == {
        "planned": count, "sent": count, "ok": 2, "failed": 7, "timed_out": 1, "retried": 1,
    }  # fmt: skip
    assert got.client["status"] == "ok", "the client did its job"
    block = got.figures()
    assert (block["requests"], block["ok"], block["failed"], block["timed_out"]) == (count, 2, 7, 1)
    assert (block["retried"], block["partial_output_tokens"]) == (1, 18)
    assert block["tokens"]["output_actual"] == 24
    assert block["ttft_s"]["n"] == block["e2e_s"]["n"] == 2
    assert got.checks()["error_share"].value == pytest.approx(8 / count)
    assert got.checks()["error_share"].ok is False
    assert got.checks()["requests_recorded"].ok is True


def test_the_second_try_is_in_the_latency(tmp_path):
    """What a user waited: from the first try on."""
    rules = [rule(1, drop=True, tries=[0, 1], head_ms=0)]
    got = measure(tmp_path, {"answer": {"ttft_ms": 5}, "rules": rules}, num_prompts=2)
    record = got.records[1]
    tries = [row for row in got.log if row["id"].endswith(record["id"])]
    assert [row["try"] for row in tries] == [0, 1]
    assert record["sent_ns"] <= got.served(record)["received_ns"]
    assert record["attempts"] == 2
    assert got.rows[1].ttft_s == (record["t_ns"][0] - record["sent_ns"]) / 1e9


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"status": 503}, "http"),
        ({"drop": True, "close": True}, "cut"),
        ({"error_after": 1}, "stream_error"),
        ({"tokens": 0}, "empty"),
        ({"hang_after": 2}, "timeout"),
    ],
)
def test_where_everything_failed_nothing_is_zero(tmp_path, answer, kind):
    limit_s = 0.6 if kind == "timeout" else WAIT_S
    got = measure(tmp_path, {"answer": answer}, num_prompts=3, concurrency=3, timeout_s=limit_s)
    assert got.code == 1
    assert {record["error"]["class"] for record in got.records} == {kind}
    block = got.figures()
    for name in (
        "ttft_s", "tpot_s", "itl_s", "e2e_s", "chunk_gap_s", "req_output_tps", "first_text_s",
        "request_s", "agg_output_tps", "input_tok_s", "total_tok_s", "cache_hit_rate",
        "mean_in_flight", "ttft_from_schedule_s", "e2e_from_schedule_s",
    ):  # fmt: skip
        assert block[name] is None, name
    assert block["tokens"]["output_actual"] is None
    assert got.checks()["error_share"].value == 1.0


def kill_after(log: Any, requests: int) -> threading.Thread:
    """End the server once it has answered so many."""

    def lines() -> list[str]:
        return log.read_text().splitlines() if log.exists() else []

    def look() -> None:
        wait_for(lambda: len(lines()) > requests, f"{requests} answers")
        os.kill(json.loads(lines()[0])["pid"], signal.SIGTERM)

    thread = threading.Thread(target=look)
    thread.start()
    return thread


def test_a_server_that_goes_away_refuses_what_follows(tmp_path):
    # The fourth request of the load, the fifth of all, has no answer before the server's end.
    script = {"rules": [rule(4, 60, ttft_ms=1e6)]}
    with reference_server(tmp_path, script) as (url, log):
        killer = kill_after(log, 3)
        code, out = load(tmp_path, url, log, num_prompts=60)
        killer.join()
    got = read_load(code, out, log)
    kinds = [(record["error"] or {"class": "ok"})["class"] for record in got.records]
    assert len(kinds) == 60
    assert set(kinds) <= {"ok", "cut", "refused"}
    assert kinds[:3] == ["ok"] * 3
    assert kinds[-1] == "refused"
    last = got.records[-1]
    assert (last["sent_ns"], last["http_status"], last["t_ns"]) == (None, None, [])
    counts = got.client["counts"]
    assert counts["ok"] + counts["failed"] == 60
    assert counts["sent"] == sum(record["sent_ns"] is not None for record in got.records)


def test_a_hung_server_ends_the_case_and_what_came_is_kept(tmp_path):
    script = {"answer": {"usage": "continuous"}, "rules": [rule(2, 99, hang_after=4)]}
    shape = {"osl": 9, "num_prompts": 8, "concurrency": 2, "timeout_s": 60}
    for limit_s in longer(1.5):
        got = measure(tmp_path / f"{limit_s:g}", script, case_timeout_s=limit_s, **shape)
        if [record["kinds"] for record in got.records[2:]] == ["tttt"] * 2:
            break
    assert (got.code, got.client["reasons"]) == (1, ["case timeout"])
    assert [record["status"] for record in got.records] == ["ok", "ok", "timed_out", "timed_out"]
    assert [record["kinds"] for record in got.records[2:]] == ["tttt"] * 2
    assert got.client["counts"] == {
        "planned": 8, "sent": 4, "ok": 2, "failed": 0, "timed_out": 2, "retried": 0,
    }  # fmt: skip
    (segment,) = got.client["segments"]
    assert segment["start_ns"] < segment["end_ns"]
    assert got.figures()["partial_output_tokens"] == 8


@pytest.mark.parametrize("warmup", [True, False])
def test_a_request_has_its_own_limit(tmp_path, warmup):
    """Also a warm-up that hangs holds nothing up; its requests are no measured ones."""
    shape = {"isl": 8, "osl": 4, "concurrency": 1, "num_prompts": 1}
    script = {"rules": [rule(0, hang_after=2)]}
    more = {"warmup": shape} if warmup else {}
    for limit_s in longer(0.5):
        folder = tmp_path / f"{limit_s:g}"
        got: Load = measure(folder, script, num_prompts=2, timeout_s=limit_s, **more)
        if got.rows[-1].status == "ok":
            break
    if warmup:
        assert (got.client["warmup"]["ok"], got.client["warmup"]["failed"]) == (0, 1)
        assert got.client["counts"]["timed_out"] == 0
        assert [row.status for row in got.rows] == ["ok", "ok"]
    else:
        assert [row.status for row in got.rows] == ["timed_out", "ok"]
        message = f"the response did not end within {limit_s:g} s"
        assert got.records[0]["error"]["message"] == message


def test_a_hang_while_prompts_are_sized_ends_the_load(tmp_path):
    chat = {"roles": ["user"]}
    got = measure(
        tmp_path,
        {"answer": {"hang_after": 0}},
        chat=chat,
        endpoint="/v1/chat/completions",
        timeout_s=0.5,
    )
    assert (got.code, got.client["status"], got.records) == (1, "failed", [])
    assert "the response did not end within 0.5 s" in got.client["reasons"][0]
