"""Faults of machines under a campaign: full disks, killed processes, stepped clocks, a rival.

One campaign on two machines meets a fault in each of its cases, and the same command mends it; each
test looks at what one fault left.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from servemap.model.attempts import intact, read_records
from tests.lab import faults
from tests.lab.lab import BENCH, SECOND, Lab
from tests.lab.project import LabProject
from tests.lab.short import (
    STATE,
    await_it,
    await_load,
    left,
    only,
    ours,
    raw_on,
    short_campaign,
    target,
    words,
)
from tests.workflow.harness import Run

pytestmark = pytest.mark.timeout(1200)

CASES = ("steady", "clock", "collector", "server", "changing", "full")
FAILING = ("collector", "server", "changing", "full")
STEP_NS = {"worker": 3_000_000_000, "head": -1_500_000_000}


@dataclass
class Storm:
    """What a campaign met and left: after its first command, and after the same again.

    `first` and `last` are the cases' records, `noticed_s` the time from a fault to that record.
    """

    project: LabProject
    rival: LabProject
    first: dict[str, dict[str, Any]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    again: Run | None = None
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    left_again: dict[str, list[str]] = field(default_factory=dict)
    noticed_s: dict[str, float] = field(default_factory=dict)

    def said(self, case: str) -> str:
        """The reasons of a case's first try."""
        return "\n".join(self.first[case]["reasons"])


def start_rival(storm: Storm) -> None:
    storm.rival.start("results/rival/freeze/head.json")


def step_clocks(storm: Storm) -> None:
    for node, ahead_ns in STEP_NS.items():
        faults.step_clock(storm.project.lab, node, ahead_ns)


def kill_collectors(storm: Storm) -> None:
    only(storm.project.lab.processes_with("worker", "collect")).kill()


def kill_rank(storm: Storm) -> None:
    only(storm.project.lab.processes_with("worker", "llamaserve", "--rank")).kill()


REWRITE = """
import os, sys, time
with open(sys.argv[1], "wb") as file:
    file.truncate(40 << 20)
    while True:
        os.pwrite(file.fileno(), os.urandom(8), 0)
        time.sleep(0.001)
"""


def keep_changing(storm: Storm) -> None:
    """Let a process of that user rewrite a large file of the case until it is killed."""
    raw = raw_on(storm.project.lab, "head", "changing")
    path = "/" + str(raw / "telemetry" / "head" / "late.jsonl").split("/root/", 1)[1]
    python = storm.project.campaign()["server"]["python"]
    script = 'setsid "$0" -c "$1" "$2" >/dev/null 2>&1 </dev/null &'
    argv = ["sh", "-c", script, python, REWRITE, path]
    storm.project.lab.exec_in("head", argv, user=BENCH, check=True)


def end_changing(storm: Storm) -> None:
    for process in ours(storm.project.lab, "head"):
        if words(process).endswith("late.jsonl"):
            process.kill()


def fill_disk(storm: Storm) -> None:
    faults.fill_disk(storm.project.lab, "head", 0)


FAULTS: dict[str, Callable[[Storm], None]] = {
    "steady": start_rival,
    "clock": step_clocks,
    "collector": kill_collectors,
    "server": kill_rank,
    "changing": keep_changing,
    "full": fill_disk,
}


@pytest.fixture(scope="module")
def node_lab(seed: Path) -> Iterator[Lab]:
    with Lab(seed) as running:
        yield running


@pytest.fixture(scope="module")
def storm(node_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storm]:
    folder = tmp_path_factory.mktemp("storm")
    storm = Storm(LabProject.on(node_lab, folder / "project"), rival_of(node_lab, folder))
    project = storm.project
    project.write_campaign(short_campaign(node_lab, *CASES))
    targets = [*map(target, CASES), target("clock", "metrics.json")]
    try:
        project.start(*targets)
        for case, strike in FAULTS.items():
            await_load(project, case)
            struck = time.monotonic()
            strike(storm)
            storm.first[case] = await_it(lambda name=case: project.meta(name), f"record of {case}")  # type: ignore[misc]
            storm.noticed_s[case] = round(time.monotonic() - struck, 1)
            end_changing(storm)
        project.wait()
        storm.left = left(node_lab)
        faults.free_disk(node_lab, "head")
        storm.again = project.snakemake(*targets)
        storm.last = {case: project.meta(case) for case in CASES}
        storm.left_again = left(node_lab)
        storm.rival.wait()
        yield storm
    finally:
        end_changing(storm)
        project.clean_up()
        storm.rival.clean_up()


def rival_of(lab: Lab, folder: Path) -> LabProject:
    """A campaign from another checkout, as another user of the same nodes."""
    rival = LabProject.on(lab, folder / "rival")
    data = {**short_campaign(lab, "theirs"), "run": "rival"}
    data["nodes"] = [{**node, "user": SECOND.name} for node in data["nodes"]]
    rival.write_campaign(data)
    return rival


def test_second_controller_is_told_who_holds_the_node_since_when(storm: Storm) -> None:
    """Another user starts a campaign from another checkout while one runs."""
    said = storm.rival.log()
    assert storm.rival.wait() == 1
    holder = r"node head is driven by pid \d+ of \w+ on \S+ since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    assert pd.Series([said]).str.contains(holder).all(), said[-2000:]
    assert f"run {storm.project.results}" in said
    assert "servemap stop lab --after-case" in said
    assert "Traceback" not in said
    assert not storm.rival.results.exists()
    # Whom it was refused for noticed nothing.
    assert storm.first["steady"]["status"] == "ok"


def test_clocks_that_step_misplace_nothing(storm: Storm) -> None:
    """The worker's clock is set 3 s ahead and the head's 1.5 s back while a case runs."""
    meta = storm.first["clock"]
    assert meta["status"] == "ok", meta["reasons"]
    clock = meta["clock"]["worker"]
    between_ns = STEP_NS["worker"] - STEP_NS["head"]
    assert abs(clock["step_ns"] - between_ns) < 1e6 + clock["drift_error_ns"]
    assert abs(clock["offset_ns"]) <= clock["error_ns"]
    assert abs(clock["drift_ns"] - between_ns) < 1e6 + clock["drift_error_ns"]
    # The next case finds the clocks apart from its start on.
    after = storm.first["collector"]["clock"]["worker"]
    assert abs(after["offset_ns"] - between_ns) < 1e6 + after["error_ns"]

    folder = storm.project.case_folder("clock")
    segment = only_segment(meta)
    requests = pd.read_parquet(folder / "requests.parquet")
    assert requests.sent_ns.between(segment["start_ns"], segment["end_ns"]).all()
    telemetry = pd.read_parquet(folder / "telemetry.parquet")
    for node in STEP_NS:
        times = telemetry[telemetry.node == node].t_ns.drop_duplicates().sort_values()
        inside = times[times.between(segment["start_ns"], segment["end_ns"])]
        # A sample each 0.5 s: one that is 1.5 s off would leave a hole and lie outside.
        assert len(inside) >= 5
        assert inside.diff().max() < 1.4e9


def only_segment(meta: dict[str, Any]) -> dict[str, Any]:
    (segment,) = meta["segments"]
    return dict(segment)


def test_collectors_killed_on_a_node_end_the_case(storm: Storm) -> None:
    """The worker's collectors are killed with -9 while a case runs."""
    assert storm.first["collector"]["status"] == "failed"
    assert "a required collector ended early: worker/proc: their process is gone" in storm.said(
        "collector"
    )
    # What the head sampled until then is kept.
    assert storm.first["collector"]["collectors"]["head/proc"]["status"] == "ok"
    assert kept(storm, "collector", "telemetry/head/proc.jsonl")


def test_rank_killed_on_the_worker_ends_the_server_and_a_new_one_serves(storm: Storm) -> None:
    """The server's process on the worker is killed with -9; the head's rank is left."""
    meta = storm.first["server"]
    assert meta["status"] == "failed"
    assert storm.said("server").startswith("the server was ended by signal 9 (node worker)")
    assert kept(storm, "server", "telemetry/worker/proc.jsonl")
    # Nobody had to do anything: the next case was served by a new one.
    assert storm.first["changing"]["server"]["boot_id"] != meta["server"]["boot_id"]
    assert storm.first["steady"]["server"]["boot_id"] == meta["server"]["boot_id"]
    boots = storm.project.results / "server" / "baseline" / "boots" / meta["server"]["boot_id"]
    assert {path.name for path in boots.glob("*.log")} == {"head.log", "worker.log"}


def test_file_that_changes_between_hash_and_fetch_is_no_result(storm: Storm) -> None:
    """A file of the case is rewritten without end while the case is fetched."""
    assert storm.first["changing"]["status"] == "failed"
    assert (
        "telemetry/head/late.jsonl on node head was still being written when it was fetched"
        in storm.said("changing")
    )


def test_disk_that_fills_in_a_case_fails_it_and_keeps_what_was_before(storm: Storm) -> None:
    """The head's disk is full, to the last byte, from the middle of a case on."""
    assert storm.first["full"]["status"] == "failed"
    assert "the disk of node head is full: " in storm.said("full")
    # The server was stopped and the nodes given back all the same.
    assert "Traceback" not in storm.project.log()
    assert "file operation failed" not in storm.project.log()


def test_nothing_is_left_on_the_nodes(storm: Storm) -> None:
    assert storm.left == {}
    assert storm.left_again == {}


def test_same_command_measures_what_failed_and_nothing_else(storm: Storm) -> None:
    assert storm.again is not None
    assert storm.again.code == 0, storm.again.text[-3000:]
    assert storm.again.cases == [f"baseline/{case}/r1" for case in FAILING]
    for case in CASES:
        last = storm.last[case]
        assert (last["status"], last["attempt"]) == ("ok", 2 if case in FAILING else 1), last
        folder = storm.project.case_folder(case)
        *before, newest = read_records(folder / "attempts", folder / "meta.json")
        assert newest.status == "ok"
        assert intact(newest)
        # Half a result never says ok, and stays as evidence.
        assert [record.status for record in before] == ["failed"] * (case in FAILING)
        assert all(map(intact, before))
        for name in ("client.json", "requests.jsonl", "telemetry/worker/collectors.json"):
            assert f"raw/{name}" in last["files"], case


def kept(storm: Storm, case: str, name: str) -> bool:
    """Whether a raw file of a case's first try is here and not empty."""
    path = storm.project.case_folder(case) / "attempts" / "001" / "raw" / name
    return path.exists() and path.stat().st_size > 0


def test_disk_without_room_for_the_agent(storm: Storm) -> None:
    """Nothing of ours was ever on the worker's disk, and there is no room for it."""
    lab, project = storm.project.lab, storm.rival
    lab.exec_in("worker", ["rm", "-rf", f"{SECOND.home}/.local"], check=True)
    faults.fill_disk(lab, "worker", 0)
    try:
        refused = project.snakemake("results/rival/freeze/worker.json")
    finally:
        faults.free_disk(lab, "worker")
    assert refused.code == 1
    assert "the disk is full" in refused.text, refused.text[-2000:]
    assert f"node worker: {SECOND.home}/{STATE}/" in refused.text
    assert "make room on that disk" in refused.text
    assert "Traceback" not in refused.text
    assert not project.results.exists()
    assert left(lab) == {}
    whole = project.snakemake("results/rival/freeze/worker.json")
    assert whole.code == 0, whole.text[-2000:]
    assert left(lab) == {}
