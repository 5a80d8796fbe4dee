"""What makes an attempt worth another try: a saturated client, and others on busy cores."""

import json
from pathlib import Path
from typing import Any

import pytest
from runbuilder import build_repeat, proc_line, request

from servemap.analysis.disturbed import disturbances
from servemap.model.load import parse_campaign
from tests.fakes import campaign


def judge(folder: Path, limits: dict[str, float] | None = None, **policy: Any) -> list[str]:
    config = campaign(limits=limits or {}, policy=policy)
    facts = json.loads((folder / "meta.json").read_text())
    return disturbances(parse_campaign(config))(folder / "attempts/001/raw", facts)


def busy(server_ticks: float) -> list[dict[str, Any]]:
    """Both cores busy all the time; the server has so many ticks of each half second."""
    lines = []
    for k in range(7):
        line = proc_line(k)
        line["cpu"] = {f"cpu{core}": [50 * k, 0, 0, 0, 0, 0, 0, 0] for core in (0, 1)}
        line["procs"][0].update(utime=server_ticks * k, stime=0)
        lines.append(line)
    return lines


def test_a_load_that_went_well(tmp_path: Path) -> None:
    assert judge(build_repeat(tmp_path / "run")) == []


@pytest.mark.parametrize(("limit", "found"), [({}, 1), ({"client_lag_ms": 500}, 0)])
def test_a_late_client_by_the_campaigns_limit(tmp_path: Path, limit: Any, found: int) -> None:
    folder = build_repeat(tmp_path / "run", client={"max_lag_ms": 400.0})
    said = judge(folder, limit)
    assert len(said) == found
    if found:
        assert said == ["the load client was saturated: client_lag_ms: 400, limit 100"]


def test_long_requests_bear_a_later_client(tmp_path: Path) -> None:
    slow = [request(k, ttft_ms=9000.0) for k in range(4)]
    folder = build_repeat(tmp_path / "run", requests=slow, client={"max_lag_ms": 400.0})
    assert judge(folder) == []


def test_a_client_without_time_left(tmp_path: Path) -> None:
    """Its start-up and warm-up took four times as long as the window of 2 s: they hide nothing."""
    folder = build_repeat(tmp_path / "run", client={"cpu_s": 1.9})
    said = judge(folder)
    assert said == ["the load client was saturated: client_cpu_share: 0.95, limit 0.9"]


@pytest.mark.parametrize(
    ("server_ticks", "policy", "limits", "found"),
    [
        # others have 70 of 100 ticks less the client's 10
        (30, {}, {}, 1),
        (30, {"retry_foreign_share": 0.8}, {}, 0),
        # the verdict's own limit is never the lower one
        (30, {}, {"foreign_cpu_share": 1}, 0),
        # enough to be invalid, not to measure it again
        (60, {}, {}, 0),
        (60, {"retry_foreign_share": 0.2}, {}, 1),
        (100, {"retry_foreign_share": 0}, {}, 0),
    ],
)
def test_others_on_busy_cores(
    tmp_path: Path, server_ticks: float, policy: Any, limits: Any, found: int
) -> None:
    folder = build_repeat(tmp_path / "run", telemetry={"proc": busy(server_ticks)})
    said = judge(folder, limits, **policy)
    assert len(said) == found
    if found:
        assert said[0].startswith("other programs used the machine: foreign_cpu head main: ")


@pytest.mark.parametrize("name", ["client.json", "load.json", "requests.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"segments": 5, "clock": [1]}'])
def test_damaged_raw_files_are_no_disturbance(tmp_path: Path, name: str, content: bytes) -> None:
    folder = build_repeat(tmp_path / "run", client={"max_lag_ms": 1.0})
    (folder / "attempts/001/raw" / name).write_bytes(content)
    assert judge(folder) == []


def test_no_damage_to_the_facts_costs_the_attempt(tmp_path: Path) -> None:
    folder = build_repeat(tmp_path / "run")
    raw = folder / "attempts/001/raw"
    (raw / "telemetry/head/proc.jsonl").write_bytes(b'{"t_ns": 1e999, "procs": 3}\n[]\n\xff')
    (raw / "requests.jsonl").unlink()
    (raw / "client.json").write_text('{"max_lag_ms": 400, "status": "ok"}')
    judged = disturbances(parse_campaign(campaign()))
    for facts in ({}, {"segments": [{"name": "main"}]}, {"segments": 5, "clock": 7}):
        assert judged(raw, facts) == []


def test_a_client_of_others_says_nothing_of_its_lag(tmp_path: Path) -> None:
    client = {"client": {"name": "vllm"}, "max_lag_ms": None, "window_cpu": None}
    assert judge(build_repeat(tmp_path / "run", client=client)) == []
    window = {"seconds": 2.0, "cpu_s": 2.4, "busiest_cpu_s": 1.9}
    client["window_cpu"] = window
    (said,) = judge(build_repeat(tmp_path / "other", client=client))
    assert said == "the load client was saturated: client_cpu_share: 0.95, limit 0.9"
