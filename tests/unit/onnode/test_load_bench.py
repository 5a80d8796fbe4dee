"""The whole client against a scripted server: what is sent, when, and what is written down."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from load_server import (
    END,
    STREAM_HEAD,
    ScriptServer,
    answer,
    chunk,
    event,
    stream,
    text_chunk,
    usage,
)

from servemap.onnode import bench, load_summary
from servemap.onnode.load_http import Response
from servemap.onnode.load_loop import Loop
from tests.waiting import WAIT_S, longer


def closed(name: str = "main", **more: Any) -> dict[str, Any]:
    shape = {"isl": 8, "osl": 4, "concurrency": 2, "num_prompts": 6}
    return {"name": name, "kind": "closed", **shape, **more}


def spec_of(url: str, *streams: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "url": url,
        "model": "tiny",
        "seed": "s",
        "vocab": [300, 4000],
        "timeout_s": 60,
        "case_timeout_s": 240,
        "segments": [{"name": "main", "streams": list(streams) or [closed()]}],
        **more,
    }


class Results:
    def __init__(self, code: int, out: Path) -> None:
        self.code = code
        self.client = json.loads((out / "client.json").read_text())
        lines = (out / "requests.jsonl").read_text().splitlines()
        self.all = [json.loads(line) for line in lines]
        self.measured = [record for record in self.all if not record["warmup"]]

    def statuses(self) -> list[str]:
        return [record["status"] for record in self.measured]

    def errors(self) -> list[str]:
        return [(record["error"] or {"class": ""})["class"] for record in self.measured]


def run(tmp_path: Path, spec: dict[str, Any]) -> Results:
    path, out = tmp_path / "load.json", tmp_path / "out"
    path.write_text(json.dumps(spec))
    return Results(bench.main(["--spec", str(path), "--out", str(out)]), out)


def run_in(folder: Path, spec: dict[str, Any]) -> Results:
    """Run a spec in a folder of its own."""
    folder.mkdir()
    return run(folder, spec)


def plain(_number: int, body: dict[str, Any]) -> Any:
    return stream(body)


def refused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_a_closed_stream_with_warmup(tmp_path):
    warmup = {"isl": 5, "osl": 2, "concurrency": 1, "num_prompts": 2}
    with ScriptServer(plain) as server:
        spec = spec_of(server.url, warmup=warmup, request={"ignore_eos": True, "temperature": 0})
        got = run(tmp_path, spec)
    assert got.code == 0
    assert got.client["status"] == "ok"
    assert got.client["counts"] == {
        "planned": 6,
        "sent": 6,
        "ok": 6,
        "failed": 0,
        "timed_out": 0,
        "retried": 0,
    }
    assert (got.client["warmup"]["ok"], got.client["warmup"]["failed"]) == (2, 0)
    assert [record["id"] for record in got.measured] == [f"main-{n:06d}" for n in range(1, 7)]
    assert [record["id"] for record in got.all[:2]] == ["warmup-000001", "warmup-000002"]
    for record in got.measured:
        assert record["kinds"] == "ttttud"
        assert record["usage"]["prompt_tokens"] == 8
        times = [record["scheduled_ns"], record["sent_ns"], *record["t_ns"]]
        assert times == sorted(times)
        assert record["connect_ns"] <= record["sent_ns"]
        assert record["last_ns"] == record["t_ns"][3]
    prompts = [request.body["prompt"] for request in server.requests]
    assert [len(prompt) for prompt in prompts] == [5] * 2 + [8] * 6
    assert len({prompt[0] for prompt in prompts}) == 8
    for request in server.requests:
        assert request.body["ignore_eos"] is True
        assert request.body["temperature"] == 0
        assert request.body["stream_options"] == {"include_usage": True}
    assert len({request.head.split("X-Request-Id: ")[1][:30] for request in server.requests}) == 8


def test_times_are_wall_times_inside_the_window(tmp_path):
    before = time.time_ns()
    with ScriptServer(lambda _, body: stream(body, gap=0.02, first=0.05)) as server:
        got = run(tmp_path, spec_of(server.url))
    after = time.time_ns()
    segment = got.client["segments"][0]
    assert before <= got.client["started_ns"] <= segment["start_ns"]
    assert segment["end_ns"] <= got.client["ended_ns"] <= after
    assert segment["source"] == "client"
    for record in got.measured:
        assert segment["start_ns"] <= record["sent_ns"] < record["t_ns"][-1] <= segment["end_ns"]
        # The server waits 50 ms, then 20 ms between tokens; a client cannot see it earlier.
        assert record["t_ns"][0] - record["sent_ns"] >= 50e6
        assert record["t_ns"][3] - record["sent_ns"] >= 110e6
    # What the client stamps as sent is before what the server stamps as received.
    shift = got.client["clock"]["wall_ns"] - got.client["clock"]["mono_ns"]
    for record in got.measured:
        (request,) = (r for r in server.requests if f"-{record['id']}\r\n" in r.head)
        assert record["sent_ns"] <= request.got_ns + shift <= record["t_ns"][0]


def test_concurrency_is_kept_and_never_exceeded(tmp_path):
    together = threading.Barrier(3, timeout=WAIT_S)
    lock, now, seen = threading.Lock(), [0], []

    def script(_number: int, body: dict[str, Any]) -> Any:
        with lock:
            now[0] += 1
            seen.append(now[0])
        together.wait()
        yield STREAM_HEAD
        with lock:
            now[0] -= 1
        yield chunk(event(text_chunk("x", "stop"))) + END

    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=3, num_prompts=12)))
    assert got.statuses() == ["ok"] * 12
    assert max(seen) == 3


def test_connections_are_kept_alive(tmp_path):
    with ScriptServer(plain) as server:
        got = run(tmp_path, spec_of(server.url))
    assert got.statuses() == ["ok"] * 6
    # One for the look at whether anybody listens, two for the two slots.
    assert {request.connection for request in server.requests} == {2, 3}


def test_a_server_that_closes_in_spite_of_keep_alive_costs_no_retries_after_the_warmup(tmp_path):
    def script(_number: int, body: dict[str, Any]) -> Any:
        yield from stream(body)
        yield None

    warmup = {"isl": 5, "osl": 2, "concurrency": 2, "num_prompts": 2}
    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, warmup=warmup))
    assert got.statuses() == ["ok"] * 6
    assert got.client["counts"]["retried"] == 0
    assert len(server.requests) == 8


def test_a_kept_connection_that_the_server_closes_is_tried_once_more(tmp_path):
    with ScriptServer(lambda n, body: [0.05, None] if n in (1, 3) else stream(body)) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=1, num_prompts=3)))
    assert got.statuses() == ["ok", "ok", "failed"]
    assert [record["attempts"] for record in got.measured] == [1, 2, 1]
    assert got.client["counts"]["retried"] == 1
    # Latency counts from the first try, which the second connection came after.
    assert got.measured[1]["connect_ns"] >= got.measured[1]["sent_ns"] + 50e6
    bodies = [request.body for request in server.requests]
    assert bodies[1] == bodies[2]


def test_a_new_connection_that_breaks_is_not_tried_again(tmp_path):
    def script(number: int, body: dict[str, Any]) -> Any:
        yield answer("200 OK", b"", more="Connection: close\r\n") if number == 0 else None
        yield None

    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=1, num_prompts=2)))
    assert got.errors()[1] == "cut"
    assert got.measured[1]["attempts"] == 1
    assert len(server.requests) == 2


def test_frames_cut_anywhere_even_inside_a_character(tmp_path):
    frames = b"".join(chunk(event(text_chunk("é≈", None))) for _ in range(3))
    frames += chunk(event(text_chunk("x", "stop"))) + chunk(event("[DONE]")) + END

    def script(_number: int, _body: dict[str, Any]) -> Any:
        for byte in STREAM_HEAD + frames:
            yield bytes([byte])

    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, closed(num_prompts=2)))
    assert [record["kinds"] for record in got.measured] == ["ttttd"] * 2
    assert got.statuses() == ["ok"] * 2


def test_half_a_frame_waits_for_its_other_half(tmp_path):
    frame = chunk(event(text_chunk("a")))

    def script(_number: int, _body: dict[str, Any]) -> Any:
        yield STREAM_HEAD + frame[:20]
        yield 0.05
        yield frame[20:] + frame + chunk(event("[DONE]")) + END

    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, closed(num_prompts=1)))
    record = got.measured[0]
    assert record["kinds"] == "ttd"
    assert record["t_ns"][0] == record["t_ns"][1] >= record["sent_ns"] + 50e6


def test_failures_are_told_apart(tmp_path):
    start = STREAM_HEAD + chunk(event(text_chunk("a")))
    full = {"error": {"code": 400, "message": "exceeds the available context size (9 tokens)"}}
    kinds: list[tuple[str, list[bytes | None]]] = [
        ("http", [answer("503 Busy", b'{"error":{"message":"overloaded"}}')]),
        (
            "stream_error",
            [start, chunk(event({"error": {"message": "no"}})), chunk(event("[DONE]")), END],
        ),
        ("cut", [start, None]),
        ("cut", [start + END]),
        ("empty", [STREAM_HEAD + chunk(event("[DONE]")) + END]),
        ("empty", [STREAM_HEAD + END]),
        ("cut", [None]),
        ("protocol", [b"SSH-2.0-x\r\n\r\n"]),
        ("protocol", [start + b"zz\r\n"]),
        ("context", [answer("400 Bad", json.dumps(full).encode(), more="Connection: close\r\n")]),
        ("oom", [answer("500 Oops", b'{"error":{"message":"CUDA out of memory"}}')]),
        ("stream_error", [answer("200 OK", b'{"error":{"message":"x"}}')]),
    ]

    def script(number: int, _body: dict[str, Any]) -> Any:
        # A fresh connection each time, so that none of these is a kept one that went stale.
        yield from kinds[number][1]
        yield None

    with ScriptServer(script) as server:
        stream_ = closed(concurrency=1, num_prompts=len(kinds))
        warmup = {"isl": 1, "osl": 1, "concurrency": 1, "num_prompts": 1}
        kinds.insert(0, ("", [answer("200 OK", b"{}")]))
        got = run(tmp_path, spec_of(server.url, stream_, warmup=warmup))
    # The first request went out on a connection made ahead, so its closing may be retried.
    assert got.errors() == [kind for kind, _ in kinds[1:]]
    assert got.client["status"] == "ok"
    assert got.code == 1, "no request succeeded"
    assert got.client["counts"]["failed"] == len(kinds) - 1


def test_a_share_of_refusals_is_counted(tmp_path):
    busy = answer("503 Busy", b'{"error":{"message":"overloaded"}}')
    with ScriptServer(lambda n, body: [busy] if n % 10 in (3, 6, 9) else stream(body)) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=4, num_prompts=40)))
    counts = got.client["counts"]
    assert (counts["ok"], counts["failed"], counts["sent"]) == (28, 12, 40)
    assert got.code == 0


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ("", "Prompt contains invalid tokens", True),
        ("", "Token id 3999 is out of vocabulary", True),
        ("--vocab 10:500", "Prompt contains invalid tokens", False),
        ("", "overloaded", False),
    ],
)
def test_no_request_succeeds(tmp_path, capsys, more: str, message: str, hint: bool):
    refusal = answer("400 Bad", json.dumps({"error": {"message": message}}).encode())
    with ScriptServer(lambda n, body: [refusal]) as server:
        line = f"--url {server.url} --model m --num-prompts 3 --out {tmp_path / 'out'} {more}"
        got = Results(bench.main(line.split()), tmp_path / "out")
    assert (got.code, got.client["status"]) == (1, "ok")
    said = capsys.readouterr()
    assert "no request succeeded: 3 x http" in said.out
    assert said.err.startswith("bench: no request succeeded: 3 x http")
    assert ("--vocab LO:HI" in said.err) is hint


LONG = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: "
    + b"1" * 5000
    + b"\r\n\r\n"
)


def test_a_header_that_nobody_can_read_costs_one_request(tmp_path):
    with ScriptServer(lambda n, body: [LONG] if n == 3 else stream(body)) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=1)))
    assert (got.code, got.client["status"]) == (0, "ok")
    assert got.statuses() == ["ok"] * 3 + ["failed"] + ["ok"] * 2
    assert got.errors()[3] == "protocol"


def test_an_exception_in_one_connection_costs_its_request(tmp_path, monkeypatch):
    whole = Response.feed

    def feed(self: Response, data: bytes, now_ns: int) -> bool:
        if b"418" in data:
            raise ZeroDivisionError("odd")
        return whole(self, data, now_ns)

    monkeypatch.setattr(Response, "feed", feed)
    odd = answer("418 Teapot", b"{}")
    with ScriptServer(lambda n, body: [odd] if n == 3 else stream(body)) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=1)))
    assert got.client["status"] == "ok"
    assert got.statuses() == ["ok"] * 3 + ["failed"] + ["ok"] * 2
    error = got.measured[3]["error"]
    assert error == {"class": "protocol", "message": "ZeroDivisionError: odd"}


def test_an_exception_in_the_loop_keeps_what_came(tmp_path, monkeypatch):
    whole, ended = Loop._finish, []

    def finish(self: Loop, *more: Any) -> None:
        ended.append(more)
        if len(ended) == 4:
            raise KeyError("lost")
        whole(self, *more)

    def script(number: int, body: dict[str, Any]) -> Any:
        if number != 1:
            yield from stream(body)
        else:
            yield STREAM_HEAD + chunk(event(text_chunk("x")))
            yield 30.0

    monkeypatch.setattr(Loop, "_finish", finish)
    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url))
    assert (got.code, got.client["status"]) == (1, "failed")
    assert got.client["reasons"] == ["internal: KeyError: 'lost'"]
    assert sorted(got.statuses()) == ["failed"] + ["ok"] * 4
    (error,) = (record["error"] for record in got.measured if record["error"])
    assert error == {"class": "cut", "message": "the client stopped: internal: KeyError: 'lost'"}
    last = max(record["last_ns"] for record in got.measured if record["status"] == "ok")
    assert got.client["segments"][0]["end_ns"] >= last


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_printing_what_a_server_said_never_fails(tmp_path, encoding):
    said = answer("500 Oops", b'{"error": {"message": "bad \\ud800 \\u00e9"}}')
    line = ["bench", "--model", "m", "--num-prompts", "2", "--out", str(tmp_path / "out")]
    with ScriptServer(lambda n, body: [said]) as server:
        for module in ("servemap.onnode", "servemap"):
            done = subprocess.run(
                [sys.executable, "-m", module, *line, "--url", server.url],
                env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
                capture_output=True,
            )
            (tmp_path / "out" / "client.json").unlink()
            assert done.returncode == 1
            assert b"2 http: bad \\ud800 " in done.stdout
            assert b"no request succeeded: 2 x http" in done.stderr
            assert b"Traceback" not in done.stderr


def uncounted(
    count: int | None, body: dict[str, Any], between: Callable[[], object] = lambda: None
) -> Any:
    """An answer whose usage says `count` tokens; None: without usage."""
    yield STREAM_HEAD
    for text in ("a", "b"):
        yield chunk(event(text_chunk(text)))
        between()
        yield 0.01
    more = {} if count is None else {"usage": usage(len(body["prompt"]), count)}
    yield chunk(event(text_chunk("", "stop", **more))) + chunk(event("[DONE]")) + END


@pytest.mark.parametrize("count", [None, 0])
def test_latencies_need_no_usage_and_tpot_says_why_it_is_not_there(tmp_path, capsys, count):
    with ScriptServer(lambda n, body: uncounted(count, body)) as server:
        run(tmp_path, spec_of(server.url, closed(num_prompts=2)))
    shown = capsys.readouterr().out.splitlines()
    assert any(line.startswith("TTFT      p50 ") for line in shown)
    assert any(line.startswith("E2E       p50 ") for line in shown)
    assert "TPOT      not measured: 2 answers without a usage count" in shown
    assert "output    not measured: no usage counts from the server" in shown


def test_tokens_of_one_read_have_no_tpot_and_are_counted(tmp_path, capsys, monkeypatch):
    whole, came = Response.feed, threading.Event()

    def feed(self: Response, data: bytes, now_ns: int) -> bool:
        if b'"text": "a"' in data:
            came.set()
        return whole(self, data, now_ns)

    def between() -> None:
        assert came.wait(WAIT_S)

    monkeypatch.setattr(Response, "feed", feed)

    def script(number: int, body: dict[str, Any]) -> Any:
        if number < 2:
            parts = [part for part in stream(body) if isinstance(part, bytes)]
            yield b"".join(parts)
        else:
            came.clear()
            yield from uncounted(2 if number < 4 else None, body, between)

    with ScriptServer(script) as server:
        run(tmp_path, spec_of(server.url, closed(num_prompts=5, concurrency=1)))
    shown = capsys.readouterr().out
    why = "; left out: 1 answer without a usage count, 2 answers whose tokens came in one read\n"
    assert why in shown
    tpot = next(line for line in shown.splitlines() if line.startswith("TPOT"))
    assert float(tpot.split()[2]) >= 5
    assert "of the 4 of 5 answers that were counted" in shown


def test_nobody_listens(tmp_path):
    got = run(tmp_path, spec_of(f"http://127.0.0.1:{refused_port()}"))
    assert got.code == 1
    assert got.client["status"] == "failed"
    assert "cannot connect" in got.client["reasons"][0]
    assert got.client["counts"]["sent"] == 0
    assert got.client["counts"]["planned"] == 6


def test_the_server_goes_away_in_the_middle(tmp_path):
    with ScriptServer(lambda n, body: stream(body) if n < 2 else [None]) as server:

        def script(number: int, body: dict[str, Any]) -> Any:
            yield from stream(body)
            if number == 1:
                server._listener.shutdown(socket.SHUT_RDWR)
                server._listener.close()
                yield None

        server.script = script
        got = run(tmp_path, spec_of(server.url, closed(concurrency=1, num_prompts=5)))
    assert got.errors() == ["", "", "refused", "refused", "refused"]
    assert got.client["status"] == "ok"
    assert got.measured[-1]["t_ns"] == []
    assert got.measured[-1]["sent_ns"] is None


def test_a_hung_server_ends_in_time_and_what_came_is_kept(tmp_path):
    def script(_number: int, _body: dict[str, Any]) -> Any:
        yield STREAM_HEAD + chunk(event(text_chunk("a")))
        yield WAIT_S

    for limit_s in longer(0.3):
        with ScriptServer(script) as server:
            two = closed(concurrency=2, num_prompts=2)
            got = run_in(tmp_path / f"{limit_s:g}", spec_of(server.url, two, timeout_s=limit_s))
        if all(record["kinds"] for record in got.measured):
            break
    assert got.statuses() == ["timed_out"] * 2
    assert [record["kinds"] for record in got.measured] == ["t"] * 2
    assert got.client["counts"]["timed_out"] == 2
    assert got.client["status"] == "ok"


def test_the_case_has_a_time_limit(tmp_path):
    def script(_number: int, _body: dict[str, Any]) -> Any:
        yield STREAM_HEAD + chunk(event(text_chunk("a")))
        yield WAIT_S

    for limit_s in longer(1.5):
        with ScriptServer(script) as server:
            got = run_in(tmp_path / f"{limit_s:g}", spec_of(server.url, case_timeout_s=limit_s))
        if got.client["counts"]["sent"] == 2:
            break
    assert got.code == 1
    assert got.client["reasons"] == ["case timeout"]
    assert got.statuses() == ["timed_out"] * 2
    counts = got.client["counts"]
    assert (counts["planned"], counts["sent"], counts["timed_out"]) == (6, 2, 2)


def test_requests_at_set_times_overlap_the_background(tmp_path):
    def script(_number: int, body: dict[str, Any]) -> Any:
        yield from stream(body, gap=0.02)

    timed = {"name": "injected", "kind": "at", "isl": 50, "osl": 1, "at_s": [0.2, 0.05]}
    with ScriptServer(script) as server:
        background = closed(concurrency=2, num_prompts=12, osl=3)
        got = run(tmp_path, spec_of(server.url, background, timed))
    segment = got.client["segments"][0]
    injected = [record for record in got.measured if record["stream"] == "injected"]
    assert [record["id"] for record in injected] == ["main/injected-000001", "main/injected-000002"]
    planned = [record["scheduled_ns"] - segment["start_ns"] for record in injected]
    assert planned == [50_000_000, 200_000_000]
    assert all(record["sent_ns"] >= record["scheduled_ns"] for record in injected)
    assert [start for start, _ in segment["overlaps"]] == [record["sent_ns"] for record in injected]
    assert all(start < end <= segment["end_ns"] for start, end in segment["overlaps"])
    assert got.client["counts"]["ok"] == 14
    prompts = [tuple(request.body["prompt"]) for request in server.requests]
    assert len({prompt[0] for prompt in prompts}) == 14


def test_segments_follow_each_other(tmp_path):
    with ScriptServer(plain) as server:
        spec = spec_of(server.url)
        spec["segments"] = [
            {"name": "control", "streams": [closed("background")]},
            {"name": "injected", "streams": [closed("background")]},
        ]
        got = run(tmp_path, spec)
    first, second = got.client["segments"]
    assert (first["name"], second["name"]) == ("control", "injected")
    assert first["end_ns"] <= second["start_ns"]
    assert len({record["id"] for record in got.measured}) == 12
    assert len({request.body["prompt"][0] for request in server.requests}) == 12


def test_whole_waves_are_repeated_until_the_window_is_long_enough(tmp_path):
    with ScriptServer(lambda _, body: stream(body, gap=0.01)) as server:
        got = run(tmp_path, spec_of(server.url, min_window_s=0.3))
    counts = got.client["counts"]
    assert counts["planned"] == counts["ok"] == len(got.measured)
    assert counts["ok"] % 6 == 0
    segment = got.client["segments"][0]
    until = segment["start_ns"] + 0.3e9
    assert segment["end_ns"] >= until
    # A wave takes some 100 ms; only a standstill in it makes the first one last long enough.
    assert counts["ok"] > 6 or max(record["last_ns"] for record in got.measured) >= until
    assert len({request.body["prompt"][0] for request in server.requests}) == counts["ok"]


def test_waves_are_not_repeated_when_nothing_succeeds(tmp_path):
    with ScriptServer(lambda _n, _b: [answer("500 Oops", b"{}")]) as server:
        got = run(tmp_path, spec_of(server.url, min_window_s=20))
    assert got.client["counts"]["failed"] == got.client["counts"]["planned"] == 6


def test_a_prompt_beyond_the_socket_buffers_goes_out_whole(tmp_path):
    with ScriptServer(plain) as server:
        got = run(tmp_path, spec_of(server.url, closed(isl=2_000_000, osl=1, num_prompts=1)))
    assert got.statuses() == ["ok"]
    assert len(server.requests[0].body["prompt"]) == 2_000_000


@pytest.mark.parametrize(("number", "reason"), [(15, "terminated"), (2, "interrupted")])
def test_signals_keep_what_came(tmp_path, number, reason):
    def script(_number: int, _body: dict[str, Any]) -> Any:
        yield STREAM_HEAD + chunk(event(text_chunk("a")))
        os.kill(os.getpid(), number)
        yield 30.0

    before = signal.getsignal(number)
    with ScriptServer(script) as server:
        got = run(tmp_path, spec_of(server.url, closed(concurrency=1, num_prompts=3)))
    assert signal.getsignal(number) is before
    assert got.code == 1
    assert (got.client["status"], got.client["reasons"]) == ("failed", [reason])
    assert (got.errors(), got.measured[0]["kinds"]) == (["cut"], "t")
    assert got.client["segments"][0]["end_ns"] > got.client["segments"][0]["start_ns"]


def test_a_secret_goes_to_the_server_and_nowhere_else(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("SOME_KEY", "hush-hush")
    with ScriptServer(plain) as server:
        got = run(tmp_path, spec_of(server.url, api_key_env="SOME_KEY"))
    assert got.client["status"] == "ok"
    assert all("Authorization: Bearer hush-hush" in request.head for request in server.requests)
    written = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert "hush" not in written + "".join(capfd.readouterr())


def test_options_make_a_spec_of_their_own(tmp_path, capsys):
    out = tmp_path / "out"
    with ScriptServer(plain) as server:
        code = bench.main(
            f"--url {server.url}/v1 --model tiny --isl 9 --osl 3 --concurrency 2 --num-prompts 4 "
            f"--warmup 1 --seed x --vocab 10:500 --timeout 9 --out {out}".split()
        )
    got = Results(code, out)
    assert code == 0
    assert got.statuses() == ["ok"] * 4
    assert len(got.all) == 5
    assert json.loads((out / "load.json").read_text())["seed"] == "x"
    assert all(request.body["ignore_eos"] is True for request in server.requests)
    assert {len(request.body["prompt"]) for request in server.requests} == {9}
    shown = capsys.readouterr().out
    assert "4 ok, 0 failed" in shown
    assert all(name in shown for name in ("TTFT", "TPOT", "E2E", "tok/s"))
    late = got.client["late_ms"]
    assert f"client    late p99.5 {late['p995']:.2f} ms, worst {late['max']:.2f} ms, " in shown
    assert f"{got.client['window_cpu_share']:.0%} of a core" in shown
    assert "cached" not in shown, "usage does not tell"


def test_help_is_of_the_command_as_it_is_typed(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: servemap bench ")
    assert "--search" in shown
    assert "--curve" in shown


def test_the_client_may_not_know_how_late_it_read():
    counts = dict.fromkeys(("ok", "failed", "timed_out", "retried", "planned"), 0)
    client = {"status": "ok", "reasons": [], "counts": counts, "late_ms": None,
              "segments": [{"name": "main", "start_ns": 0, "end_ns": 10**9}],
              "window_cpu_share": 0.25}  # fmt: skip
    lines = load_summary.summary_lines([], {}, client, [])
    assert lines[-1] == "client    how late it read is not known, 25% of a core"


def test_each_run_of_the_options_has_prompts_of_its_own(tmp_path):
    with ScriptServer(plain) as server:
        for name in "ab":
            line = (
                f"--url {server.url} --model m --num-prompts 1 --warmup 0 --out {tmp_path / name}"
            )
            assert bench.main(line.split()) == 0
    first, second = (request.body["prompt"] for request in server.requests)
    assert first != second


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--model m", "--url is missing"),
        ("--url http://127.0.0.1:1", "--model is missing"),
        ("--spec {tmp}/none.json", "cannot be read"),
        ("--spec {tmp}/none.json --isl 5", "remove --isl"),
        ("--url https://h --model m", "bench: --url: https://h needs TLS"),
        ("--url http://h --model m --vocab 5", "--vocab"),
        ("--url http://h --model m --request {{", "--request"),
        ("--url http://h --model m --isl 0", "bench: --isl: 0 "),
        ("--url http://h --model m --concurrency 0", "bench: --concurrency: 0 "),
        ("--url http://h --model m --prefix-share 50", "bench: --prefix-share: 50.0 "),
        ("--url http://h --model m --prefix-share nan", "bench: --prefix-share: nan "),
        ("--url http://h --model m --prefix-share 0.9999", "bench: --prefix-share: 128 "),
        ("--url http://h --model m --rate 3 --arrivals gamma", "bench: --burstiness: goes with"),
        ("--url http://h --model m --rate 3 --burstiness 2", "bench: --burstiness: goes with"),
        ("--url http://h --model m --rate 3 --arrivals even", 'bench: --arrivals: "even" '),
        ("--url http://h --model m --inject 0:1 --inject-at 2", "bench: --inject: 0 "),
        ("--url http://h --model m --inject 4:1 --inject-at=-2", "bench: --inject-at: -2.0 "),
        ("--url http://h --model m --warmup -2", "bench: --warmup: -2 "),
        ("--url http://h --model m --timeout 0", "bench: --timeout: 0.0 "),
        ("--url http://h --model m --min-window -1", "bench: --min-window: -1.0 "),
        ('--url http://h --model m --request {{"model":1}}', "bench: --request: 1 "),
        ("--url http://h --model m --chat foo", 'bench: --chat: ["foo"] '),
        ("--url http://h --model m --chat user --tools -1", "bench: --tools: -1 "),
        ("--url http://h --model m --flush x", 'bench: --flush: "x" '),
        ("--url http://h --model m --vocab 5:5", "bench: --vocab: [5, 5] "),
        ("--url http://h --model m --api-key-env NOT_SET_HERE", "NOT_SET_HERE"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, line, says):
    code = bench.main([*line.format(tmp=tmp_path).split(), "--out", str(tmp_path / "out")])
    assert code == 2
    shown = capsys.readouterr().err
    assert says in shown
    assert len(shown.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_finished_run_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "client.json").write_text("{}")
    code = bench.main(f"--url http://127.0.0.1:1 --model m --out {tmp_path / 'out'}".split())
    assert code == 2
    assert "finished run" in capsys.readouterr().err
    assert (tmp_path / "out" / "client.json").read_text() == "{}"


def test_a_full_disk_leaves_whole_lines_and_says_so(tmp_path):
    """A limit on file size stands in for the disk; in a process of its own, as it stays."""
    program = (
        "import resource, sys; from servemap.onnode import bench;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));"
        "sys.exit(bench.main(sys.argv[1:]))"
    )
    out = tmp_path / "out"
    with ScriptServer(plain) as server:
        line = f"--url {server.url} --model m --isl 4 --osl 40 --num-prompts 9 --out {out}"
        done = subprocess.run(
            [sys.executable, "-c", program, *line.split()],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "requests.jsonl" in done.stderr
    got = Results(done.returncode, out)
    assert got.client["status"] == "failed"
    assert "not written" in got.client["reasons"][0]
    assert 0 < len(got.all) < 10


def test_too_few_file_descriptors_are_named(tmp_path):
    program = (
        "import resource, sys; from servemap.onnode import bench;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20));"
        "sys.exit(bench.main(sys.argv[1:]))"
    )
    with ScriptServer(lambda _, body: stream(body, first=0.2)) as server:
        line = f"--url {server.url} --model m --concurrency 40 --warmup 0 --out {tmp_path / 'out'}"
        done = subprocess.run(
            [sys.executable, "-c", program, *line.split()], capture_output=True, text=True
        )
    assert done.returncode == 1
    assert done.stderr == "bench: Too many open files: raise ulimit -n\n"
    got = Results(done.returncode, tmp_path / "out")
    assert got.client["counts"]["sent"] < 20
    assert len(got.measured) == got.client["counts"]["sent"] + 1


def test_a_summary_that_nobody_reads_does_no_harm(tmp_path):
    program = "import sys; from servemap.onnode import bench; sys.exit(bench.main(sys.argv[1:]))"
    read, write = os.pipe()
    os.close(read)
    with ScriptServer(plain) as server:
        line = f"--url {server.url} --model m --num-prompts 1 --out {tmp_path / 'out'}"
        done = subprocess.run(
            [sys.executable, "-c", program, *line.split()], stdout=write, stderr=subprocess.PIPE
        )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code = bench.main(f"--url http://127.0.0.1:1 --model m --out {tmp_path}/file/out".split())
    assert code == 3
    assert len(capsys.readouterr().err.splitlines()) == 1
