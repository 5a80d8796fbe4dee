"""The estimate of what a campaign writes, against what one request and sample were seen to take."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.measure.setup import load_context
from servemap.measure.status import planned_repeats
from servemap.model.cases import FixedCase, MixedCase
from servemap.prepare.planned_bytes import (
    LOG_BYTES,
    case_bytes,
    node_bytes,
    results_bytes,
    stream_bytes,
)
from tests.fakes import campaign

SECOND = {
    "nodes": [
        {"id": "n1", "address": "10.0.0.1"},
        {"id": "n2", "role": "worker", "address": "10.0.0.2"},
    ],
    "server": {"engine": "llamacpp", "nodes": ["n1", "n2"]},
    "variants": [{"id": "baseline"}],
}


def planned(**keys: Any) -> dict[str, int]:
    context = load_context(campaign(**keys))
    return node_bytes(context.plan, planned_repeats(context))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_is_above_what_was_measured() -> None:
    # 81 requests of 50 tokens took 160,426 bytes, 16 of 1 token 11,699 (embedded demo).
    assert 160_426 < stream_bytes(48, 16, 81, 0) < 2 * 160_426
    assert 11_699 < stream_bytes(1, 16, 16, 0) < 2 * 11_699


def test_cases() -> None:
    fixed = FixedCase(id="c", isl="1K", osl="1K", concurrency=4, num_prompts=8)
    assert case_bytes(fixed, 1024) == stream_bytes(1024, 4, 8, 0)
    assert case_bytes(fixed.model_copy(update={"num_prompts": None}), 10) == stream_bytes(
        10, 4, 4, 0
    )
    filled = fixed.model_copy(update={"min_window_s": 100.0})
    assert case_bytes(filled, 1024) > case_bytes(fixed, 1024)
    mixed = MixedCase.model_validate(
        {
            "id": "m",
            "kind": "mixed",
            "background": {"isl": 8, "osl": 100, "concurrency": 4},
            "inject": {"isl": 8, "osl": 2, "after_s": 1, "count": 3},
        }
    )
    assert case_bytes(mixed, 1) == 2 * stream_bytes(100, 4, 4, 0) + stream_bytes(2, 1, 3, 0)


@given(st.integers(1, 10_000), st.integers(1, 100), st.integers(1, 1000), st.floats(0, 1000))
def test_more_of_anything_is_not_less(osl: int, streams: int, prompts: int, window: float) -> None:
    base = stream_bytes(osl, streams, prompts, window)
    assert base > 0
    assert stream_bytes(osl, streams, prompts + 1, window) >= base
    assert stream_bytes(osl, streams + 1, prompts, window) >= base
    assert stream_bytes(osl, streams, prompts, window + 1) >= base


def test_nodes() -> None:
    one = planned()
    two = planned(**SECOND)
    assert set(two) == {"n1", "n2"}
    assert LOG_BYTES < two["n2"] < two["n1"], "the load and the engine's page are on the head"
    assert one["n1"] > 2 * LOG_BYTES, "two variants are started"
    attached = planned(
        server={"engine": "vllm", "attach": "http://127.0.0.1:9"}, variants=[{"id": "baseline"}]
    )
    assert attached["n1"] < LOG_BYTES, "no server of ours, no log of it"
    longer = planned(cases=[{"id": "c", "isl": 64, "osl": 8, "concurrency": 1, "expected_s": 9000}])
    assert longer["n1"] > one["n1"]
    server = {**SECOND["server"], "bind": "10.0.0.1"}
    away = planned(**{**SECOND, "server": server}, load_node="n2")
    assert away["n1"] < away["n2"], "the load may run elsewhere"


def test_collectors_that_do_not_run_take_nothing() -> None:
    none = planned(collectors={"proc": {"enabled": False}, "engine_metrics": {"enabled": False}})
    fast = planned(collectors={"proc": {"interval_s": 0.1}})
    slow = planned(collectors={"proc": {"interval_s": 1.0}})
    assert none["n1"] < slow["n1"] < fast["n1"]


def test_results_hold_all_nodes_and_what_is_derived() -> None:
    assert results_bytes({"a": 100, "b": 50}) == 240


def test_what_is_measured_already_is_not_planned() -> None:
    context = load_context(campaign())
    rows = planned_repeats(context)
    done = [replace(row, state="done") for row in rows]
    half = node_bytes(context.plan, [rows[0], *done[1:]])["n1"]
    assert node_bytes(context.plan, done) == {"n1": 0}
    assert 0 < half < node_bytes(context.plan, rows)["n1"]
