"""Load clients of others: their commands, when they measured, and what becomes of their record."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.measure.clients.base import Adapter, seed_number
from servemap.measure.clients.outcome import FOLDER, completed
from servemap.measure.clients.start import ADAPTERS, client_spec
from servemap.measure.clients.window import MONOTONIC, window
from servemap.measure.load import load_spec
from servemap.measure.setup import load_context
from servemap.model.clients import OWN_OPTIONS
from servemap.model.errors import ParseError
from servemap.model.resolve import resolved_case
from servemap.onnode.run_client import read_job
from servemap.parsers.clients.records import ClientCall, ClientRun
from tests.fake_client import result
from tests.fakes import campaign

WALL_NS, MONO_NS = 1_800_000_000_000_000_000, 7_000_000_000
EPOCH_NS = WALL_NS - MONO_NS
S = 1_000_000_000


def ask(name: str, engine: str = "llamacpp", **client: Any) -> dict[str, Any]:
    """The load's specification of a case with that client."""
    clients = {name: {"python": "env/bin/python", "tokenizer": "/t", **client}}
    case = {"id": "c", "isl": 64, "osl": 8, "concurrency": 2, "num_prompts": 6, "client": name}
    context = load_context(campaign(cases=[case], clients=clients))
    resolved = resolved_case(context.plan.campaign, context.plan.cases["c"])
    load = load_spec(
        resolved,
        url="http://h:1",
        endpoint="/v1/completions",
        model={"name": "m", "vocab": (3, 9)},
        request={"ignore_eos": True, "temperature": 0.5},
        seed="run/c/1",
        load_id="x",
    )
    given_ = client_spec(
        resolved, load, engine=engine, model_path="model", folder="/out/client", workdir="/w"
    )
    return {**load, "client": given_}


def options(argv: list[str]) -> dict[str, str]:
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return {
        word: "" if after.startswith("--") else after for word, after in pairs if word[:2] == "--"
    }


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_command_says_all_of_the_case(name: str, tmp_path: Path) -> None:
    spec = ask(name, args=["--zzz", "1"], env={"PYTHONUNBUFFERED": "2", "A": "b"})
    argv = spec["client"]["argv"]
    assert argv[0] == "/w/env/bin/python"
    assert argv[-2:] == ["--zzz", "1"]
    said = options(argv)
    for value in ("64", "8", "2", "6", "http://h:1", "m", "/t", str(seed_number("run/c/1"))):
        assert value in said.values(), value
    bodies = [v for v in said.values() if v.startswith("{")]
    assert json.loads(bodies[0]) == {"ignore_eos": True, "temperature": 0.5}
    assert "/out/client" in " ".join(argv)
    assert spec["client"]["env"]["no_proxy"] == "h", "it goes straight to its target"
    assert spec["client"]["env"].items() >= {"PYTHONUNBUFFERED": "2", "A": "b"}.items()
    path = tmp_path / "load.json"
    path.write_text(json.dumps(spec))
    assert read_job(str(path), str(tmp_path)), "the node takes it"


@pytest.mark.parametrize("name", ADAPTERS)
def test_args_of_the_campaign_cannot_change_what_the_case_says(name: str) -> None:
    given_ = options(ask(name)["client"]["argv"]).keys()
    assert given_ <= OWN_OPTIONS[name], "every option that is given is refused in `args`"


def test_the_tokenizer_is_the_model_where_none_is_named() -> None:
    said = options(ask("vllm-bench", tokenizer=None)["client"]["argv"])
    assert said["--tokenizer"] == "/w/model"


def test_an_interpreter_is_found_by_its_path_or_on_the_nodes_path() -> None:
    assert ask("aiperf", python="python3.11")["client"]["argv"][0] == "python3.11"
    assert ask("aiperf", python="python3.11")["client"]["probe"][0] == "python3.11"
    assert ask("aiperf", python="./python3.11")["client"]["argv"][0] == "/w/./python3.11"


@pytest.mark.parametrize(("engine", "backend"), [("sglang", "sglang-oai"), ("vllm", "vllm")])
def test_sglangs_client_knows_its_own_server(engine: str, backend: str) -> None:
    said = options(ask("sglang-bench", engine)["client"]["argv"])
    assert said["--backend"] == backend
    assert said["--warmup-requests"] == "0"


@given(st.text(), st.text())
def test_seeds_are_numbers_that_every_client_takes(one: str, other: str) -> None:
    assert 0 <= seed_number(one) < 2**31
    assert (one == other) or seed_number(one) != seed_number(other)


def record(**changes: Any) -> dict[str, Any]:
    """client.json of a client that began its window at mono 9 s and ended it at 12 s."""
    said = {
        "status": "ok",
        "reasons": [],
        "clock": {"wall_ns": WALL_NS, "mono_ns": MONO_NS, "step_ns": 0},
        "client": {"name": "vllm-bench", "perf_counter": MONOTONIC},
        "marks": {"begin": {"t_ns": EPOCH_NS + 9 * S}, "end": {"t_ns": EPOCH_NS + 12 * S}},
    }
    return {**said, **changes}


def calls(*spans: tuple[float, float]) -> list[ClientCall]:
    return [
        ClientCall(str(n), True, start_s=start, latency_s=end - start)
        for n, (start, end) in enumerate(spans)
    ]


NO_PAUSE = Adapter("p", lambda order: [], {})
PAUSE = Adapter("p", lambda order: [], {}, pause_s=1.0)


def test_stamps_place_the_window_to_what_they_leave_open() -> None:
    run = ClientRun(calls((9.5, 10.0), (9.6, 11.4)), {}, 2.0, queue_s=0.01)
    found = window(run, record(), NO_PAUSE)
    assert found.source == "the client's stamps"
    assert found.start_ns == pytest.approx(EPOCH_NS + 9.49 * S, abs=1000)
    assert found.end_ns - found.start_ns == 2 * S
    assert found.error_ns == pytest.approx(0.09 * S, abs=10)


@given(st.floats(9.0, 9.9), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0.1, 1.5))
def test_the_true_window_is_within_the_error(
    begun: float, before: float, after: float, busy: float
) -> None:
    """Whatever the client did before its first and after its last request."""
    run = ClientRun(calls((begun + before, begun + before + busy)), {}, before + busy + after)
    found = window(run, record(), NO_PAUSE)
    assert found.source == "the client's stamps"
    true_ns = EPOCH_NS + round(begun * S)
    assert found.start_ns - found.error_ns - 100 <= true_ns <= found.start_ns + 100


@pytest.mark.parametrize(
    "changes",
    [
        {"client": {"name": "vllm-bench", "perf_counter": "mach_absolute_time()"}},
        {"clock": {}},
        {"marks": {"begin": {"t_ns": EPOCH_NS + 1}, "end": {"t_ns": EPOCH_NS + 5 * S}}},
    ],
    ids=["another clock", "no clock", "lines that contradict it"],
)
def test_stamps_that_cannot_be_believed_give_way_to_lines(changes: dict[str, Any]) -> None:
    run = ClientRun(calls((9.5, 10.5)), {}, 1.0)
    assert window(run, record(**changes), NO_PAUSE).source == "the client's lines"


def test_stamps_that_span_more_than_the_duration_are_not_believed() -> None:
    run = ClientRun(calls((9.5, 11.0)), {}, 1.0)
    assert window(run, record(), NO_PAUSE).source == "the client's lines"


def test_lines_place_the_window_after_the_clients_pause() -> None:
    found = window(ClientRun([], {}, 1.8), record(), PAUSE)
    assert found == (
        EPOCH_NS + 10 * S, EPOCH_NS + 11.8 * S, "the client's lines", pytest.approx(0.2 * S),
    )  # fmt: skip


def test_a_late_line_never_puts_the_end_behind_the_last_line() -> None:
    found = window(ClientRun([], {}, 2.5), record(), PAUSE)
    assert (found.end_ns, found.error_ns) == (EPOCH_NS + 12 * S, 0.5 * S)


@pytest.mark.parametrize("name", ["begin", "end"])
def test_without_its_lines_a_window_is_not_guessed(name: str) -> None:
    marks = {key: value for key, value in record()["marks"].items() if key != name}
    with pytest.raises(ParseError, match=f"marks the {name}"):
        window(ClientRun([], {}, 1.0), record(marks=marks), NO_PAUSE)


def test_phases_are_taken_as_they_are_with_what_the_clock_was_set_by() -> None:
    run = ClientRun([], {}, 1.0, rounding_s=2e-6, window_ns=(5, 9))
    assert window(run, record(), NO_PAUSE) == (5, 9, "the client's phases", 2000)
    clock = {**record()["clock"], "step_ns": -300}
    assert window(run, record(clock=clock), NO_PAUSE).error_ns == 2300


@pytest.mark.parametrize(
    ("run", "changes"),
    [
        (ClientRun([], {}, 1.0, window_ns=(EPOCH_NS, EPOCH_NS + S)), {}),
        (ClientRun([], {}, 1.0, window_ns=(EPOCH_NS + 9 * S, EPOCH_NS + 99 * S)), {}),
        (ClientRun([], {}, 1e8), {}),
        (ClientRun(calls((1.0, 1.5)), {}, 1.0), {"marks": {}}),
    ],
    ids=["phases before", "phases after", "a long duration", "stamps without lines"],
)
def test_a_window_outside_of_the_clients_life_is_not_believed(
    run: ClientRun, changes: dict[str, Any]
) -> None:
    life = {"started_ns": EPOCH_NS + 8 * S, "ended_ns": EPOCH_NS + 13 * S}
    with pytest.raises(ParseError, match="the time in which it ran"):
        window(run, record(**life, **changes), NO_PAUSE)


def test_phases_may_lie_outside_by_what_the_clock_was_set() -> None:
    life = {"started_ns": EPOCH_NS + 8 * S, "ended_ns": EPOCH_NS + 13 * S}
    run = ClientRun([], {}, 1.0, window_ns=(EPOCH_NS + 69 * S, EPOCH_NS + 71 * S))
    clock = {**record()["clock"], "step_ns": 60 * S}
    assert window(run, record(**life, clock=clock), NO_PAUSE).error_ns == 60 * S


@pytest.mark.parametrize("duration", [None, 0.0])
def test_a_client_that_measured_for_no_time(duration: float | None) -> None:
    with pytest.raises(ParseError, match="how long it measured"):
        window(ClientRun([], {}, duration), record(), NO_PAUSE)


def left(raw: Path, content: str) -> Path:
    (raw / FOLDER).mkdir(parents=True, exist_ok=True)
    (raw / FOLDER / "result.json").write_text(content)
    return raw


def test_a_record_is_completed_from_the_clients_own_files(tmp_path: Path) -> None:
    raw = left(tmp_path, json.dumps(result(5, 4, 3, 9.5, 1.0, failed=2)))
    said = completed(record(), raw, planned=6)
    assert said["status"] == "ok"
    assert said["counts"] == {
        "planned": 6, "sent": 5, "ok": 3, "failed": 2, "timed_out": None, "retried": None,
    }  # fmt: skip
    (segment,) = said["segments"]
    assert segment["end_ns"] - segment["start_ns"] == S
    assert said["errors"] == {"OSError: no way": 2}


@pytest.mark.parametrize(
    ("content", "words"),
    [('{"duration": 1', "not whole JSON"), ("", "empty"), ("{}", "no single requests")],
)
def test_files_that_cannot_be_read_are_the_reason(tmp_path: Path, content: str, words: str) -> None:
    said = completed(record(), left(tmp_path, content), planned=6)
    assert said["status"] == "failed"
    assert said["reasons"][0].startswith("vllm-bench: ")
    assert words in said["reasons"][0]
    assert said.get("counts") is None


def test_a_client_that_failed_stays_as_it_is(tmp_path: Path) -> None:
    failed = record(status="failed", reasons=["why"])
    assert completed(failed, tmp_path, planned=6) == failed
