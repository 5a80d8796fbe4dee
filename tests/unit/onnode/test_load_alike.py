"""What is read of an event that repeats another one is what is read of it alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_server import ScriptServer, stream
from test_load_bench import closed, run, spec_of

from servemap.onnode import load_keep, load_records
from servemap.onnode.load_alike import Alike
from servemap.onnode.load_http import Response
from servemap.onnode.load_records import read_events
from servemap.onnode.load_sse import Event

TEXTS = st.one_of(
    st.sampled_from(["", " tok", "[DONE]", 'a"b', "\\", "\n", "é", "NaN", '","text":"']),
    st.text(max_size=4),
)
SHAPES = st.sampled_from(
    [
        '{"choices":[{"index":0,"text":%s,"finish_reason":null}]}',
        '{"choices":[{"index":0,"text":%s,"finish_reason":"stop"}]}',
        '{"choices":[{"index":0,"delta":{"content":%s}}]}',
        '{"choices":[{"index":0,"delta":{"role":"assistant","content":%s}}]}',
        '{"choices":[{"delta":{"content":null,"reasoning_content": %s}}]}',
        '{"choices":[{"text":%s}],"usage":{"completion_tokens":3}}',
        '{"choices":[{"text":%s}],"usage":null,"timings":{"n":1}}',
        '{"choices":[{"text":%s}],"text":""}',
        '{"text":%s,"choices":[{"text":""}]}',
        '{"error":{"message":"m","text":%s}}',
        '{"choices":[{"text":%s}',
        '{"choices":[{"text":"a","text":%s}]}',
    ]
)
EVENTS = st.lists(
    st.tuples(SHAPES, TEXTS, st.booleans(), st.sampled_from(["", "", "", "error", "message"])),
    max_size=12,
)


class Never(Alike):
    """Knows no event again."""

    def repeats(self, data: str) -> bool:
        return False


@given(drawn=EVENTS)
def test_a_stream_is_read_as_if_each_event_were_read_whole(drawn):
    events = [
        Event(number, name, shape % json.dumps(text, ensure_ascii=plain))
        for number, (shape, text, plain, name) in enumerate(drawn)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_records, "Alike", Never)
        whole = read_events(events)
    assert read_events(events) == whole


@pytest.mark.parametrize(
    ("data", "repeats"),
    [
        ('{"choices":[{"text":"b"}]}', True),
        ('{"choices":[{"text":" é, {}"}]}', True),
        ('{"choices":[{"text":""}]}', False),
        ('{"choices":[{"text":"\\""}]}', False),
        ('{"choices":[{"text":"b","text":"c"}]}', False),
        ('{"choices":[{"text":"b\x01"}]}', False),
        ('{"choices":[{"text":"b"}]} ', False),
        ('{"choices":[{"text":"', False),
    ],
)
def test_only_plain_text_may_differ(data, repeats):
    alike = Alike()
    assert not alike.repeats('{"choices":[{"text":"a"}]}')
    alike.learn('{"choices":[{"text":"a"}]}', "t")
    assert alike.repeats(data) is repeats


@given(
    body=st.lists(st.binary(min_size=1, max_size=9), max_size=9), start=st.integers(0, 2**62 - 9)
)
def test_what_is_packed_comes_back(body, start):
    response = Response()
    response.pieces, response.times = list(body), list(range(start, start + len(body)))
    response.pack()
    assert (response.pieces, response.times) == ([], [])
    response.unpack()
    assert response.pieces == body
    assert response.times == list(range(start, start + len(body)))
    response.unpack()
    assert response.pieces == body


def test_answers_that_are_packed_in_the_window_are_recorded_the_same(tmp_path, monkeypatch):
    packed: list[int] = []
    pack = Response.pack

    def count(response: Response) -> None:
        packed.append(len(response.pieces))
        pack(response)

    def script(_number: int, body: dict[str, Any]) -> Any:
        return stream(body, gap=0.002)  # spare time between tokens, in which packing goes

    monkeypatch.setattr(Response, "pack", count)
    kept = []
    for name, held in (("all", load_keep.HELD_BYTES), ("none", -1)):
        monkeypatch.setattr(load_keep, "HELD_BYTES", held)
        (tmp_path / name).mkdir()
        with ScriptServer(script) as server:
            got = run(tmp_path / name, spec_of(server.url, closed(num_prompts=40)))
        fields = ("id", "status", "kinds", "usage", "finish_reason")
        kept.append(sorted([record[field] for field in fields] for record in got.measured))
        assert bool(packed) is (name == "none")
    assert kept[0] == kept[1] != []
