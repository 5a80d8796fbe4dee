"""The steps of a session of Nsight Systems, and every way in which one fails (simulated)."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from servemap.measure.nsight import session as steps
from servemap.measure.nsight.installed import NsysError, check
from servemap.measure.nsight.session import RankSession
from servemap.measure.nsight.window import each_session, nothing_common, take_window, window_record
from servemap.nodes.local import LocalNode
from tests.fakes import FarNode
from tests.nsys_shim import Shim

CLOCK = {"offset_ns": 0, "error_ns": 0, "at_ns": 0}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(steps, "PAUSE_S", 0.0)
    monkeypatch.setattr("servemap.measure.nsight.window.LEAD_S", 0.0)


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    return Shim(tmp_path)


def standing(
    shim: Shim, tmp_path: Path, rank: int = 0, node: LocalNode | None = None
) -> RankSession:
    shim.session(f"s-r{rank}", "Launched")
    return RankSession(
        node or LocalNode(f"n{rank}"),
        rank,
        shim.program,
        f"s-r{rank}",
        str(tmp_path / f"out{rank}"),
    )


def collected(one: RankSession) -> None:
    steps.see_launched(one)
    take_window({"n": one}, {"n": CLOCK}, 0.0)
    steps.collect(one)
    steps.export(one)


def test_from_launched_to_exported(shim: Shim, tmp_path: Path) -> None:
    one = standing(shim, tmp_path)
    collected(one)
    assert list(one.reached) == ["launched", "started", "stopped", "collected", "exported"]
    said = steps.record(one)
    assert (said["state"], said["problem"]) == ("exported", None)
    assert said["times"]["started"]["asked_ns"] <= said["times"]["started"]["began_ns"]
    assert {path.name for path in (tmp_path / "out0").iterdir()} == {
        "rank0.nsys-rep", "rank0.sqlite",
    }  # fmt: skip
    assert shim.sessions == {"s-r0": "Launched"}, "the server goes on, and nothing is collected"
    words = [call[0] for call in shim.calls if call[0] != "sessions"]
    assert words == ["start", "stop", "export"]


def test_all_nodes_begin_at_one_time_of_the_heads_clock(shim: Shim, tmp_path: Path) -> None:
    nodes = {"n0": LocalNode("n0"), "n1": FarNode("n1", tmp_path / "far")}
    sessions = {
        name: standing(shim, tmp_path, rank, node)
        for rank, (name, node) in enumerate(nodes.items())
    }
    # The second node's clock is 5 s behind: it is told an earlier time for the same moment.
    clocks = {"n0": CLOCK, "n1": {"offset_ns": -5_000_000_000, "error_ns": 30, "at_ns": 0}}
    assert each_session(sessions, steps.see_launched) == []
    take_window(sessions, clocks, 0.0)
    asked = [one.said["started"]["asked_ns"] for one in sessions.values()]
    assert asked[0] - asked[1] == 5_000_000_000
    found = window_record(sessions, clocks, "n0")
    began = {name: one.said["started"]["began_ns"] for name, one in sessions.items()}
    assert found["start_spread_ns"] == abs(began["n1"] + 5_000_000_000 - began["n0"])
    assert found["error_ns"] == 30
    assert found["start_ns"] is not None and found["end_ns"] is not None


def test_a_window_that_one_node_missed_has_no_times(shim: Shim, tmp_path: Path) -> None:
    one = standing(shim, tmp_path)
    shim.will(start="Configuring is not allowed in this state.")
    steps.see_launched(one)
    with pytest.raises(NsysError):
        take_window({"n": one}, {"n": CLOCK}, 0.0)
    found = window_record({"n": one}, {"n": CLOCK}, "n")
    assert (found["start_ns"], found["end_ns"], found["start_spread_ns"]) == (None, None, None)
    assert one.problem == {
        "state": "started",
        "what": "nsys start failed: Configuring is not allowed in this state.",
    }


@pytest.mark.parametrize(
    ("how", "state", "said"),
    [
        ({"start": "Configuring is not allowed in this state."}, "started", "not allowed in this"),
        ({"deaf": True}, "started", "the session is Launched and collects nothing"),
        ({"stop": "Failed to find session: s-r0."}, "stopped", "Failed to find session"),
        ({"ending": ".qdstrm"}, "collected", "its importer is not there"),
        ({"ending": ""}, "collected", "there is none; nsys stop said:"),
        ({"export": "Exportation error: damaged"}, "exported", "Exportation error: damaged"),
    ],
)
def test_each_failure_is_named_by_the_state_that_was_not_reached(
    shim: Shim,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, object],
    state: str,
    said: str,
) -> None:
    if how == {"ending": ""}:
        monkeypatch.setattr(steps, "SETTLE_S", 0.0)
    one = standing(shim, tmp_path)
    shim.will(**how)
    with pytest.raises(NsysError) as caught:
        collected(one)
    assert caught.value.state == state
    assert said in caught.value.what
    assert caught.value.where == "n0: session s-r0" and caught.value.remedy
    assert state not in one.reached
    assert steps.abandon(one) is None
    assert shim.sessions == {"s-r0": "Launched"}, "nothing goes on collecting"


def test_a_report_that_grows_is_waited_for(
    shim: Shim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = standing(shim, tmp_path)
    steps.see_launched(one)
    take_window({"n": one}, {"n": CLOCK}, 0.0)
    report, looks = tmp_path / "out0/rank0.nsys-rep", []

    def grow(_: float) -> None:
        looks.append(1)
        if len(looks) < 4:
            report.write_text(report.read_text() + "more")

    clock = SimpleNamespace(sleep=grow, monotonic=time.monotonic, time_ns=time.time_ns)
    monkeypatch.setattr(steps, "time", clock)
    steps.collect(one)
    assert len(looks) == 4


def test_what_a_killed_controller_left_collecting_is_thrown_away(
    shim: Shim, tmp_path: Path
) -> None:
    one = standing(shim, tmp_path)
    shim.session("s-r0", "Collection /elsewhere/rank0")
    collected(one)
    assert [call[0] for call in shim.calls if call[0] != "sessions"] == [
        *("cancel", "start", "stop", "export"),
    ]


def test_a_session_that_does_not_cancel_is_ended_with_its_server(
    shim: Shim, tmp_path: Path
) -> None:
    one = standing(shim, tmp_path)
    shim.session("s-r0", "Collection /x/rank0")
    shim.will(stuck=True)
    assert steps.abandon(one) is None
    assert shim.sessions == {}


def test_a_server_that_no_session_holds_is_named(shim: Shim, tmp_path: Path) -> None:
    one = standing(shim, tmp_path)
    one.name = "other"
    with pytest.raises(NsysError, match="its session does not stand") as caught:
        steps.see_launched(one)
    assert caught.value.state == "launched"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"version": "2021.3.1"}, "2021.3.1 is older than 2022.4"),
        ({"version": "unknown"}, "there is no Nsight Systems"),
        ({"traces": ["mpi"]}, "says of no trace that it knows it"),
    ],
)
def test_an_installation_of_no_use_is_refused_before_a_start(tmp_path, how, said) -> None:
    shim = Shim(tmp_path, **how)
    with pytest.raises(NsysError, match=said) as caught:
        check(LocalNode("n1"), [shim.program], "node n1")
    assert (caught.value.state, caught.value.where) == ("checked", "node n1")


def test_a_tool_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NsysError, match="there is no Nsight Systems") as caught:
        check(LocalNode("n1"), [str(tmp_path / "nsys")], "node n1")
    assert "install nsight-systems-cli there" in caught.value.remedy


def test_sessions_are_looked_for_where_the_server_has_its_temporary_files(
    shim: Shim, tmp_path: Path
) -> None:
    one = standing(shim, tmp_path)
    steps.look_where(one, os.getpid())
    assert one.env == {k: v for k, v in os.environ.items() if k == "TMPDIR"}


@pytest.mark.parametrize(
    ("start_ns", "end_ns", "empty"),
    [(5, 9, False), (5, 5, True), (9, 5, True), (None, 5, False), (5, None, False)],
)
def test_a_window_that_was_over_before_all_collected_is_named(start_ns, end_ns, empty) -> None:
    said = nothing_common({"start_ns": start_ns, "end_ns": end_ns})
    assert (said is not None) == empty
