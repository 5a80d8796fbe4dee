"""The trace of a replay case: identity by content, refusals with file, line and remedy."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from servemap.measure.setup import load_context
from servemap.measure.status import planned_repeats
from servemap.model.canon import file_sha256
from servemap.model.errors import ConfigError
from servemap.model.replay import _read, replayed
from servemap.prepare.planned_bytes import case_bytes
from servemap.server.context import Context
from tests.fakes import campaign

ROWS: list[dict[str, Any]] = [
    {"isl": 100, "osl": 8, "at_s": 1.0, "conversation": "a"},
    {"isl": 20, "osl": 4, "at_s": 2.0},
    {"isl": 300, "osl": 8, "at_s": 31.0, "conversation": "a"},
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(rows: list[dict[str, Any]], name: str = "trace.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def context_of(traces: bool = True, **case: Any) -> Context:
    """A campaign with one replay, read as another process would."""
    _read.cache_clear()
    whole = {"id": "c", "kind": "replay", "trace": "trace.jsonl", **case}
    return load_context(campaign(cases=[whole]), traces=traces)


def spec_of(**case: Any) -> dict[str, Any]:
    found: dict[str, Any] = context_of(**case).plan.spec_data("case", "baseline", "c")["case"]
    return found


def test_a_trace_is_known_by_its_content() -> None:
    write(ROWS)
    first = spec_of()
    assert first["trace_sha256"] == file_sha256(Path("trace.jsonl"))
    assert "trace" not in first
    os.utime("trace.jsonl", (1, 1))
    assert spec_of() == first
    Path("elsewhere").mkdir()
    Path("trace.jsonl").rename("elsewhere/other.jsonl")
    assert spec_of(trace="elsewhere/other.jsonl") == first
    write([*ROWS, {"isl": 1, "osl": 1, "at_s": 40}])
    assert spec_of() != first
    write(ROWS)
    assert spec_of() == first
    assert spec_of(isl_cap="1K")["isl_cap"] == 1024
    for change in ({"osl_cap": 2}, {"num_prompts": 2}, {"speed": 2}, {"concurrency": 1}):
        assert spec_of(**change) != first
    assert spec_of(expected_s=5, repeats=3) == first


def test_what_is_planned_is_what_is_sent() -> None:
    write(ROWS)
    context = context_of(num_prompts=2, isl_cap=60, speed=2)
    stream = replayed(context.plan.campaign, "c")
    assert stream == {
        "name": "main",
        "kind": "replay",
        "block_tokens": 16,
        "trace": {
            "name": "trace.jsonl",
            "form": "servemap",
            "sha256": file_sha256(Path("trace.jsonl")),
            "left_out": 0,
        },
        "requests": [
            {"isl": 60, "osl": 8, "at_s": 0.0, "conversation": "a"},
            {"isl": 20, "osl": 4, "at_s": 0.5},
        ],
    }
    closed = replayed(
        context_of(concurrency=2, think="compress", think_factor=0.5).plan.campaign, "c"
    )
    assert closed is not None
    assert closed["concurrency"] == 2
    assert closed["requests"][2]["think_s"] == 15.0
    assert replayed(load_context(campaign()).plan.campaign, "c") is None


@pytest.mark.parametrize(
    ("case", "seconds"),
    [
        ({}, 30),
        ({"speed": 10}, 3),
        ({"concurrency": 1}, 30),
        ({"concurrency": 1, "think": "compress", "think_factor": 0.5}, 15),
    ],
)
def test_the_plan_knows_how_long_it_takes_at_least(case: dict[str, Any], seconds: float) -> None:
    write(ROWS)
    context = context_of(**case)
    assert {row.expected_s for row in planned_repeats(context)} == {seconds + 2}
    assert case_bytes(context.plan.cases["c"], 1024) > 3 * 800


@pytest.mark.parametrize(
    ("rows", "case", "says"),
    [
        (None, {}, ("cannot be read", "trace.jsonl", "give the path")),
        ([{"isl": 1, "osl": 1}, {"isl": 1}], {}, ("osl is null", "trace.jsonl, line 2", "whole")),
        ([], {}, ("no request", "trace.jsonl", "at least one")),
        ([{"isl": 1, "osl": 1}], {}, ("has a time", "cases.c.trace: trace.jsonl", "concurrency")),
        (ROWS, {"case_timeout_s": 20}, ("30 s at least", "cases.c.case_timeout_s", "num_prompts")),
        (
            [*ROWS, {"isl": 2000, "osl": 90, "at_s": 3}],
            {},
            ("1 of 4 requests, first number 4", "cases.c.trace: trace.jsonl", "isl_cap"),
        ),
        (ROWS, {"speed": 2, "concurrency": 1}, ("speed is for", "cases.c", "")),
        (ROWS, {"think": "none"}, ("give concurrency too", "cases.c", "")),
        (ROWS, {"concurrency": 1, "think": "compress"}, ("think_factor goes", "cases.c", "")),
        (ROWS, {"concurrency": 1, "think_factor": 0.5}, ("think_factor goes", "cases.c", "")),
    ],
)
def test_what_cannot_be_replayed_is_refused_when_planning(
    rows: list[dict[str, Any]] | None, case: dict[str, Any], says: tuple[str, str, str]
) -> None:
    if rows is not None:
        write(rows)
    with pytest.raises(ConfigError) as error:
        context_of(**case)
    what, where, remedy = says
    assert what in error.value.what
    assert where in error.value.where
    assert remedy in error.value.remedy


def test_a_pipe_is_refused_and_not_waited_for() -> None:
    os.mkfifo("trace.jsonl")
    with pytest.raises(ConfigError, match="no regular file"):
        context_of()


def test_results_are_shown_where_the_trace_is_not() -> None:
    context = context_of(traces=False)
    assert context.plan.spec_data("case", "baseline", "c")["case"]["trace_sha256"] is None
    assert planned_repeats(context)
    assert case_bytes(context.plan.cases["c"], 1024) == 0


def test_a_trace_that_is_not_here_is_named_with_its_case() -> None:
    with pytest.raises(ConfigError) as error:
        context_of(trace="none.jsonl")
    assert error.value.where == "cases.c.trace: none.jsonl"
