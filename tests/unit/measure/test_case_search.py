"""A search against the reference server, whose answers slow down with load: what is recorded."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.derive import derive_attempt
from servemap.analysis.probes import judge_with
from servemap.analysis.summary import summarize
from servemap.analysis.table import result_table
from servemap.measure import case as measuring
from servemap.measure import search as searching
from servemap.measure.case import run_case
from servemap.measure.client import Look
from servemap.measure.idle import await_idle, in_flight
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.model.attempts import DISTURBED, read_records, state
from servemap.model.errors import OrphanedError
from servemap.model.search import Judge, Judgement
from servemap.report.render import render
from servemap.server.context import Context
from servemap.server.gates.ask import Reply
from servemap.server.launch.served import Served
from servemap.server.patience import Patience
from tests.fakes import FarNode, campaign
from tests.reference import reference_server

JOB = Job("baseline", "s", 1, 1)
# Timing on a busy machine is not what is tested here.
LIMITS = {"client_lag_ms": 60_000.0, "client_cpu_share": 10.0, "collector_coverage": 0.01,
          "foreign_cpu_share": 1.0}  # fmt: skip
SEARCH = {
    "id": "s", "kind": "search", "isl": 16, "osl": 2, "most": 64, "num_prompts": 4,
    "warmup": "none", "slo": {"ttft_s": 1.2}, "slo_share": 1.0, "tolerance": 0.0,
}  # fmt: skip
QUICK = {"model": "tiny", "answer": {"ttft_ms": 1}}


def slow(first: int, until: int, ttft_ms: int = 1800) -> dict[str, Any]:
    """A server that misses the SLO for the requests numbered [first, until), however busy it is."""
    return {**QUICK, "rules": [{"when": {"requests": [first, until]}, "ttft_ms": ttft_ms}]}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with reference_server(tmp_path / "server", QUICK) as (found, _):
        yield found


def context_of(monkeypatch: pytest.MonkeyPatch, url: str, **keys: Any) -> Context:
    """A campaign with one search, at a server that stands there already."""
    served = Served(url, "f", None, "llamacpp", "reference", {}, True)
    monkeypatch.setattr(measuring, "ensure_server", lambda *_: served)
    context = load_context(
        campaign(
            server={"engine": "llamacpp", "attach": url},
            variables=[],
            variants=[{"id": "baseline"}],
            cases=[{**SEARCH, **keys}],
            phases=[{"id": "phase1", "cases": ["s"]}],
            collectors={"proc": {"interval_s": 0.1}},
            limits=LIMITS,
        )
    )
    context.run_dir.mkdir(parents=True, exist_ok=True)
    (context.run_dir / ".session.json").write_text(json.dumps({"session": "s1"}))
    return context


def run(context: Context, judge: Judge | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure and derive; return meta.json and metrics.json."""
    folder = context.run_dir / "cases/baseline/s/r1"
    meta = run_case(context, JOB, folder / "meta.json", judge=judge or judge_with(LIMITS))
    derive_attempt(folder, {"limits": LIMITS})
    return meta, json.loads((folder / "metrics.json").read_text())


def test_the_largest_concurrency_within_the_slo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those of the levels 8 and 6, after 4 each of the levels 1, 2 and 4.
    with reference_server(tmp_path / "server", slow(12, 26)) as (url, _):
        context = context_of(monkeypatch, url)
        meta, metrics = run(context)
    assert meta["status"] == "ok", meta["reasons"]
    probed = {probe["level"]: probe["outcome"] for probe in meta["search"]["probes"]}
    assert probed == {1: "met", 2: "met", 4: "met", 8: "missed", 6: "missed", 5: "met"}
    assert meta["search"]["ended"] == "converged"
    assert [s["name"] for s in meta["segments"]] == [f"probe-{n:02d}" for n in range(1, 7)]
    assert [s["concurrency"] for s in meta["segments"]] == [1, 2, 4, 8, 6, 5]
    ends = [0, *(s["end_ns"] for s in meta["segments"])]
    assert all(s["start_ns"] > end for s, end in zip(meta["segments"], ends, strict=False))
    # Whole waves: at least 4 requests each.
    assert meta["counts"]["ok"] == 4 + 4 + 4 + 8 + 6 + 5
    assert (metrics["verdict"], metrics["reasons"]) == ("valid", [])
    found = metrics["search"]
    assert (found["ended"], found["lower_bound"], found["missed_at"]) == ("converged", False, 6)
    assert (found["within_slo"]["level"], found["within_slo"]["probe"]) == (5, "probe-06")
    assert found["most_succeeded"]["level"] == 8
    assert found["most_throughput"]["level"] in (1, 2, 4, 5)
    assert found["non_monotonic"] == []
    # Telemetry is cut to each probe, and each has checks of its own.
    assert {row["segment"] for row in metrics["coverage"]} == {s["name"] for s in meta["segments"]}
    assert all(probe["checks"] for probe in found["probes"])
    assert {s["name"] for s in metrics["segments"]} == {s["name"] for s in meta["segments"]}
    check_what_is_shown(context)


def check_what_is_shown(context: Context) -> None:
    """Summary, table and report have the answer, its probe's figures and all probes."""
    rows = context.plan.rows()
    row = summarize(context.run_dir, rows)[0]
    assert (row["verdict"], row["concurrency"], row["segment"]) == ("valid", 5, "probe-06")
    assert row["requests"] == 5
    assert "valid, concurrency 5 within SLO" in result_table(context.run_dir, rows)
    render(context.run_dir, rows)
    report = (context.run_dir / "report.md").read_text()
    section = report[report.index("## Searches") :].partition("\n## ")[0]
    for words in ("Most within SLO", "concurrency 5", "converged; missed at concurrency 6",
                  "Most throughput, of the levels probed", "SLO: T",
                  "Most without a failed request, of the levels probed",
                  "concurrency 8"):  # fmt: skip
        assert words in section
    assert section.count("probe-0") >= 6 + 3


def test_a_failed_request_misses_the_slo_and_leaves_the_probe_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"model": "tiny", "answer": {"ttft_ms": 1},
              "rules": [{"when": {"requests": [8, 1000]}, "status": 503}]}  # fmt: skip
    with reference_server(tmp_path / "server", script) as (url, _):
        meta, metrics = run(context_of(monkeypatch, url))
    assert meta["status"] == "ok", meta["reasons"]
    assert [p["outcome"] for p in meta["search"]["probes"]] == ["met", "met", "missed", "missed"]
    found = metrics["search"]
    assert (metrics["verdict"], found["within_slo"]["level"]) == ("valid", 2)
    assert found["most_succeeded"]["level"] == 2
    assert [p["failed"] for p in found["probes"]] == [0, 0, 4, 6]
    assert all(p["outcome"] != "invalid" for p in found["probes"])


def test_where_no_request_succeeds_the_search_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"model": "tiny", "answer": {"status": 503}}
    with reference_server(tmp_path / "server", script) as (url, _):
        meta, metrics = run(context_of(monkeypatch, url, start=2))
    assert meta["status"] == "failed"
    assert meta["reasons"] == ["no request succeeded in any probe"]
    assert metrics["verdict"] == "invalid"


@pytest.mark.parametrize(
    ("bounds", "misses", "ended", "answer"),
    [
        ({"most": 4}, 1000, "most", 4),
        ({"max_probes": 3}, 1000, "probes", 4),
        ({"start": 4, "max_probes": 2}, 4, "probes", 4),
    ],
)
def test_a_bound_makes_the_answer_a_lower_bound(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, Any],
    misses: int,
    ended: str,
    answer: int,
) -> None:
    with reference_server(tmp_path / "server", slow(misses, 2000)) as (url, _):
        meta, metrics = run(context_of(monkeypatch, url, **bounds))
    assert meta["search"]["ended"] == ended
    found = metrics["search"]
    assert (found["ended"], found["within_slo"]["level"]) == (ended, answer)
    assert found["lower_bound"] and "lower bound" in found["said"]


def test_time_cuts_a_probe_and_the_answer_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reference_server(tmp_path / "server", slow(4, 1000, 60_000)) as (url, _):
        meta, metrics = run(context_of(monkeypatch, url, max_s=12))
    assert meta["status"] == "ok", meta["reasons"]
    assert [p["outcome"] for p in meta["search"]["probes"]] == ["met", "cut"]
    assert [s["name"] for s in meta["segments"]] == ["probe-01"], "a cut probe is no measurement"
    found = metrics["search"]
    assert (found["ended"], found["lower_bound"]) == ("time", True)
    assert found["within_slo"]["level"] == 1


def test_a_search_over_rates(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"over": "rate", "start": 50, "most": 100, "arrivals": "constant"}
    meta, metrics = run(context_of(monkeypatch, url, **rates))
    assert [s["rate_rps"] for s in meta["segments"]] == [50, 100]
    assert metrics["search"]["ended"] == "most"
    assert metrics["search"]["most_succeeded"]["level"] == 100


def test_an_invalid_probe_is_tried_again_and_then_ends_the_search(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(raw: Path, case: dict[str, Any]) -> Judgement:
        if case["concurrency"] < 4:
            return Judgement("met", 1.0, [])
        return Judgement("invalid", None, ["client_lag_ms: 400, limit 100"])

    context = context_of(monkeypatch, url)
    meta, _ = run(context, judge)
    outcomes = [(p["level"], p["outcome"]) for p in meta["search"]["probes"]]
    assert outcomes == [(1, "met"), (2, "met"), (4, "invalid"), (4, "invalid")]
    assert (meta["status"], meta["search"]["ended"]) == ("ok", "invalid")
    # Where another try may pass, it is made: the attempt has failed as any other that is disturbed.
    seen: list[Path] = []

    def disturbed(raw: Path, facts: Mapping[str, Any]) -> list[str]:
        seen.append(raw)
        return ["the load client was saturated"]

    folder = context.run_dir / "cases/baseline/s/r1"
    meta = run_case(context, JOB, folder / "meta.json", disturbed, judge)
    assert (meta["status"], meta["cause"]) == ("failed", DISTURBED)
    assert meta["reasons"] == ["the load client was saturated"]
    assert [raw.name for raw in seen] == ["probe-04"]
    derive_attempt(folder, {"limits": LIMITS})
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["verdict"] == "invalid"
    assert metrics["search"]["within_slo"]["level"] == 4, "kept as evidence"


def test_a_server_that_stays_busy_ends_the_search(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "await_idle", lambda *args: "the server still worked on 3")
    meta, metrics = run(context_of(monkeypatch, url))
    assert meta["status"] == "failed"
    assert meta["reasons"] == ["the server still worked on 3 of probe-01"]
    assert metrics["verdict"] == "invalid"


def test_a_killed_search_starts_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(monkeypatch, url, most=2)
    folder = context.run_dir / "cases/baseline/s/r1"

    def die(raw: Path, case: dict[str, Any]) -> Judgement:
        raise OrphanedError

    with pytest.raises(OrphanedError):
        run_case(context, JOB, folder / "meta.json", judge=die)
    assert (folder / "attempts/001/open.json").exists()
    meta, metrics = run(context)
    assert (meta["attempt"], meta["status"]) == (2, "ok")
    first = json.loads((folder / "attempts/001/meta.json").read_text())
    assert (first["status"], first["cause"]) == ("failed", "interrupted")
    assert any(name.startswith("raw/probe-01/") for name in first["files"])
    assert metrics["attempt"] == 2
    records = read_records(folder / "attempts")
    assert state(records, meta["spec_sha256"], 2) == "done"


def test_what_a_changed_limit_makes_of_the_probes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(monkeypatch, url, most=2)
    run(context)
    folder = context.run_dir / "cases/baseline/s/r1"
    derive_attempt(folder, {"limits": {**LIMITS, "client_cpu_share": 0}})
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["verdict"] == "invalid"
    assert metrics["search"]["within_slo"] is None
    assert "client_cpu_share" in metrics["reasons"][0]


def test_what_ends_a_load_ends_the_search(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A died collector ends the probe that runs, a dead server is met at the end of one."""
    seen = Look(failed="the load was ended because a required collector ended early: n1/proc")
    context = context_of(monkeypatch, url)
    with monkeypatch.context() as patched:
        patched.setattr(searching, "look_at", lambda *args: seen)
        meta, _ = run(context)
    assert meta["status"] == "failed"
    assert meta["reasons"][0] == f"probe-01 (concurrency 1): {seen.failed}"
    dead = iter([[], ["the server died during the case"]])
    monkeypatch.setattr(searching, "server_reasons", lambda *args: next(dead))
    meta, metrics = run(context)
    assert (meta["status"], meta["attempt"]) == ("failed", 2)
    assert meta["reasons"] == ["probe-02 (concurrency 2): the server died during the case"]
    assert [p["outcome"] for p in meta["search"]["probes"]] == ["met", "failed"]
    assert meta["search"]["ended"] is None
    assert metrics["verdict"] == "invalid"


def test_the_probes_of_a_far_load_node_are_brought(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(monkeypatch, url, most=2)
    context.__dict__["nodes"] = {"n1": FarNode("n1", tmp_path / "far")}
    meta, metrics = run(context)
    assert meta["status"] == "ok", meta["reasons"]
    assert {"raw/probe-01/requests.jsonl", "raw/probe-02/client.json"} <= set(meta["files"])
    assert metrics["search"]["within_slo"]["level"] == 2
    assert not list((tmp_path / "far").rglob("requests.jsonl")), "the node keeps nothing"


def test_requests_that_run_or_wait() -> None:
    page = "# TYPE x gauge\nvllm:num_requests_running 2\nvllm:num_requests_waiting 3\nother 9\n"
    assert in_flight(page) == 5
    assert in_flight("other 9\n") is None


def test_idle_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    context = context_of(monkeypatch, url)
    node, patience = context.nodes["n1"], Patience(context.run_dir, 1)
    pages = iter(["vllm:num_requests_running 2\n", "vllm:num_requests_running 0\n"])

    def ask(*_: Any) -> list[Reply]:
        return [Reply("u", 200, next(pages), None)]

    monkeypatch.setattr("servemap.measure.idle.ask", ask)
    assert await_idle(node, "u", 5, patience) is None
    pages = iter(["vllm:num_requests_running 2\n"] * 9)
    assert "still worked on 2 requests" in str(await_idle(node, "u", 0, patience))
    assert await_idle(node, None, 0, patience) is None


def test_time_that_runs_out_while_the_server_gets_idle_ends_the_search(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "await_idle", lambda *_: time.sleep(8))
    meta, metrics = run(context_of(monkeypatch, url, max_s=8))
    assert meta["status"] == "ok", meta["reasons"]
    assert metrics["search"]["ended"] == "time"
