"""A controller's session: what it takes, what it refuses, what it gives back."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servemap.measure.setup import load_context
from servemap.model.canon import write_json_atomic
from servemap.model.errors import (
    ConnectionLostError,
    LockedError,
    NodeError,
    ResultsError,
    ServemapError,
)
from servemap.nodes.base import Node
from servemap.onnode import hold_file
from servemap.server.context import Context
from servemap.server.events import append_event, read_events
from servemap.server.hold import session
from servemap.server.hold.leftover import LeftServer, NotAsked
from servemap.server.hold.manifest import check_manifest, write_manifest
from servemap.server.locks import describe_self, read_holder, try_lock
from servemap.server.stop import request_stop, stop_request
from tests.fakes import FakeNode, campaign, fake_context
from tests.machines import OtherMachine
from tests.waiting import WAIT_S


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    session._ended.clear()
    yield fake_context(FakeNode(), campaign())
    session._ended.set()
    while session._run_lock:
        session._run_lock.pop().close()


def lease_file() -> Path:
    return Path(os.environ["SERVEMAP_LEASE_DIR"]) / "lease.json"


@pytest.fixture
def machines(context: Context, tmp_path: Path) -> list[OtherMachine]:
    """Two nodes in place of the one, both of them other machines than this."""
    nodes = [{"id": "n1", "role": "head"}, {"id": "n2", "role": "worker"}]
    context.__dict__["plan"] = load_context(campaign(nodes=nodes)).plan
    found = [OtherMachine(name, tmp_path / name) for name in ("n1", "n2")]
    context.__dict__["nodes"] = {node.name: node for node in found}
    return found


def holders(machines: list[OtherMachine]) -> list[object]:
    return [read_holder(node.lease_dir / "lease.json").get("pid") for node in machines]


def taken_by_another(machine: OtherMachine) -> None:
    """A living controller that this machine cannot see holds the node."""
    path = machine.lease_dir / "lease.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    theirs = {"pid": 7, "start": 7, "boot_id": "b", "pid_ns": "p", "run": "/r/theirs", "ttl_s": 120}
    path.write_text(json.dumps({**theirs, "node_boot_id": machine.boot_id}))
    hold_file.touch(str(path))


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def names(context: Context) -> list[str]:
    return [event["event"] for event in read_events(context.run_dir)]


def snakemake_log() -> list[Path]:
    path = Path("snakemake.log")
    path.write_text("rule case:\n")
    return [path]


def test_begin_and_end(context: Context) -> None:
    before = context.session
    session.begin(context)
    assert context.session not in ("", before)
    assert read_holder(lease_file())["run"] == str(context.run_dir.resolve())
    manifest = json.loads((context.run_dir / "run_manifest.json").read_text())
    assert manifest["campaign"]["run"] == "r"
    assert [item["session"] for item in manifest["sessions"]] == [context.session]
    heartbeat = Path(context.workdir(context.plan.head)) / "server" / "heartbeat"
    until(heartbeat.exists, "nobody renews the server's lease")
    session.end(context, "the campaign ended", snakemake_log())
    assert read_holder(lease_file()) == {}
    assert names(context) == ["session_begin", "session_end"]
    assert (context.run_dir / "run.log").read_text() == "rule case:\n"


def test_a_run_that_is_driven_is_refused_and_left_alone(context: Context) -> None:
    other = try_lock(context.run_dir / ".lock", describe_self(session="theirs"))
    assert other is not None
    with pytest.raises(LockedError, match="run 'r' is already driven by pid") as caught:
        session.begin(context)
    assert "`servemap stop r --after-case --reason TEXT`" in caught.value.remedy
    session.end(context, "the campaign ended with an error", snakemake_log())
    assert names(context) == []
    assert context.session == "s1"
    assert not lease_file().parent.exists()
    other.close()


def test_a_refused_controller_leaves_nothing_of_a_run_that_never_began(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(context.run_dir)

    def held(node: Node) -> None:
        raise LockedError(f"node {node.name} is driven by somebody", "lease.json", "wait")

    monkeypatch.setattr(session, "check_lease", held)
    with pytest.raises(LockedError, match="node n1 is driven by somebody"):
        session.begin(context)
    assert not Path("results/r").exists()


def test_an_attached_server_of_any_engine_may_be_measured(context: Context) -> None:
    server = {"engine": "vllm", "attach": "http://127.0.0.1:9"}
    variants = [{"id": "baseline"}]
    session.begin(
        fake_context(FakeNode(), campaign(server=server, variables=[], variants=variants))
    )
    assert names(context) == ["session_begin"]


def test_a_folder_that_cannot_be_written_is_an_error_in_words(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", "results/r/.session.json")

    monkeypatch.setattr(session, "write_json_atomic", full)
    with pytest.raises(ResultsError, match="No space left on device") as caught:
        session.begin(context)
    assert caught.value.where == "results/r/.session.json"
    assert not lease_file().exists()
    lock = try_lock(context.run_dir / ".lock", describe_self())
    assert lock is not None, "a begin that failed holds no lock"
    lock.close()


def test_the_end_says_its_errors_and_goes_on(
    context: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session.begin(context)

    def stuck(*args: object) -> bool:
        raise ServemapError("the server does not end", "n1", "end it by hand")

    monkeypatch.setattr(session, "stop_server", stuck)
    monkeypatch.setattr(session, "release_lease", lambda node, run: append_to_full_disk())
    session.end(context, "the campaign ended", snakemake_log())
    said = capsys.readouterr().err
    assert "the server does not end" in said
    assert "No space left" in said
    assert names(context)[-1] == "session_end"


def append_to_full_disk() -> None:
    raise OSError(28, "No space left on device")


def test_an_orphan_is_fenced_and_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "fence_orphan", lambda run: {"pid": 7, "job": "case a/b r1"})
    session.begin(context)
    fence = read_events(context.run_dir)[-1]
    assert (fence["event"], fence["pid"], fence["job"]) == ("fence", 7, "case a/b r1")


def test_all_nodes_are_taken_renewed_and_given_back(
    context: Context, machines: list[OtherMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEASE_RENEW_S", 0.01)
    session.begin(context)
    assert holders(machines) == [os.getpid()] * 2
    paths = [node.lease_dir / "lease.json" for node in machines]
    for path in paths:
        os.utime(path, ns=(0, 0))
    until(lambda: all(path.stat().st_mtime_ns for path in paths), "a lease is not renewed")
    heartbeats = [Path(context.workdir(name)) / "server/heartbeat" for name in ("n1", "n2")]
    until(lambda: all(path.exists() for path in heartbeats), "a server's lease is not renewed")
    session.end(context, "the campaign ended", [])
    assert holders(machines) == [None, None]
    assert [node.closed for node in machines] == [1, 1]


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("trouble", ["cut", "held"])
def test_all_nodes_or_none(
    context: Context, machines: list[OtherMachine], trouble: str, began: bool
) -> None:
    if began:
        (context.run_dir / ".lock").write_text("")
    else:
        shutil.rmtree(context.run_dir)
    if trouble == "cut":
        machines[1].cut = True
    else:
        taken_by_another(machines[1])
    error = ConnectionLostError if trouble == "cut" else LockedError
    with pytest.raises(error, match=r"node n2 (cannot be reached|is driven by pid 7)"):
        session.begin(context)
    assert holders(machines) == [None, None if trouble == "cut" else 7]
    assert context.run_dir.exists() is began
    assert not (context.run_dir / ".session.json").exists() or context.session == "s1"
    machines[1].cut = False
    shutil.rmtree(machines[1].lease_dir, ignore_errors=True)
    session.begin(context)
    assert holders(machines) == [os.getpid()] * 2, "nothing that failed is in the way"


def test_a_node_that_another_takes_at_the_last_moment_leaves_no_folder(
    context: Context, machines: list[OtherMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(context.run_dir)
    monkeypatch.setattr(session, "check_lease", lambda node: None)
    taken_by_another(machines[1])
    with pytest.raises(LockedError, match="node n2 is driven by"):
        session.begin(context)
    assert holders(machines) == [None, 7]
    assert not context.run_dir.exists()


def test_a_node_out_of_reach_holds_no_other_up_and_is_renewed_when_it_is_back(
    context: Context, machines: list[OtherMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEASE_RENEW_S", 0.01)
    context.policy.__dict__["lease_ttl_s"] = 0.2
    session.begin(context)
    machines[0].cut = True
    paths = [node.lease_dir / "lease.json" for node in machines]
    until(lambda: not is_renewed(paths[0]), "it is cut")
    until(lambda: is_renewed(paths[1]), "the other is not renewed")
    machines[0].cut = False
    until(lambda: is_renewed(paths[0]), "it is not tried again")
    assert stop_request(context.run_dir, context.session) is None


def is_renewed(path: Path) -> bool:
    """Whether a lease is renewed within half a second from now."""
    os.utime(path, ns=(0, 0))
    deadline = time.monotonic() + 0.5
    while time.monotonic() < deadline:
        if path.stat().st_mtime_ns:
            return True
        time.sleep(0.01)
    return False


def test_a_node_that_another_took_while_it_was_away_ends_the_campaign(
    context: Context, machines: list[OtherMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEASE_RENEW_S", 0.01)
    context.policy.__dict__["lease_ttl_s"] = 0.2
    session.begin(context)
    taken_by_another(machines[1])
    until(lambda: "lease_lost" in names(context), "nobody says that the lease is lost")
    request = stop_request(context.run_dir, context.session)
    assert request is not None
    assert request.cause == "abort"
    assert "node n2 is driven by pid 7" in request.reason
    session.end(context, "the campaign ended", [])
    assert holders(machines) == [None, 7], "what is theirs stays theirs"


def test_the_end_says_in_one_line_which_node_was_not_given_back(
    context: Context, machines: list[OtherMachine], capsys: pytest.CaptureFixture[str]
) -> None:
    session.begin(context)
    machines[1].cut = True
    session.end(context, "the campaign ended", [])
    assert capsys.readouterr().err == (
        "node n2: its lease was not given back: node n2 cannot be reached; what still runs there "
        "ends by itself: load and collectors within their case's time limit, a server when nobody "
        "renewed it for 60 s\n"
    )
    assert holders(machines) == [None, os.getpid()]
    assert names(context)[-1] == "session_end"


def test_a_node_whose_server_may_still_run_keeps_its_lease(
    context: Context,
    machines: list[OtherMachine],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session.begin(context)

    def left(asked: Context) -> list[LeftServer | NotAsked]:
        return [LeftServer("n1", "few", "b", 7, 1), NotAsked("n2", "not a regular file")]

    monkeypatch.setattr(session, "left_running", left)
    session.end(context, "the campaign ended", [])
    assert holders(machines) == [os.getpid()] * 2
    assert [node.closed for node in machines] == [1, 1]
    kept = {e["node"]: e["reason"] for e in read_events(context.run_dir) if "lease_k" in e["event"]}
    assert kept == {
        "n1": "the server of variant few still runs there (pid 7)",
        "n2": "not a regular file",
    }
    said = capsys.readouterr().err.splitlines()
    assert sorted(line.partition(": its lease was not given back")[0] for line in said) == [
        "node n1",
        "node n2",
    ]


def test_a_lease_outlives_a_server_that_nobody_renews(
    context: Context, machines: list[OtherMachine]
) -> None:
    context.policy.__dict__["lease_ttl_s"] = 600
    session.begin(context)
    for node in machines:
        assert read_holder(node.lease_dir / "lease.json")["ttl_s"] > 600


@pytest.mark.parametrize("step", ["stop_server", "append_event"])
def test_leases_are_given_back_whatever_a_step_raises(
    context: Context,
    machines: list[OtherMachine],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session.begin(context)

    def raises(*args: object, **facts: object) -> None:
        raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr(session, step, raises)
    session.end(context, "the campaign ended", [])
    assert holders(machines) == [None, None]
    assert "unhashable" in capsys.readouterr().err


def test_a_renewal_under_way_does_not_take_a_node_back(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    renewing, released = threading.Event(), threading.Event()

    def renew(node: Node, run: Path, ttl_s: float) -> None:
        renewing.set()
        session._ended.wait(WAIT_S)
        released.wait(0.2)
        order.append("renewed")

    def release(node: Node, run: Path) -> None:
        order.append("released")
        released.set()

    monkeypatch.setattr(session, "LEASE_RENEW_S", 0)
    monkeypatch.setattr(session, "renew_lease", renew)
    monkeypatch.setattr(session, "release_lease", release)
    session.begin(context)
    assert renewing.wait(WAIT_S)
    session.end(context, "the campaign ended", [])
    assert order == ["renewed", "released"]


def test_no_server_is_stopped_under_a_job_that_measures_it(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job outlived Snakemake, so it is ended before its server is."""
    session.begin(context)
    order: list[str] = []
    lock = [try_lock(context.run_dir / ".server.lock", describe_self(job="case"))]
    assert lock[0] is not None
    locked = session.server_lock
    monkeypatch.setattr(session, "server_lock", lambda run, job: locked(run, job, 0.1))

    def fence(run: Path) -> None:
        order.append("fence")
        assert lock[0] is not None
        lock[0].close()

    def stop(context: Context, reason: str) -> None:
        order.append("stop")
        assert read_holder(context.run_dir / ".server.lock")["job"] == "the end of the session"

    monkeypatch.setattr(session, "fence_orphan", fence)
    monkeypatch.setattr(session, "stop_server", stop)
    session.end(context, "the campaign ended", [])
    assert order == ["fence", "stop"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": {"name": "x", "path": "model.gguf", "context": 2048}}, "its model is"),
        ({"nodes": [{"id": "n1", "address": "10.0.0.1"}]}, "its nodes are"),
        ({"server": {"engine": "vllm", "attach": "http://h:1"}, "variables": [],
          "variants": [{"id": "baseline"}]}, "its engine is"),
    ],
)  # fmt: skip
def test_results_of_another_campaign_are_refused(
    context: Context, change: dict[str, object], said: str
) -> None:
    write_manifest(context.run_dir, context.plan.campaign, {})
    check_manifest(context.run_dir, context.plan.campaign)
    other = fake_context(FakeNode(), campaign(**change))
    with pytest.raises(ResultsError, match=said) as caught:
        check_manifest(other.run_dir, other.plan.campaign)
    assert "another `run` name" in caught.value.remedy


def test_more_cases_are_the_same_campaign(context: Context) -> None:
    write_manifest(context.run_dir, context.plan.campaign, {})
    cases = [{"id": "c", "isl": 65, "osl": 8, "concurrency": 1}]
    check_manifest(context.run_dir, fake_context(FakeNode(), campaign(cases=cases)).plan.campaign)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"schema": 99}', "schema 99"),
        ('{"identity": {}}', "schema None"),
        ('{"schema": 1, "identity": []}', "does not say whose"),
        ('{"schema": 1, "identity": {}}', "another campaign"),
    ],
)
def test_manifests_that_are_damaged_or_of_another_schema(
    context: Context, text: str, said: str
) -> None:
    (context.run_dir / "run_manifest.json").write_text(text)
    with pytest.raises(ResultsError, match=said):
        check_manifest(context.run_dir, context.plan.campaign)


def test_the_manifest_keeps_when_the_run_was_created(context: Context) -> None:
    path = context.run_dir / "run_manifest.json"
    write_manifest(context.run_dir, context.plan.campaign, {"session": "1"})
    first = json.loads(path.read_text())
    write_manifest(context.run_dir, context.plan.campaign, {"session": "2"})
    second = json.loads(path.read_text())
    assert second["created_ns"] == first["created_ns"]
    assert [item["session"] for item in second["sessions"]] == ["1", "2"]


def test_stop_requests(tmp_path: Path) -> None:
    assert stop_request(tmp_path, "s1") is None
    request_stop(tmp_path, "s1", "abort", "dead")
    found = stop_request(tmp_path, "s1")
    assert found is not None
    assert (found.cause, found.reason) == ("abort", "dead")
    assert stop_request(tmp_path, "s2") is None
    (tmp_path / ".stop.json").write_text("{")
    assert stop_request(tmp_path, "s1") is None


def test_events_are_whole_lines(tmp_path: Path) -> None:
    append_event(tmp_path / "new", "launch", variant="a\nb")
    path = tmp_path / "new" / "events.jsonl"
    path.write_text(path.read_text() + "[1]\n" + '{"cut')
    assert [event["variant"] for event in read_events(tmp_path / "new")] == ["a\nb"]
    write_json_atomic(tmp_path / "x.json", {})
    assert read_events(tmp_path) == []


def test_changed_nodes_are_refused_in_words(context: Context) -> None:
    write_manifest(context.run_dir, context.plan.campaign, {"session": "s1"})
    nodes = [{"id": "n1", "role": "head", "address": "10.0.0.9"}]
    changed = load_context(campaign(nodes=nodes)).plan.campaign
    with pytest.raises(ResultsError) as caught:
        check_manifest(context.run_dir, changed)
    assert caught.value.what == (
        "the folder holds another campaign: its nodes are n1 by local at 127.0.0.1, "
        "this one's are n1 by local at 10.0.0.9"
    )


def test_a_folder_on_a_node_that_takes_no_file_is_noticed_at_the_beginning(
    context: Context, machines: list[OtherMachine]
) -> None:
    folder = Path(context.workdir("n2"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file where the folder should be")
    with pytest.raises(NodeError, match="folder on node n2 cannot be written to") as caught:
        session.begin(context)
    assert caught.value.where == f"n2:{folder}"
    assert "nodes.n2.workdir" in caught.value.remedy
    assert holders(machines) == [None, None], "both leases are given back"
    assert not (context.run_dir / "run_manifest.json").exists()


def test_a_session_that_snakemake_kept_silent_about_is_told_from_its_events(
    context: Context,
) -> None:
    append_event(context.run_dir, "case_end", variant="old")
    session.begin(context)
    append_event(context.run_dir, "case_end", variant="v", case="c", reasons=[])
    quiet = Path("quiet.log")
    quiet.write_text("")
    session.end(context, "the campaign ended", [quiet])
    lines = (context.run_dir / "run.log").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["session_begin", "case_end", "session_end"]
    assert lines[1].endswith('case_end variant="v" case="c"')
