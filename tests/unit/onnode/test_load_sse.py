import json

from hypothesis import given
from hypothesis import strategies as st
from load_server import cut

from servemap.onnode.load_sse import Event, parse_events

ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), max_size=12)


@given(
    texts=st.lists(TEXT, max_size=6),
    end=ENDS,
    comment=st.booleans(),
    mark=st.booleans(),
    places=st.lists(st.integers(0, 500), max_size=30),
)
def test_any_split_gives_the_same_events(texts, end, comment, mark, places):
    body = b"\xef\xbb\xbf" if mark else b""
    for text in texts:
        if comment:
            body += b": ping" + end + end
        body += b"data: " + json.dumps(text, ensure_ascii=False).encode() + end + end
    parts = cut(body, places)
    events = parse_events(parts, list(range(len(parts))), True)
    assert [json.loads(event.data) for event in events] == texts
    assert [event.t_ns for event in events] == sorted(event.t_ns for event in events)


@given(texts=st.lists(TEXT, min_size=1, max_size=6), places=st.lists(st.integers(0, 500)))
def test_an_event_has_the_time_of_the_piece_that_completes_it(texts, places):
    blocks = [b"data: " + json.dumps(text).encode() + b"\n\n" for text in texts]
    parts = cut(b"".join(blocks), places)
    events = parse_events(parts, list(range(len(parts))), True)
    reached = [sum(map(len, parts[: number + 1])) for number in range(len(parts))]
    for number, found in enumerate(events):
        size = sum(map(len, blocks[: number + 1]))
        assert found.t_ns == next(i for i, total in enumerate(reached) if total >= size)


def test_half_a_frame_then_the_rest_and_two_more():
    parts = [b'data: {"a"', b': 1}\n\ndata: {"a": 2}\n\ndata: {"a": 3}\n\n', b"data: [DONE]\n\n"]
    events = parse_events(parts, [10, 60, 70], True)
    assert events == [
        Event(60, "", '{"a": 1}'),
        Event(60, "", '{"a": 2}'),
        Event(60, "", '{"a": 3}'),
        Event(70, "", "[DONE]"),
    ]


def test_fields_lines_and_names():
    body = b"event: error\nid: 7\ndata:one\ndata:  two\n\nerror: {}\n\nretry: 5\n\ndata\n\n"
    assert parse_events([body], [1], True) == [
        Event(1, "error", "one\n two"),
        Event(1, "error", "{}"),
        Event(1, "", ""),
    ]


def test_a_tail_without_blank_line_counts_only_when_the_response_is_complete():
    parts = [b"data: 1\n\ndata: [DONE]"]
    assert [event.data for event in parse_events(parts, [1], True)] == ["1", "[DONE]"]
    assert [event.data for event in parse_events(parts, [1], False)] == ["1"]


def test_nothing_gives_nothing():
    assert parse_events([], [], True) == []
    assert parse_events([b"\n\n: only\n\n"], [1], True) == []
