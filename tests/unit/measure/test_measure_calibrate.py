"""The calibration as a stage: what is asked of the load node, and what is recorded of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.measure.calibrate import run_calibration
from servemap.measure.progress import calibration_line
from servemap.model.attempts import read_records, state, token
from servemap.model.errors import ConnectionLostError
from servemap.server.context import Context
from servemap.server.stop import request_stop
from tests.fakes import FakeNode, campaign, fake_context

OUTPUT = Path("calibration.json")
OK = {"concurrency": 1, "status": "ok", "reason": None}
LATE = {"concurrency": 4, "status": "server late", "reason": "the server wrote 9 ms late"}
FAILED = {"concurrency": 9, "status": "failed", "reason": "the load with 9 streams failed: cut"}


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return FakeNode()


def answers(node: FakeNode, *rows: dict[str, Any], text: str | None = None) -> None:
    whole = {"schema": 1, "cpus": 2, "late_limit_ms": 5.0, "rows": list(rows)}

    def calibrate(argv: list[str]) -> str:
        node.asked = argv
        folder = Path(argv[argv.index("--out") + 1])
        folder.mkdir(parents=True)
        (folder / "raw.jsonl").write_text("{}\n")
        (folder / "calibration.json").write_text(json.dumps(whole) if text is None else text)
        return ""

    node.on_run["calibrate"] = calibrate


def run(context: Context, number: int = 1) -> dict[str, Any]:
    run_calibration(context, number, OUTPUT)
    return dict(json.loads(OUTPUT.read_text()))


def history(context: Context) -> tuple[str, int]:
    records = read_records(context.run_dir / "calibration", OUTPUT)
    sha256 = context.plan.spec_sha256("calibrate")
    return state(records, sha256, 2), token(records, sha256, 2)


def test_the_load_node_is_asked_for_the_cases_numbers(node: FakeNode) -> None:
    cases = [{"id": f"c{n}", "isl": 64, "osl": 8, "concurrency": n} for n in (4, 1)]
    context = fake_context(node, campaign(cases=cases, phases=[{"id": "p", "cases": ["c1"]}]))
    answers(node, OK, LATE)
    record = run(context)
    assert node.asked[:2] == ["agent", "calibrate"]
    assert node.asked[-2:] == ["--concurrency", "1,4"]
    assert (record["status"], record["node"], record["reasons"]) == ("ok", "n1", [])
    assert record["rows"] == [OK, LATE]
    assert (record["load_before"], record["cpus"]) == ("0.50 0.25 0.10", 2)
    assert (context.run_dir / "calibration/001/raw/raw.jsonl").exists()
    assert history(context) == ("done", 1)
    assert calibration_line(record) == (
        "calibration on n1: 1 of 2 points usable: 4 in flight: the server wrote 9 ms late"
    )


def test_a_point_that_failed_costs_no_other_and_is_tried_again(node: FakeNode) -> None:
    context = fake_context(node, campaign())
    answers(node, OK, FAILED)
    record = run(context)
    assert (record["status"], record["rows"]) == ("failed", [OK, FAILED])
    assert record["reasons"] == [FAILED["reason"]]
    assert history(context) == ("failed", 2)
    run(context, 2)
    assert history(context) == ("gave_up", 2)


@pytest.mark.parametrize("text", ["", "[", "no json"])
def test_an_answer_that_is_no_json_is_an_error_in_words(node: FakeNode, text: str) -> None:
    answers(node, text=text)
    record = run(fake_context(node, campaign()))
    assert record["status"] == "failed"
    assert "calibration.json is no JSON" in record["reasons"][0]


def test_no_answer_at_all(node: FakeNode) -> None:
    node.on_run["calibrate"] = lambda argv: ""
    record = run(fake_context(node, campaign()))
    assert (record["status"], record["rows"]) == ("failed", [])
    assert "calibrate exited with 0" in record["reasons"][0]


def test_a_node_that_is_away_and_an_orderly_stop_use_up_no_try(node: FakeNode) -> None:
    def away(argv: list[str]) -> str:
        raise ConnectionLostError("no route to host", "n1", "plug it in")

    node.on_run["calibrate"] = away
    context = fake_context(node, campaign())
    record = run(context)
    assert (record["status"], record["cause"]) == ("not_run", "unreachable")
    request_stop(context.run_dir, "s1", "stop", "lunch")
    record = run(context, 2)
    assert (record["status"], record["reasons"]) == ("not_run", ["lunch"])
    assert history(context) == ("not_run", 3)
