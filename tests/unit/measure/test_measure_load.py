"""From a resolved case to the load client's spec: nothing is lost and nothing invented."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.measure.load import fallback_case, fallback_reason, load_spec, warmup_note
from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.resolve import resolved_case
from servemap.onnode.load_spec import parse_spec
from tests.fakes import campaign

COUNT = st.integers(1, 500)
WARMUP = st.sampled_from(["same", "short", "none"])


def spec_of(case: dict[str, Any], engine: str = "llamacpp") -> dict[str, Any]:
    server = {"engine": engine}
    context = load_context(campaign(server=server, cases=[{"id": "c", **case}]))
    resolved = resolved_case(context.plan.campaign, context.plan.cases["c"])
    spec = load_spec(
        resolved,
        url="http://h:1",
        endpoint="/v1/completions",
        model={"name": "m", "vocab": (3, 9)},
        request={"ignore_eos": True},
        seed="s",
        load_id="x",
        flush_path="/reset_prefix_cache",
    )
    assert parse_spec(spec).load_id == "x"
    return spec


@given(COUNT, COUNT, COUNT, st.none() | COUNT, WARMUP, st.floats(0, 100))
def test_fixed_cases(
    isl: int, osl: int, concurrency: int, prompts: int | None, warmup: str, window: float
) -> None:
    spec = spec_of({
        "isl": isl, "osl": osl, "concurrency": concurrency, "num_prompts": prompts,
        "warmup": warmup, "min_window_s": window,
    })  # fmt: skip
    (segment,) = spec["segments"]
    assert segment["name"] == "main"
    assert segment["streams"] == [{
        "name": "main", "kind": "closed", "isl": isl, "osl": osl, "concurrency": concurrency,
        "num_prompts": prompts or concurrency,
    }]  # fmt: skip
    assert spec["min_window_s"] == window
    assert spec["vocab"] == [3, 9]
    if warmup == "none":
        assert spec["warmup"] is None
    elif warmup == "same":
        assert spec["warmup"] == {
            "isl": isl, "osl": osl, "concurrency": concurrency, "num_prompts": concurrency,
        }  # fmt: skip
    else:
        assert spec["warmup"] == {
            "isl": min(isl, 64), "osl": min(osl, 64), "concurrency": 1, "num_prompts": 1,
        }  # fmt: skip


@given(COUNT, COUNT, st.floats(0, 10), st.integers(1, 4), st.none() | st.floats(0.1, 5))
def test_mixed_cases(
    isl: int, long: int, after_s: float, count: int, every_s: float | None
) -> None:
    spec = spec_of({
        "kind": "mixed",
        "background": {"isl": isl, "osl": 3, "concurrency": 2, "min_window_s": 7},
        "inject": {"isl": long, "osl": 1, "after_s": after_s, "count": count, "every_s": every_s},
    })  # fmt: skip
    control, injected = spec["segments"]
    assert (control["name"], injected["name"]) == ("control", "injected")
    assert control["streams"] == injected["streams"][:1], "the same background in both"
    stream = injected["streams"][1]
    assert (stream["kind"], stream["isl"], stream["osl"]) == ("at", long, 1)
    assert stream["at_s"] == [after_s + i * (every_s or 0) for i in range(count)]
    assert spec["min_window_s"] == 7


def test_fallback_keeps_what_it_does_not_name() -> None:
    case = {"isl": 64, "osl": 8, "concurrency": 2, "fallback": {"isl": 32, "osl": None, "on": []}}
    assert fallback_case(case) == {"isl": 32, "osl": 8, "concurrency": 2, "fallback": None}
    assert fallback_case({**case, "fallback": None}) is None
    assert fallback_case({"kind": "mixed"}) is None


@pytest.mark.parametrize(
    ("on", "classes", "reason"),
    [
        (["context", "oom"], {"oom": 1, "context": 2}, "context"),
        (["oom"], {"context": 2}, None),
        (["oom"], {}, None),
    ],
)
def test_when_fallback_lengths_are_due(
    on: list[str], classes: dict[str, int], reason: str | None
) -> None:
    assert fallback_reason({"fallback": {"on": on}}, classes) == reason
    assert fallback_reason({"kind": "mixed"}, classes) is None


@given(COUNT, COUNT, COUNT, st.floats(0.1, 1e4), st.none() | st.floats(0.1, 9), WARMUP)
def test_rate_cases(
    isl: int, osl: int, prompts: int, rate: float, burstiness: float | None, warmup: str
) -> None:
    arrivals = "poisson" if burstiness is None else "gamma"
    spec = spec_of({
        "kind": "rate", "isl": isl, "osl": osl, "num_prompts": prompts, "rate_rps": rate,
        "arrivals": arrivals, "burstiness": burstiness, "warmup": warmup, "case_timeout_s": 6000,
    })  # fmt: skip
    (segment,) = spec["segments"]
    assert segment["streams"] == [{
        "name": "main", "kind": "rate", "isl": isl, "osl": osl, "num_prompts": prompts,
        "rate_rps": rate, "arrivals": arrivals, "burstiness": burstiness,
    }]  # fmt: skip
    assert spec["min_window_s"] == 0
    if warmup == "same":
        assert spec["warmup"] == {"isl": isl, "osl": osl, "concurrency": 1, "num_prompts": 1}


@pytest.mark.parametrize("more", [{"arrivals": "gamma"}, {"burstiness": 2.0}])
def test_a_burstiness_is_one_of_gamma_arrivals(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="burstiness goes with arrivals: gamma"):
        spec_of({"kind": "rate", "isl": 1, "osl": 1, "num_prompts": 1, "rate_rps": 1, **more})


@given(st.integers(2, 500), COUNT, COUNT, st.floats(0, 0.95), st.sampled_from(["same", "short"]))
def test_prefix_cases(isl: int, osl: int, concurrency: int, share: float, warmup: str) -> None:
    spec = spec_of({
        "kind": "prefix", "isl": isl, "osl": osl, "concurrency": concurrency, "share": share,
        "warmup": warmup,
    })  # fmt: skip
    ((stream,),) = (segment["streams"] for segment in spec["segments"])
    assert stream["prefix_tokens"] == min(round(share * isl), isl - 1)
    assert spec["warmup"]["prefix_tokens"] == stream["prefix_tokens"]
    assert spec["warmup"]["isl"] == isl
    assert spec["warmup"]["num_prompts"] == (concurrency if warmup == "same" else 1)
    assert (stream["kind"], stream["num_prompts"]) == ("closed", concurrency)


def test_a_prefix_case_is_always_warmed_up() -> None:
    case = {"kind": "prefix", "isl": 9, "osl": 1, "concurrency": 1, "share": 0.5}
    with pytest.raises(ConfigError, match="warmup: must be 'same' or 'short'"):
        spec_of({**case, "warmup": "none"})


@pytest.mark.parametrize("kind", ["chat", "tools"])
def test_chat_cases(kind: str) -> None:
    case = {"kind": kind, "isl": 900, "osl": 4, "concurrency": 3, "roles": ["user", "system"]}
    spec = spec_of(case)
    assert spec["endpoint"] == "/v1/chat/completions"
    tools = 29 if kind == "tools" else 0
    assert spec["chat"] == {"roles": ["user", "system"], "system_words": 32, "tools": tools}
    (stream,) = spec["segments"][0]["streams"]
    assert (stream["kind"], stream["isl"], stream["num_prompts"]) == ("closed", 900, 3)
    with pytest.raises(ConfigError, match="a user must be among the roles"):
        spec_of({**case, "roles": ["system"]})


@pytest.mark.parametrize("concurrency", [None, 2])
@given(st.lists(st.tuples(COUNT, COUNT), min_size=1, max_size=5), WARMUP)
def test_replays(concurrency: int | None, lengths: list[tuple[int, int]], warmup: str) -> None:
    stream = {
        "name": "main", "kind": "replay", "block_tokens": 16,
        "trace": {"name": "t", "form": "servemap", "sha256": "0", "left_out": 0},
        "requests": [{"isl": isl, "osl": osl, "at_s": 0.0} for isl, osl in lengths],
        **({} if concurrency is None else {"concurrency": concurrency}),
    }  # fmt: skip
    case = {
        "kind": "replay", "warmup": warmup, "concurrency": concurrency, "isl_cap": None,
        "request_timeout_s": 9, "case_timeout_s": 99,
    }  # fmt: skip
    spec = load_spec(
        case, url="http://h:1", endpoint="/v1/completions", model={"name": "m", "vocab": (3, 9)},
        request={}, seed="s", load_id="x", replay=stream,
    )  # fmt: skip
    assert parse_spec(spec).segments[0].streams[0].num_prompts == len(lengths)
    assert spec["segments"] == [{"name": "main", "streams": [stream]}]
    middle = (len(lengths) - 1) // 2
    isl, osl = (sorted(row[place] for row in lengths)[middle] for place in (0, 1))
    assert spec["warmup"] == {
        "none": None,
        "same": {
            "isl": isl, "osl": osl, "concurrency": concurrency or 1,
            "num_prompts": concurrency or 1,
        },
        "short": {"isl": min(isl, 64), "osl": min(osl, 64), "concurrency": 1, "num_prompts": 1},
    }[warmup]  # fmt: skip


KINDS: list[dict[str, Any]] = [
    {"isl": 9, "osl": 1, "concurrency": 2},
    {"kind": "rate", "isl": 9, "osl": 1, "num_prompts": 2, "rate_rps": 1},
    {"kind": "prefix", "isl": 9, "osl": 1, "concurrency": 1, "share": 0.5},
    {"kind": "chat", "isl": 9, "osl": 1, "concurrency": 1},
    {
        "kind": "mixed",
        "background": {"isl": 9, "osl": 3, "concurrency": 2},
        "inject": {"isl": 9, "osl": 1, "after_s": 1},
    },
]


@pytest.mark.parametrize("case", KINDS)
def test_the_cache_is_emptied_where_a_case_asks(case: dict[str, Any]) -> None:
    """What keeps it is specified as before the key was there, so nothing is measured again."""
    assert "flush" not in spec_of(case)
    assert spec_of({**case, "cache": "keep"}) == spec_of(case)
    context = load_context(campaign(cases=[{"id": "c", **case}]))
    assert "cache" not in resolved_case(context.plan.campaign, context.plan.cases["c"])
    flushed = {"path": "/reset_prefix_cache", "method": "POST"}
    assert spec_of({**case, "cache": "flush"}, engine="vllm") == {**spec_of(case), "flush": flushed}


@pytest.mark.parametrize(
    ("case", "sends"),
    [
        ({"warmup": "same"}, "16 prompts of 32768 tokens"),
        ({"warmup": "same", "concurrency": 1}, "a prompt of 32768 tokens"),
        ({"warmup": "same", "isl": "16K"}, "16 prompts of 16384 tokens"),
        ({"warmup": "same", "isl": 16_383}, None),
        ({"warmup": "short"}, None),
        ({"warmup": "none"}, None),
        ({"warmup": "same", "kind": "prefix", "share": 0.5}, "16 prompts of 32768 tokens"),
        # It has no cheaper warm-up that brings the prefix in.
        ({"warmup": "short", "kind": "prefix", "share": 0.5}, None),
    ],
)
def test_a_warmup_of_long_prefills_is_said_when_it_is_planned(
    case: dict[str, Any], sends: str | None
) -> None:
    whole = {"id": "c", "isl": "32K", "osl": 1, "concurrency": 16, **case}
    model = {"name": "m", "path": "m.gguf", "context": 65536}
    context = load_context(campaign(cases=[whole], model=model))
    note = warmup_note("c", resolved_case(context.plan.campaign, context.plan.cases["c"]))
    assert (note is None) == (sends is None)
    assert note is None or note.startswith(f"case c: its warm-up (same) sends {sends} before")
