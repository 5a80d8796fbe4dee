import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode.checked import SpecError
from servemap.onnode.load_prompts import Prompts, parse_target, request_bytes
from servemap.onnode.load_spec import load_spec, parse_spec

GOOD: dict[str, Any] = {
    "schema": 1,
    "url": "http://127.0.0.1:18080",
    "endpoint": "/v1/completions",
    "model": "tiny",
    "seed": "s",
    "vocab": [300, 4000],
    "request": {"ignore_eos": True},
    "api_key_env": None,
    "timeout_s": 120,
    "case_timeout_s": 600,
    "warmup": {"isl": 64, "osl": 8, "concurrency": 1, "num_prompts": 1},
    "min_window_s": 0,
    "segments": [
        {
            "name": "main",
            "streams": [
                {
                    "name": "main",
                    "kind": "closed",
                    "isl": 64,
                    "osl": 64,
                    "concurrency": 16,
                    "num_prompts": 64,
                },
                {"name": "injected", "kind": "at", "isl": 8192, "osl": 1, "at_s": [2.5, 0]},
            ],
        }
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    spec = copy.deepcopy(GOOD)
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = spec
    for key in way:
        place = place[key]
    place[last] = value
    return spec


def test_a_good_one():
    spec = parse_spec(GOOD)
    assert spec.vocab == (300, 4000)
    assert spec.warmup is not None
    assert spec.warmup.streams[0].osl == 8
    closed, timed = spec.segments[0].streams
    assert (closed.concurrency, closed.num_prompts, closed.at_s) == (16, 64, ())
    assert (timed.concurrency, timed.num_prompts, timed.at_s) == (2, 2, (0.0, 2.5))


def test_the_parsed_one_is_left_alone():
    before = copy.deepcopy(GOOD)
    parse_spec(GOOD)
    assert before == GOOD


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        ("schema", 2, "schema"),
        ("url", "", "url"),
        ("extra", 1, "extra"),
        ("vocab", [5, 6], "vocab"),
        ("vocab", [-1, 6], "vocab"),
        ("vocab", [1, 2, 3], "vocab"),
        ("vocab", "1:9", "vocab"),
        ("endpoint", "v1", "endpoint"),
        ("endpoint", "/v1/chat/completions", "endpoint"),
        ("request", [], "request"),
        ("request", {"temperature": float("nan")}, "request"),
        ("request", {"max_tokens": 5}, "request.max_tokens"),
        ("request", {"stream_options": 1}, "request.stream_options"),
        ("timeout_s", 0, "timeout_s"),
        ("timeout_s", True, "timeout_s"),
        ("timeout_s", float("nan"), "timeout_s"),
        ("case_timeout_s", None, "case_timeout_s"),
        ("min_window_s", -1, "min_window_s"),
        ("warmup.isl", 0, "warmup.isl"),
        ("warmup.name", "x", "warmup.name"),
        ("segments", [], "segments"),
        ("segments", [GOOD["segments"][0]] * 2, "segments"),
        ("segments.0.name", "warmup", "segments[0].name"),
        ("segments.0.name", "a/b", "segments[0].name"),
        ("segments.0.streams", None, "segments[0].streams"),
        ("segments.0.streams.1.name", "main", "segments[0].streams"),
        ("segments.0.streams.0.kind", "open", "segments[0].streams[0].kind"),
        ("segments.0.streams.0.osl", 1.5, "segments[0].streams[0].osl"),
        ("segments.0.streams.0.at_s", [1], "segments[0].streams[0].at_s"),
        ("segments.0.streams.1.at_s", [], "segments[0].streams[1].at_s"),
        ("segments.0.streams.1.at_s", [-1], "segments[0].streams[1].at_s"),
        ("segments.0.streams.1.concurrency", 1, "segments[0].streams[1].concurrency"),
    ],
)
def test_the_error_names_the_key(path, value, where):
    with pytest.raises(SpecError) as caught:
        parse_spec(changed(path, value))
    assert str(caught.value).startswith(f"{where}: ")


@pytest.mark.parametrize("raw", [None, [], "x", 5])
def test_what_is_no_object_is_refused(raw):
    with pytest.raises(SpecError, match="load spec"):
        parse_spec(raw)


def test_files(tmp_path):
    path = tmp_path / "load.json"
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(str(path))
    path.write_text("{")
    with pytest.raises(SpecError, match="is not JSON"):
        load_spec(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="is not JSON"):
        load_spec(str(path))
    path.write_text(json.dumps(GOOD))
    assert load_spec(str(path)) == parse_spec(GOOD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
PATHS = [
    *GOOD,
    *(f"warmup.{key}" for key in GOOD["warmup"]),
    *(f"segments.0.{key}" for key in GOOD["segments"][0]),
    *(f"segments.0.streams.0.{key}" for key in GOOD["segments"][0]["streams"][0]),
    "segments.0.streams.1.at_s",
    "more",
]


@given(path=st.sampled_from(PATHS), value=JSON)
def test_anything_is_refused_or_can_be_sent(path, value):
    try:
        spec = parse_spec(changed(path, value))
        target = parse_target(spec.url, spec.endpoint)
    except SpecError as error:
        assert len(str(error).splitlines()) == 1
        return
    name = spec.segments[0].streams[0].name
    assert request_bytes(target, '"prompt":[1]', 1, spec.model, spec.request, name, None)
    assert Prompts(spec.seed, ["1", "2"]).tokens(0, 2)
