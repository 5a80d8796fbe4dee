"""Chat requests: their shape, their length by the server's own count, and what comes back."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ref_process import Load, load, measure, read_load, reference_server

from servemap.onnode import bench
from servemap.onnode.checked import SpecError
from servemap.onnode.load_chat import (
    ROLES,
    WORDS,
    Chat,
    Sizing,
    chat_fields,
    measure_sizing,
    messages,
    shortest,
    sizing_words,
    tool_schemas,
    words_for,
)
from servemap.onnode.load_prompts import Prompts
from servemap.onnode.load_spec import parse_spec

CHATS = st.builds(
    Chat,
    roles=st.lists(st.sampled_from(ROLES), max_size=5).map(lambda roles: (*roles, "user")),
    system_words=st.integers(1, 50),
    tools=st.integers(0, 5),
)


def chat_load(tmp_path: Any, answer: dict[str, Any], chat: dict[str, Any], **more: Any) -> Load:
    script = {"answer": answer}
    return measure(tmp_path, script, chat=chat, endpoint="/v1/chat/completions", **more)


@settings(deadline=None)
@given(CHATS, st.integers(6, 300), st.text(max_size=4))
def test_messages_have_the_roles_in_order_and_all_words(chat, count, seed):
    words = Prompts(seed, WORDS).tokens(3, count)
    made = messages(chat, words, seed)
    assert tuple(message["role"] for message in made) == chat.roles
    own = [message["content"] for message in made if message["role"] != "system"]
    assert " ".join(own).split() == words
    assert all(own)
    system = [message["content"] for message in made if message["role"] == "system"]
    assert all(len(text.split()) == chat.system_words for text in system)
    other = messages(chat, Prompts(seed, WORDS).tokens(4, count), seed)
    assert [m["content"] for m in other if m["role"] == "system"] == system
    body = json.loads("{" + chat_fields(chat, words, seed) + "}")
    assert body["messages"] == made
    assert len(body.get("tools", [])) == chat.tools


def test_tools_are_valid_schemas_of_several_shapes():
    tools = tool_schemas(29)
    assert len({tool["function"]["name"] for tool in tools}) == 29
    assert tools == tool_schemas(40)[:29]
    kinds = set()
    for tool in tools:
        parameters = tool["function"]["parameters"]
        jsonschema.Draft202012Validator.check_schema(parameters)
        assert set(parameters["required"]) <= set(parameters["properties"])
        kinds |= {shape["type"] for shape in parameters["properties"].values()}
    assert kinds == {"string", "array", "object"}


def test_words_are_alike_and_the_sizing_prompts_hold_all_of_them():
    assert len(set(WORDS)) == len(WORDS) > 100
    assert {len(word) for word in WORDS} == {4}
    once, twice = sizing_words("s")
    assert sorted(once) == sorted(WORDS)
    assert sorted(twice) == sorted(WORDS * 2)


@given(st.integers(1, 1000), st.text(max_size=4))
def test_balanced_prompts_hold_each_word_equally_often(count, seed):
    words = Prompts(seed, WORDS, balanced=True).tokens(7, count)
    assert len(words) == count
    counts = [words[2:].count(word) for word in WORDS]
    # The first two words say which prompt it is.
    assert max(counts) - min(counts) <= 3


@given(st.floats(0.5, 8), st.integers(0, 5000), CHATS, st.integers(1, 20_000))
def test_the_words_come_as_near_to_the_length_as_words_can(per_word, overhead, chat, isl):
    counts = [round(overhead + per_word * len(WORDS) * times) for times in (1, 2)]
    sizing = measure_sizing(counts)
    if isl < shortest(sizing, chat):
        return
    words, tokens = words_for(sizing, chat, isl)
    assert words >= 1
    assert abs(tokens - isl) <= per_word / 2 + 1


@pytest.mark.parametrize("counts", [[None, 5], [5, None], [7, 7], [9, 8]])
def test_a_server_that_does_not_count_gives_no_length(counts):
    with pytest.raises(SpecError, match="the server counts"):
        measure_sizing(counts)


def test_a_length_below_what_surrounds_the_words_is_refused():
    chat = Chat(("system", "user", "assistant", "user"), 8, 29)
    with pytest.raises(SpecError, match=r"isl 100 is less than the 2903 tokens .* raise it"):
        words_for(Sizing(1.0, 2900.0), chat, 100)


@pytest.mark.parametrize(
    "chat",
    [
        {"roles": ["user"]},
        {"roles": ["user", "system"]},
        {"roles": ["system", "user", "assistant", "system", "user"], "system_words": 5},
        {"roles": ["system", "user"], "tools": 29},
    ],
)
def test_the_asked_length_is_reached_by_the_servers_count(tmp_path, chat):
    warmup = {"isl": 16, "osl": 2, "concurrency": 1, "num_prompts": 1}
    got = chat_load(tmp_path, {}, chat, isl=4000, num_prompts=6, concurrency=2, warmup=warmup)
    assert [row.status for row in got.rows] == ["ok"] * 6
    assert {row.input_tokens for row in got.rows} == {4000}
    assert got.checks()["input_tokens_vs_plan"].ok is True
    assert got.client["sizing"]["tokens_per_word"] == 1
    assert {row["path"] for row in got.log} == {"/v1/chat/completions"}
    # Two prompts are counted, one warms up, and none of them is measured.
    assert (len(got.log), got.client["counts"]["planned"]) == (9, 6)


def test_prompts_of_a_chat_share_nothing_but_what_they_must(tmp_path):
    chat = {"roles": ["system", "user"], "system_words": 64}
    answer = {"cached_tokens": "prefix"}
    got = chat_load(tmp_path, answer, chat, isl=320, num_prompts=20)
    # The template's word, the system message and the user's mark: 66 words, four whole blocks.
    assert {row.cached_tokens for row in got.rows} == {64}


def test_reasoning_and_tool_calls_are_output(tmp_path):
    for field in ("reasoning", "reasoning_content"):
        answer = {"reasoning": 3, "tools": 2, "reasoning_field": field, "role_ms": 0, "ttft_ms": 5}
        got = chat_load(tmp_path / field, answer, {"tools": 3}, isl=2000, osl=9)
        got.check_causality()
        (record,), (row,) = got.records, got.rows
        assert record["kinds"] == "rkkkccttttud"
        assert (row.status, row.output_tokens, row.reasoning_tokens) == ("ok", 9, 3)
        assert row.first_ns == record["t_ns"][1]
        assert row.first_text_ns == record["t_ns"][6]


def test_a_server_without_usage_ends_the_load_with_a_reason(tmp_path):
    got = chat_load(tmp_path, {"usage": "none"}, {})
    assert (got.code, got.client["status"]) == (1, "failed")
    assert "counts no prompt tokens" in got.client["reasons"][0]
    assert got.rows == []


def test_a_refused_sizing_says_what_the_server_said(tmp_path):
    answer = {"status": 400, "message": '"auto" tool choice requires a tool parser'}
    got = chat_load(tmp_path, answer, {"tools": 2})
    assert got.client["status"] == "failed"
    assert "requires a tool parser" in got.client["reasons"][0]


def test_an_isl_that_is_too_short_ends_the_load_with_a_reason(tmp_path):
    got = chat_load(tmp_path, {}, {"tools": 29}, isl=20)
    assert got.client["status"] == "failed"
    assert "isl 20 is less than" in got.client["reasons"][0]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"chat": {"roles": ["user"]}}, "endpoint: .* a chat endpoint takes messages"),
        ({"endpoint": "/v1/chat/completions"}, "endpoint: .* give the key chat"),
        ({"chat": {"roles": ["system"]}}, "chat.roles"),
        ({"chat": {"roles": ["user", "tool"]}}, "chat.roles"),
        ({"chat": {"roles": []}}, "chat.roles"),
        ({"chat": {"tools": -1}}, "chat.tools"),
        ({"chat": {"tools": 1001}}, "chat.tools"),
        ({"chat": {"tool": 1}}, "chat.tool: 1 .* not known"),
        ({"chat": 5}, "chat: 5"),
    ],
)
def test_bad_shapes_are_refused_by_key(more, says):
    spec = {
        "schema": 1, "url": "http://127.0.0.1:1", "model": "m", "seed": "s", "vocab": [300, 4000],
        "timeout_s": 20, "case_timeout_s": 60,
        "segments": [{"name": "main", "streams": [{
            "name": "main", "kind": "closed", "isl": 8, "osl": 2, "concurrency": 1,
            "num_prompts": 1,
        }]}],
    }  # fmt: skip
    with pytest.raises(SpecError, match=says):
        parse_spec({**spec, **more})
    given_twice = {"chat": {"tools": 2}, "request": {"tools": []}}
    with pytest.raises(SpecError, match=r"request\.tools"):
        parse_spec({**spec, "endpoint": "/v1/chat/completions", **given_twice})


def test_the_options_make_a_chat(tmp_path):
    with reference_server(tmp_path, {}) as (url, log):
        line = (
            f"--url {url} --model m --chat system,user --tools 2 --isl 500 --osl 3 --num-prompts 2"
        )
        assert bench.main([*line.split(), "--out", str(tmp_path / "out")]) == 0
    got = read_load(0, tmp_path / "out", log)
    assert [row.input_tokens for row in got.rows] == [500, 500]
    argv = ["--url", url, "--model", "m", "--tools", "2", "--out", str(tmp_path / "no")]
    assert bench.main(argv) == 2


def test_a_chat_and_an_open_loop_go_together(tmp_path):
    stream = {"name": "main", "kind": "rate", "isl": 90, "osl": 2, "rate_rps": 50, "num_prompts": 8}
    with reference_server(tmp_path, {}) as (url, log):
        code, out = load(
            tmp_path,
            url,
            log,
            chat={"roles": ["user"]},
            endpoint="/v1/chat/completions",
            segments=[{"name": "main", "streams": [stream]}],
        )
    got = read_load(code, out, log)
    assert {row.input_tokens for row in got.rows} == {90}
