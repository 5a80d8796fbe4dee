"""A load on another node than the head, whose clock is elsewhere, drifts or is set in the case."""

import json
from pathlib import Path

import pytest
from runbuilder import MS, T0, S, build_repeat, proc_line, request, write_json

from servemap.analysis.checks.clocks import check_clocks
from servemap.analysis.derive import derive_attempt
from servemap.analysis.store import read_table
from servemap.analysis.verdict import default_limits

LIMITS = default_limits()


def on_the_worker(folder, *, offset_ns=0, drift_ms=0, step_ms=0, lines=None):
    """Make the attempt one whose load ran on a worker with its own clock; segments stay as are."""
    raw = folder / "attempts/001/raw"
    (raw / "telemetry/head").rename(raw / "telemetry/worker")
    if lines is not None:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (raw / "telemetry/worker/proc.jsonl").write_text(text)
    meta = json.loads((folder / "meta.json").read_text())
    meta["spec"]["load_node"] = "worker"
    own = {"reference": "head", "error_ns": MS, "drift_error_ns": 2 * MS}
    meta["clock"] = {
        "head": {**own, "offset_ns": 0, "drift_ns": 0, "step_ns": 0},
        "worker": {
            **own, "offset_ns": offset_ns, "drift_ns": drift_ms * MS, "step_ns": step_ms * MS,
            "set_ns": step_ms * MS,
        },
    }  # fmt: skip
    meta["collectors"] = {
        f"worker/{name.split('/')[1]}": facts for name, facts in meta["collectors"].items()
    }
    meta["files"] = {}
    write_json(folder / "meta.json", meta)
    derive_attempt(folder, {})
    return json.loads((folder / "metrics.json").read_text())


def rows(folder):
    requests = read_table(folder / "requests.parquet", 1).to_pylist()
    telemetry = read_table(folder / "telemetry.parquet", 1).to_pylist()
    return requests, telemetry


def shifted(record, by_ns):
    moved = {key: record[key] + by_ns for key in ("scheduled_ns", "sent_ns", "last_ns")}
    return {**record, **moved, "t_ns": [t + by_ns for t in record["t_ns"]]}


def test_requests_and_samples_are_put_on_the_heads_clock(tmp_path):
    ahead = 3600 * S
    plain = [request(i, sent_ms=500.0 * i) for i in range(4)]
    lines = [proc_line(k) for k in range(7)]
    folder = build_repeat(
        tmp_path / "run",
        requests=[shifted(item, ahead) for item in plain],
        telemetry={"proc": [{**line, "t_ns": line["t_ns"] + ahead} for line in lines]},
    )
    metrics = on_the_worker(folder, offset_ns=ahead)
    assert metrics["verdict"] == "valid", metrics["reasons"]
    requests, telemetry = rows(folder)
    assert [r["sent_ns"] for r in requests] == [r["sent_ns"] for r in plain]
    assert [r["first_ns"] for r in requests] == [r["t_ns"][0] for r in plain]
    assert requests[0]["ttft_s"] == pytest.approx(0.05)
    assert {r["node"] for r in telemetry} == {"worker"}
    inside = {r["t_ns"] - T0 for r in telemetry if r["inside"] and r["metric"] == "mem_used"}
    assert inside == {0, 500 * MS, 1000 * MS, 1500 * MS, 2000 * MS}


def test_injections_move_with_the_requests(tmp_path):
    ahead = 7 * S
    steady = request(0, sent_ms=0, osl=8, gap_ms=100)
    folder = build_repeat(
        tmp_path / "run",
        requests=[shifted(steady, ahead)],
        overlaps={"main": [(7000 + 200, 7000 + 300)]},
    )
    on_the_worker(folder, offset_ns=ahead)
    touched = rows(folder)[0][0]["itl_overlaps_injection"]
    assert touched == [False, True, True, False, False, False, False]


def test_a_clock_that_is_set_inside_the_case_misplaces_nothing(tmp_path):
    lines = [proc_line(k) for k in range(7)]
    for line in lines[3:]:
        line["t_ns"] += 3600 * S
    folder = build_repeat(tmp_path / "run")
    ready = {"t_ns": lines[0]["t_ns"], "mono_ns": lines[0]["mono_ns"]}
    write_json(folder / "attempts/001/raw/telemetry/head/collect.ready", ready)
    metrics = on_the_worker(folder, drift_ms=3600_000, step_ms=3600_000, lines=lines)
    assert metrics["verdict"] == "valid", metrics["reasons"]
    inside = {r["t_ns"] - T0 for r in rows(folder)[1] if r["inside"] and r["metric"] == "mem_used"}
    assert inside == {0, 500 * MS, 1000 * MS, 1500 * MS, 2000 * MS}
    (check,) = [c for c in metrics["checks"] if c["name"].startswith("clock_drift")]
    assert (check["value"], check["ok"]) == (0, True)
    assert "set by 3600000.0 ms" in check["note"]


def test_a_drift_beyond_its_limit_is_invalid(tmp_path: Path):
    metrics = on_the_worker(build_repeat(tmp_path / "run"), drift_ms=-400)
    assert metrics["verdict"] == "invalid"
    assert metrics["reasons"] == ["clock_drift_ms worker: 400, limit 250"]


def clock(**fields):
    return {"w": {"reference": "h", "drift_error_ns": 2 * MS, "step_ns": 0, **fields}}


@pytest.mark.parametrize(
    ("drift_ms", "ok", "within"),
    [(1, True, True), (-2, True, True), (200, True, False), (251, False, False)],
)
def test_the_drift_and_its_error(drift_ms, ok, within):
    (check,) = check_clocks(clock(drift_ns=drift_ms * MS), LIMITS)
    assert (check.name, check.value, check.ok) == ("clock_drift_ms w", abs(drift_ms), ok)
    assert ("within its error" in check.note) is within


def test_the_head_and_old_records_have_no_drift():
    assert check_clocks({"head": {"offset_ns": 0, "error_ns": 0}, "x": None}, LIMITS) == []
    head = {"h": {"reference": "h", "drift_ns": 0, "drift_error_ns": 0}}
    assert check_clocks(head, LIMITS) == []
    (check,) = check_clocks({"h": {**head["h"], "set_ns": 5 * S}}, LIMITS)
    assert (check.ok, check.value) == (True, 0)
    assert "was set by 5000.0 ms" in check.note, "a step of the head is told too"
