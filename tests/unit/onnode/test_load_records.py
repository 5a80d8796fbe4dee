"""What streams mean: each case is a stream as a server sent it, or as a bug report tells it."""

import json
from typing import Any

import pytest
from load_server import event, text_chunk, usage

from servemap.onnode import load_records
from servemap.onnode.checked import MOST_TOKENS
from servemap.onnode.load_call import Call, Lane
from servemap.onnode.load_http import Response
from servemap.onnode.load_records import build_record, recorded
from servemap.onnode.load_spec import Stream

EPOCH = 10**18


def call_of(
    reads: list[tuple[int, bytes]],
    outcome: str = "complete",
    kind: str = "text/event-stream",
    status: str = "200 OK",
    detail: str = "",
) -> Call:
    stream = Stream("main", "closed", 4, 8, 1, 1, ())
    call = Call(Lane(stream, lambda _: ("x", b"")), "main-000001", b"", 100)
    call.connected_ns, call.sent_ns, call.attempts = 90, 110, 1
    call.outcome, call.detail, call.ended_ns = outcome, detail, 10_000
    call.response = Response()
    call.response.feed(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n\r\n".encode(), 120)
    for when, data in reads:
        call.response.feed(data, when)
    return call


def record(reads: list[tuple[int, bytes]], *more: str, **keys: str) -> dict[str, Any]:
    return build_record(call_of(reads, *more, **keys), "main", False, EPOCH)


def events(*values: Any, step: int = 100) -> list[tuple[int, bytes]]:
    return [(200 + step * number, event(value)) for number, value in enumerate(values)]


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def test_a_usual_stream():
    got = record(
        events(
            text_chunk("a"),
            text_chunk("b"),
            text_chunk("c", "length"),
            {"choices": [], "usage": {**usage(4, 3), "prompt_tokens_details": None}},
            "[DONE]",
        )
    )
    assert got == {
        "id": "main-000001",
        "segment": "main",
        "stream": "main",
        "warmup": False,
        "isl": 4,
        "osl": 8,
        "scheduled_ns": EPOCH + 100,
        "connect_ns": EPOCH + 90,
        "sent_ns": EPOCH + 110,
        "last_ns": EPOCH + 400,
        "status": "ok",
        "error": None,
        "http_status": 200,
        "attempts": 1,
        "t_ns": [EPOCH + 200 + 100 * number for number in range(5)],
        "kinds": "tttud",
        "tokens": [None, None, None, 3, None],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 3,
            "cached_tokens": None,
            "reasoning_tokens": None,
        },
        "finish_reason": "length",
        "timings": None,
    }


def test_several_tokens_an_event():
    got = record(
        events(
            text_chunk("a", usage=usage(4, 1)),
            text_chunk("bcde", usage=usage(4, 5)),
            text_chunk("f", "stop", usage=usage(4, 6)),
            "[DONE]",
        )
    )
    assert got["status"] == "ok"
    assert got["tokens"] == [1, 5, 6, None]


def test_role_only_chunk_carries_no_token():
    got = record(
        events(delta(role="assistant", content=""), delta(content="hi"), text_chunk("", "stop"))
    )
    assert got["kinds"] == "rtr"
    assert got["status"] == "ok"
    assert got["last_ns"] == EPOCH + 300


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_output(field):
    got = record(
        events(
            delta(role="assistant"),
            delta(**{field: "hm", "content": None}),
            delta(**{field: "so", "content": ""}),
            {
                "choices": [],
                "usage": {**usage(4, 2), "completion_tokens_details": {"reasoning_tokens": 2}},
            },
            "[DONE]",
        )
    )
    assert (got["status"], got["kinds"]) == ("ok", "rkkud")
    assert got["usage"]["reasoning_tokens"] == 2


def test_reasoning_count_beside_the_totals_and_cached_tokens():
    counts = {**usage(4, 2), "reasoning_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}}
    got = record(events(delta(content="x"), {"choices": [], "usage": counts}, "[DONE]"))
    assert (got["usage"]["reasoning_tokens"], got["usage"]["cached_tokens"]) == (1, 3)


def test_tool_calls_are_output():
    got = record(events(delta(tool_calls=[{"index": 0}]), delta(content="x"), "[DONE]"))
    assert got["kinds"] == "ctd"


def test_tokens_that_a_parser_holds_back_show_in_usage_only():
    hidden = [{**delta(), "usage": usage(4, number + 1)} for number in range(20)]
    got = record(events(*hidden, {**delta(content="x"), "usage": usage(4, 21)}, "[DONE]"))
    assert got["kinds"] == "r" * 20 + "td"
    assert got["tokens"][:20] == list(range(1, 21))
    assert got["status"] == "ok"


def test_nothing_visible_but_counted_is_output():
    got = record(events(text_chunk("", "length", usage=usage(4, 1)), "[DONE]"))
    assert (got["status"], got["kinds"], got["last_ns"]) == ("ok", "rd", EPOCH + 200)


def test_llama_cpp_closes_with_an_empty_chunk_that_holds_the_count():
    got = record(
        events(
            text_chunk("a"),
            text_chunk("b"),
            text_chunk("", "length", usage=usage(4, 2), timings={"prompt_ms": 2.5}),
            "[DONE]",
        )
    )
    assert got["last_ns"] == EPOCH + 300
    assert got["timings"] == {"prompt_ms": 2.5}


@pytest.mark.parametrize(("last", "at"), [(5, 3), (4, 1)])
def test_an_empty_chunk_ends_an_answer_where_its_count_is_the_largest_so_far(last, at):
    """A count that shrank before does not make a token of the one that takes it back."""
    counts = [("a", 1), ("b", 4), ("", 2), ("", last)]
    blocks = [text_chunk(text, usage=usage(8, count)) for text, count in counts]
    got = record(events(*blocks, "[DONE]"))
    assert got["kinds"] == "ttrrd"
    assert got["last_ns"] == got["t_ns"][at]


def test_final_usage_with_empty_text_is_taken():
    got = record(events(text_chunk("a"), text_chunk("", "stop", usage=usage(4, 37)), "[DONE]"))
    assert got["usage"]["completion_tokens"] == 37


@pytest.mark.parametrize(
    "fault",
    [
        {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}},
        {"error": "engine died"},
        {"object": "error", "message": "engine died", "code": 500},
        {"detail": "engine died"},
    ],
)
def test_an_error_inside_the_stream_fails_the_request(fault):
    good = [text_chunk("x") for _ in range(10)]
    got = record(events(*good, fault, "[DONE]"))
    assert got["status"] == "failed"
    assert got["error"] == {"class": "stream_error", "message": "engine died"}
    assert got["kinds"] == "t" * 10 + "ed"


@pytest.mark.parametrize(
    "block", [b"event: error\ndata: broken\n\n", b'error: {"message": "broken"}\n\n']
)
def test_an_event_named_error_fails_the_request(block):
    got = record([*events(text_chunk("x")), (900, block)])
    assert got["error"] == {"class": "stream_error", "message": "broken"}
    assert got["kinds"] == "te"


def test_an_error_that_is_null_is_none():
    assert record(events({**text_chunk("a", "stop"), "error": None}))["status"] == "ok"


@pytest.mark.parametrize("values", [[], ["[DONE]"], [delta(role="assistant"), "[DONE]"]])
def test_a_stream_without_a_token_is_empty(values):
    got = record(events(*values))
    assert (got["status"], got["error"]["class"]) == ("failed", "empty")


def test_usage_that_counts_nothing_is_empty():
    got = record(events({"choices": [], "usage": usage(4, 0)}, "[DONE]"))
    assert got["error"]["class"] == "empty"


def test_a_stream_that_stops_in_silence_is_cut():
    got = record(events(text_chunk("a"), text_chunk("b")))
    assert (got["status"], got["error"]["class"]) == ("failed", "cut")
    assert got["kinds"] == "tt"


def test_a_connection_lost_in_the_stream_keeps_what_came():
    got = record(events(text_chunk("a"), text_chunk("b")), outcome="cut", detail="reset")
    assert got["error"] == {"class": "cut", "message": "reset"}
    assert got["t_ns"] == [EPOCH + 200, EPOCH + 300]


def test_a_connection_lost_after_done_lost_nothing():
    got = record(events(text_chunk("a", "stop"), "[DONE]"), outcome="cut", detail="reset")
    assert got["status"] == "ok"


def test_a_frame_that_is_cut_off_is_no_event():
    got = record([(200, event(text_chunk("a"))), (300, b'data: {"cho')], outcome="cut")
    assert got["kinds"] == "t"


def test_time_limit():
    got = record(events(text_chunk("a")), outcome="timeout", detail="too long")
    assert (got["status"], got["error"]) == (
        "timed_out",
        {"class": "timeout", "message": "too long"},
    )
    assert got["kinds"] == "t"


def test_numbers_that_json_lacks_are_missing():
    data = b'data: {"choices":[{"text":"a"}],"timings":{"x":NaN}}\n\ndata: [DONE]\n\n'
    assert record([(200, data)])["timings"] == {"x": None}


@pytest.mark.parametrize("data", ["{half", "[1]", "12", "null", "[" * 100_000])
def test_an_event_that_is_no_object_is_a_protocol_error(data):
    got = record(events(text_chunk("a"), data, "[DONE]"))
    assert got["error"]["class"] == "protocol"
    assert got["kinds"] == "ted"


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        ("503 Busy", {"error": {"message": "overloaded"}}, "http", "overloaded"),
        ("404 Not Found", {"detail": "Not Found"}, "http", "Not Found"),
        ("400 Bad", {"object": "error", "message": "bad vocab"}, "http", "bad vocab"),
        ("422 No", {"detail": [{"msg": "x"}]}, "http", '[{"msg": "x"}]'),
        ("502 Bad Gateway", "<html>nginx</html>", "http", "<html>nginx</html>"),
        ("500 Oops", "", "http", "HTTP 500"),
        ("500 Oops", {"error": {"message": "CUDA out of memory. Tried"}}, "oom", None),
        (
            "400 Bad",
            {"error": {"message": "This model's maximum context length is 2048 tokens. However"}},
            "context",
            None,
        ),
        (
            "400 Bad",
            {"message": "The input (9 tokens) is longer than the model's context length (4)."},
            "context",
            None,
        ),
        (
            "400 Bad",
            {"error": {"message": "request (30 tokens) exceeds the available context size (20)"}},
            "context",
            None,
        ),
        (
            "400 Bad",
            {
                "error": {
                    "message": "The prompt (30) is longer than the maximum model length of 20."
                }
            },
            "context",
            None,
        ),
    ],
)
def test_http_errors(status, body, kind, message):
    data = body if isinstance(body, str) else json.dumps(body)
    got = record([(200, data.encode())], status=status, kind="application/json")
    assert (got["status"], got["error"]["class"]) == ("failed", kind)
    assert got["http_status"] == int(status[:3])
    if message is not None:
        assert got["error"]["message"] == message


def test_an_error_as_json_instead_of_a_stream():
    got = record([(200, b'{"error": {"message": "no"}}')], kind="application/json")
    assert got["error"] == {"class": "stream_error", "message": "no"}


def test_an_answer_that_is_not_streamed():
    body = json.dumps({**text_chunk("a", "stop"), "usage": usage(4, 1)}).encode()
    got = record([(200, body)], kind="application/json; charset=utf-8")
    assert got["error"]["class"] == "protocol"


def test_long_messages_are_cut():
    got = record([(200, b"x" * 9000)], status="500 Oops", kind="text/plain")
    assert len(got["error"]["message"]) == 500


def test_odd_fields_do_no_harm():
    got = record(
        events(
            {"choices": None, "usage": "much"},
            {"choices": [None, 5, {"delta": "x", "finish_reason": 3}]},
            {
                "choices": [{"text": "a", "finish_reason": "stop"}],
                "usage": {"completion_tokens": None},
            },
            "[DONE]",
        )
    )
    assert (got["status"], got["kinds"]) == ("ok", "rrtd")
    assert got["tokens"] is None
    assert got["usage"]["completion_tokens"] is None


GARBAGE_END = (text_chunk("", "length", usage=usage(4, 16)), "[DONE]")


@pytest.mark.parametrize(
    "values",
    [
        GARBAGE_END,
        (delta(role="assistant", content=""), *GARBAGE_END),
        ({"choices": []}, *GARBAGE_END),
        ({"choices": [], "usage": usage(4, 16)}, "[DONE]"),
    ],
)
def test_a_count_without_any_token_in_the_stream_is_empty(values):
    got = record(events(*values))
    assert got["status"] == "failed"
    assert got["error"] == {
        "class": "empty",
        "message": "usage says 16 tokens, the stream carried none",
    }


@pytest.mark.parametrize("empty", [text_chunk(""), delta(content="")])
def test_tokens_without_text_are_output(empty):
    assert record(events(empty, empty, *GARBAGE_END))["status"] == "ok"


@pytest.mark.parametrize(
    "reads",
    [
        [(200 + number, b"xxxx") for number in range(16)],
        [(200, b"xxxx\n\n")],
        [(200, b"<html>\n")],
        [(200, event(text_chunk("a")) + b"data\x00: 1\n\n")],
    ],
)
def test_bytes_that_are_no_event_are_a_protocol_error(reads):
    got = record([*reads, *events({**text_chunk("a", "length"), "usage": usage(4, 16)}, "[DONE]")])
    assert (got["status"], got["error"]["class"]) == ("failed", "protocol")
    assert "no event" in got["error"]["message"]


def test_bytes_after_the_end_of_a_stream_are_a_protocol_error():
    got = record([*events(text_chunk("a", "stop"), "[DONE]"), (900, b"xx")])
    assert got["error"]["class"] == "protocol"


@pytest.mark.parametrize(
    "count", [-1, -(10**30), MOST_TOKENS + 1, 2**31, 10**30, 1.5, True, "9", [], float("inf")]
)
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_usage_that_is_no_count_is_missing_and_a_protocol_error(name, count):
    counts = json.dumps({**usage(4, 1), name: count}).replace("Infinity", "1e999")
    last = f'{{"choices": [], "usage": {counts}}}'
    got = record(events(text_chunk("a", "length"), last, "[DONE]"))
    assert (got["status"], got["error"]["class"]) == ("failed", "protocol")
    assert name in got["error"]["message"]
    assert got["usage"][name] is None


def test_nested_usage_that_is_no_count():
    counts = {**usage(4, 1), "prompt_tokens_details": {"cached_tokens": -7}}
    got = record(events(text_chunk("a"), {"choices": [], "usage": counts}, "[DONE]"))
    assert got["error"]["message"] == "usage gives -7 as cached_tokens, which is no count"
    assert got["usage"]["cached_tokens"] is None


@pytest.mark.parametrize("count", ["NaN", "Infinity", "-Infinity"])
def test_usage_that_json_lacks_is_missing_and_a_protocol_error(count):
    last = f'{{"choices": [], "usage": {{"prompt_tokens": 4, "completion_tokens": {count}}}}}'
    got = record(events(text_chunk("a", "length"), last, "[DONE]"))
    assert (got["status"], got["error"]["class"]) == ("failed", "protocol")
    assert got["usage"]["completion_tokens"] is None


def running(text: str, count: int) -> dict[str, Any]:
    return text_chunk(text, usage=usage(4, count))


FINAL = {"choices": [], "usage": usage(4, 5)}
COUNTED = [running("x", number) for number in range(1, 6)]
CHAT = [{**delta(content="x"), "usage": usage(4, number)} for number in range(1, 6)]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(COUNTED, id="vLLM and SGLang: continuous usage"),
        pytest.param(CHAT, id="the same in chat"),
        pytest.param([*COUNTED, {"choices": [], "usage": None}], id="null usage"),
        pytest.param([*COUNTED[:3], FINAL, *COUNTED[3:]], id="tokens after a count of its own"),
        pytest.param(
            [
                part
                for one in COUNTED
                for part in (text_chunk("x"), {**FINAL, "usage": one["usage"]})
            ],
            id="each count on an event of its own",
        ),
        pytest.param([text_chunk("x", "") for _ in range(5)], id="an empty finish reason"),
        pytest.param([text_chunk("x", timings={"predicted_n": 5})] * 5, id="llama.cpp: timings"),
    ],
)
def test_a_stream_that_ends_early_is_cut_whatever_it_counted(values):
    """The terminating chunk of the body came, as from a proxy whose server went away."""
    got = record(events(*values))
    assert (got["status"], got["error"]["class"]) == ("failed", "cut")


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([*COUNTED, "[DONE]"], id="vLLM: continuous usage and [DONE]"),
        pytest.param([*COUNTED, text_chunk("", "length", usage=usage(4, 5))], id="SGLang: finish"),
        pytest.param([*COUNTED, FINAL], id="usage on an event of its own"),
        pytest.param([text_chunk("a"), FINAL], id="final usage only"),
        pytest.param(
            [{"choices": [], "usage": usage(4, 0)}, *COUNTED, FINAL], id="prompt counted first"
        ),
        pytest.param(
            [text_chunk("a"), text_chunk("", "length", usage=usage(4, 1), timings={"x": 1})],
            id="llama.cpp: count and timings on the finishing chunk",
        ),
        pytest.param(
            [delta(content="a"), {"choices": [{"delta": {}, "finish_reason": "stop"}]}],
            id="chat: finish reason on an empty delta",
        ),
        pytest.param([text_chunk("a"), "[DONE]"], id="[DONE] only"),
    ],
)
def test_each_usual_end_is_one(values):
    assert record(events(*values))["status"] == "ok"


def test_the_largest_count_is_the_one_that_results_take():
    got = record(events(text_chunk("a", "stop", usage=usage(MOST_TOKENS, 1)), "[DONE]"))
    assert (got["status"], got["usage"]["prompt_tokens"]) == ("ok", MOST_TOKENS)


@pytest.mark.parametrize("status", ["500 Oops", "200 OK"])
def test_a_message_with_half_a_surrogate_pair_can_be_written_anywhere(status):
    body = b'{"error": {"message": "bad \\ud800 \\u00e9"}}'
    got = record([(200, body)], status=status, kind="application/json")
    assert got["error"]["message"] == "bad \\ud800 \u00e9"
    got["error"]["message"].encode()


def test_a_finish_reason_with_half_a_surrogate_pair_can_be_written_anywhere():
    got = record(events(r'{"choices": [{"text": "a", "finish_reason": "\ud800"}]}'))
    assert (got["status"], got["finish_reason"]) == ("ok", "\\ud800")


def test_an_answer_that_breaks_the_reading_is_one_failed_request(monkeypatch):
    def broken(pieces: list[bytes], *_: Any) -> list[Any]:
        if pieces:
            raise RecursionError("too deep")
        return []

    monkeypatch.setattr(load_records, "parse_events", broken)
    got = recorded(call_of(events(text_chunk("a", "stop"))), "main", False, EPOCH)
    assert got["status"] == "failed"
    assert got["error"] == {
        "class": "protocol",
        "message": "the answer cannot be read: RecursionError: too deep",
    }
    assert (got["t_ns"], got["http_status"], got["last_ns"]) == ([], 200, EPOCH + 200)
