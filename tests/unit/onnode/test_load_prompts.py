import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode.checked import SpecError
from servemap.onnode.load_prompts import Prompts, parse_target, request_bytes

IDS = [str(number) for number in range(300, 4000)]


@given(
    size=st.integers(2, 30),
    count=st.integers(1, 80),
    isl=st.integers(1, 20),
    seed=st.text(max_size=5),
)
def test_prompts_part_at_the_first_token_as_long_as_the_vocabulary_lasts(size, count, isl, seed):
    prompts = Prompts(seed, [str(n) for n in range(300, 300 + size)])
    made = [prompts.tokens(number, isl) for number in range(count)]
    assert all(len(tokens) == isl for tokens in made)
    assert {int(token) for tokens in made for token in tokens} <= set(range(300, 300 + size))
    assert len({tokens[0] for tokens in made}) == min(count, size)
    if isl > 1 and count <= size**2:
        assert len({tuple(tokens[:2]) for tokens in made}) == count


def test_prompts_depend_on_seed_and_ordinal_only():
    one, other = Prompts("a", IDS), Prompts("b", IDS)
    assert one.tokens(5, 40) == Prompts("a", IDS).tokens(5, 40)
    assert one.tokens(5, 40) != other.tokens(5, 40)
    assert one.tokens(5, 40)[2:] != one.tokens(6, 40)[2:]


@pytest.mark.parametrize(
    ("url", "endpoint", "host", "port", "path", "authority"),
    [
        ("http://127.0.0.1:8080", "/v1/completions", "127.0.0.1", 8080, "/v1/completions", None),
        ("http://h/v1/", "/v1/completions", "h", 80, "/v1/completions", "h:80"),
        ("http://h:1/a/b", "/v1/completions", "h", 1, "/a/b/v1/completions", "h:1"),
        ("http://[::1]:9", "/x", "::1", 9, "/x", "[::1]:9"),
    ],
)
def test_targets(url, endpoint, host, port, path, authority):
    target = parse_target(url, endpoint)
    assert target == (host, port, path, authority or f"{host}:{port}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("https://h", "TLS"),
        ("ftp://h", "http://HOST:PORT"),
        ("h:80", "http://HOST:PORT"),
        ("http://user:pw@h", "credentials"),
        ("http://h:99999", "range"),
        ("http://h/?q=1", "query"),
        ("http://h/a b", "characters"),
        ("http://[::1", "HOST:PORT"),
        ("http://hé/", "characters"),
    ],
)
def test_bad_urls_are_refused_without_their_secrets(url, says):
    with pytest.raises(SpecError, match=says) as caught:
        parse_target(url, "/v1/completions")
    assert "pw" not in str(caught.value)


def test_request_bytes():
    target = parse_target("http://h:1", "/v1/completions")
    extra = {"ignore_eos": True, "stream_options": {"continuous_usage_stats": True}}
    raw = request_bytes(target, '"prompt":[7,8]', 4, "müd", extra, "tag-1", "secret")
    head, body = raw.split(b"\r\n\r\n", 1)
    lines = head.decode("ascii").split("\r\n")
    assert lines[0] == "POST /v1/completions HTTP/1.1"
    assert f"Content-Length: {len(body)}" in lines
    assert "Authorization: Bearer secret" in lines
    assert json.loads(body) == {
        "model": "müd",
        "prompt": [7, 8],
        "max_tokens": 4,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
    }
    assert b"Authorization" not in request_bytes(target, '"prompt":[7]', 1, "m", {}, "t", None)
