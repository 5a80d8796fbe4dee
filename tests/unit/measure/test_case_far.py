"""A case on two nodes that are not this machine, with the real client and the real collectors."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.analysis.derive import derive_attempt
from servemap.analysis.store import read_table
from servemap.measure import case, client, collect
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.model.attempts import Record, read_records, state
from servemap.model.errors import ConnectionLostError, OrphanedError
from servemap.server import patience
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.launch.served import Served
from servemap.server.locks import describe_self
from servemap.server.not_run import NotRunError
from tests.fake_client import make
from tests.fakes import campaign
from tests.far_nodes import FlakyNode

sys.path.insert(0, str(Path(__file__).parents[1] / "onnode"))
from load_server import ScriptServer, answer, stream

JOB = Job("baseline", "c", 1, 7)
HOUR_NS = 3600 * 10**9


class Lab:
    """Head and worker, a server that answers slowly, and the campaign that measures it."""

    def __init__(self, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = tmp_path
        self.url = url
        self.head = FlakyNode("head", tmp_path / "head")
        self.worker = FlakyNode("worker", tmp_path / "worker")
        self.ensured: BaseException | None = None
        self.context_tokens = 100
        self.at_request: Callable[[], None] = lambda: None
        monkeypatch.setattr(case, "ensure_server", self.ensure)

    def context(
        self, load_node: str = "head", fallback: bool = False, client: str = "", **policy: Any
    ) -> Context:
        case: dict[str, Any] = {
            "id": "c", "isl": 8, "osl": 8, "concurrency": 2, "num_prompts": 8, "warmup": "none",
        }  # fmt: skip
        if fallback:
            case["fallback"] = {"isl": 4, "on": ["context"]}
        if client:
            case["client"] = "vllm-bench"
        context = load_context(campaign(
            nodes=[{"id": "head", "address": "10.0.0.1"},
                   {"id": "worker", "role": "worker", "address": "10.0.0.2"}],
            load_node=load_node,
            server={"engine": "vllm", "attach": self.url, "nodes": ["head", "worker"]},
            variables=[],
            variants=[{"id": "baseline"}],
            baselines=[],
            phases=[{"id": "phase1", "cases": ["c"]}],
            cases=[case],
            clients={"vllm-bench": {"python": client}} if client else {},
            collectors={"proc": {"interval_s": 0.05}},
            policy={"lost_node_s": 20, **policy},
        ))  # fmt: skip
        context.__dict__["nodes"] = {"head": self.head, "worker": self.worker}
        context.run_dir.mkdir(parents=True, exist_ok=True)
        (context.run_dir / ".session.json").write_text(json.dumps({"session": "s1"}))
        return context

    def ensure(self, context: Context, variant: str, turn: int | None = None) -> Served:
        if self.ensured is not None:
            raise self.ensured
        return Served(self.url, "f", None, "vllm", None, {"worker": [os.getpid()]}, True)


@pytest.fixture
def slow() -> list[float]:
    """Seconds between the server's tokens; a test may change it."""
    return [0.02]


@pytest.fixture
def lab(tmp_path: Path, slow: list[float], monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "FAR_POLL_S", 0.02)
    monkeypatch.setattr(client, "FAR_LOOK_S", 0.05)
    monkeypatch.setattr(collect, "FAR_READY_POLL_S", 0.02)
    monkeypatch.setattr(patience, "RETRY_S", 0.02)

    def script(_: int, body: dict[str, Any]) -> Iterator[bytes | float | None]:
        found.at_request()
        if len(body["prompt"]) > found.context_tokens:
            message = b'{"error": {"message": "prompt exceeds the context length"}}'
            yield answer("400 Bad Request", message)
            return
        yield from stream(body, gap=slow[0])

    with ScriptServer(script) as server:
        found = Lab(tmp_path, server.url, monkeypatch)
        yield found
        found.head.end_all()
        found.worker.end_all()


def output(context: Context) -> Path:
    return context.run_dir / "cases/baseline/c/r1/meta.json"


def run(context: Context) -> dict[str, Any]:
    return run_case(context, JOB, output(context))


def folder(context: Context, number: int = 1) -> Path:
    return output(context).parent / f"attempts/{number:03d}"


def records(context: Context) -> list[Record]:
    return read_records(folder(context).parent)


def there(context: Context, node: str, number: int = 1) -> Path:
    return Path(context.on_node(node, folder(context, number)))


def event_names(context: Context) -> list[str]:
    return [event["event"] for event in read_events(context.run_dir)]


@pytest.mark.parametrize("load_node", ["head", "worker"])
def test_everything_comes_home_and_the_nodes_are_clean(lab: Lab, load_node: str) -> None:
    context = lab.context(load_node)
    meta = run(context)
    assert (meta["status"], meta["reasons"]) == ("ok", [])
    assert set(meta["collectors"]) == {"head/proc", "worker/proc"}
    assert {
        "raw/client.json", "raw/requests.jsonl", "raw/load.json", "raw/client.log",
        "raw/telemetry/head/proc.jsonl", "raw/telemetry/worker/proc.jsonl",
    } <= set(meta["files"])  # fmt: skip
    assert not there(context, "head").exists()
    assert not there(context, "worker").exists()
    node = lab.head if load_node == "head" else lab.worker
    assert node.process("bench")
    assert not any(n.alive(process) for n in (lab.head, lab.worker) for _, process in n.started)


def test_a_second_load_at_shorter_lengths_has_folders_of_its_own(lab: Lab) -> None:
    lab.context_tokens = 6
    context = lab.context("worker", fallback=True)
    meta = run(context)
    assert (meta["status"], meta["reasons"]) == ("ok", [])
    assert meta["fallback"]["reason"] == "context"
    for name in ("client.json", "telemetry/head/proc.jsonl", "telemetry/worker/proc.jsonl"):
        first, second = (meta["files"][f"{raw}/{name}"] for raw in ("raw-planned", "raw"))
        assert first["sha256"] != second["sha256"]
    requests = (folder(context) / "raw/requests.jsonl").read_text().splitlines()
    assert {json.loads(line)["status"] for line in requests} == {"ok"}
    assert not there(context, "worker").exists()


@pytest.mark.parametrize("load_node", ["head", "worker"])
def test_the_files_of_another_load_client_come_home(lab: Lab, load_node: str) -> None:
    """Simulated: the clock of the client's node is an hour ahead."""
    skew = lab.home / "skew"
    skew.write_text(str(HOUR_NS))
    node = lab.head if load_node == "head" else lab.worker
    node.env = {"SERVEMAP_CLOCK_SKEW_FILE": str(skew)}
    context = lab.context(load_node, client=str(make(lab.home / "client")))
    meta = run(context)
    assert (meta["status"], meta["reasons"]) == ("ok", [])
    assert {"raw/client.json", "raw/lines.jsonl", "raw/client/result.json"} <= set(meta["files"])
    assert not there(context, load_node).exists()
    assert not any(n.alive(process) for n in (lab.head, lab.worker) for _, process in n.started)
    (segment,) = meta["segments"]
    ahead_ns = 0 if load_node == "worker" else HOUR_NS
    assert meta["started_ns"] < segment["start_ns"] - ahead_ns < meta["ended_ns"]
    assert segment["error_ns"] >= meta["clock"][load_node]["error_ns"]
    derive_attempt(output(context).parent, {})
    rows = read_table(output(context).parent / "requests.parquet", 1).to_pylist()
    assert len(rows) == 8
    assert {row["sent_ns"] for row in rows} == {segment["start_ns"]}, "on the head's clock too"


def test_the_client_goes_straight_to_its_target(lab: Lab) -> None:
    nowhere = "http://127.0.0.1:9"
    lab.head.env = dict.fromkeys(
        ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"), nowhere
    )
    lab.head.env |= {"no_proxy": "", "NO_PROXY": ""}
    assert run(lab.context())["counts"]["ok"] == 8


def test_the_collectors_of_each_node_are_its_own(lab: Lab) -> None:
    context = lab.context()
    run(context)
    raw = folder(context) / "raw/telemetry"
    specs = {name: json.loads((raw / name / "collect.spec.json").read_text()) for name in
             ("head", "worker")}  # fmt: skip
    assert specs["head"]["until"].endswith("client.json")
    assert "until" not in specs["worker"], "the client's record never appears there"
    assert specs["worker"]["renew"].startswith(context.workdir("worker"))
    assert specs["worker"]["collectors"][0]["root_pids"] == [os.getpid()]
    assert specs["head"]["collectors"][0]["root_pids"] == []


def test_clocks_stand_in_the_record_and_in_the_segments_error(lab: Lab) -> None:
    meta = run(lab.context("worker"))
    assert meta["clock"]["head"]["error_ns"] == 0
    worker = meta["clock"]["worker"]
    assert worker["reference"] == "head"
    assert abs(worker["offset_ns"]) <= worker["error_ns"], "both run by one clock"
    assert 0 < worker["error_ns"] == meta["segments"][0]["error_ns"]


def test_a_worker_that_lives_in_another_time_and_then_is_set_back(lab: Lab) -> None:
    """Simulated: the clock source of the worker's agent is stepped while the case runs."""
    skew = lab.home / "skew"
    skew.write_text(str(HOUR_NS))
    lab.worker.env = {"SERVEMAP_CLOCK_SKEW_FILE": str(skew)}
    lab.worker.after_spawn = lambda program: (
        skew.write_text(str(HOUR_NS // 2)) and None if program == "bench" else None
    )
    context = lab.context("worker")
    meta = run(context)
    assert meta["status"] == "ok", meta["reasons"]
    worker = meta["clock"]["worker"]
    assert abs(worker["offset_ns"] - HOUR_NS) < 10**9
    assert abs(worker["drift_ns"] + HOUR_NS // 2) < 10**9
    assert abs(worker["step_ns"] + HOUR_NS // 2) < 10**9
    assert worker["set_ns"] == worker["step_ns"]
    assert worker["rate_ns"] == 0, "a step is no rate"
    begun, ended = meta["started_ns"], meta["ended_ns"]
    (segment,) = meta["segments"]
    assert begun < segment["start_ns"] < segment["end_ns"] < ended
    derive_attempt(output(context).parent, {})
    metrics = json.loads((output(context).parent / "metrics.json").read_text())
    assert [r for r in metrics["reasons"] if "clock" in r or "coverage" in r] == []
    requests = read_table(output(context).parent / "requests.parquet", 1)
    assert requests is not None
    assert all(begun < t < ended for t in requests["sent_ns"].to_pylist())
    telemetry = read_table(output(context).parent / "telemetry.parquet", 1)
    assert telemetry is not None
    nodes = {row["node"] for row in telemetry.to_pylist() if row["inside"]}
    assert nodes == {"head", "worker"}


def test_a_link_that_heals_costs_nothing(lab: Lab) -> None:
    lab.worker.after_spawn = lambda program: program == "bench" and lab.worker.away_for(5)
    context = lab.context("worker")
    meta = run(context)
    assert (meta["status"], meta["counts"]["ok"]) == ("ok", 8)
    assert lab.worker.lost == 5
    assert meta["away_s"]["worker"] > 0
    assert {"link_lost", "link_healed"} <= set(event_names(context))


def test_a_link_that_is_cut_while_files_come_over(lab: Lab) -> None:
    cut = iter([True, True])
    lab.worker.is_away = lambda call: call == "fetch" and next(cut, False)
    meta = run(lab.context("worker"))
    assert (meta["status"], lab.worker.lost) == ("ok", 2)


def test_a_node_that_stays_away_fails_the_case_and_is_ended_later(lab: Lab) -> None:
    lab.head.after_spawn = lambda program: program == "bench" and lab.worker.away_for(10**9)
    context = lab.context(lost_node_s=0.2)
    meta = run(context)
    assert (meta["status"], meta["cause"]) == ("failed", "unreachable")
    assert meta["reasons"][0].startswith("node worker could not be reached for 0 s: no route")
    collectors = lab.worker.process("collect")
    assert f"the collectors (pid {collectors.pid}) may still run on node worker" in " ".join(
        meta["reasons"]
    )
    assert str(there(context, "worker")) in meta["reasons"][-1], "where its files stayed"
    assert not lab.head.alive(lab.head.process("bench")), "the others are ended"
    assert "raw/telemetry/head/proc.jsonl" in meta["files"], "and their files are evidence"
    assert not there(context, "head").exists()
    assert there(context, "worker").exists()
    assert records(context)[-1].used_a_try, "or a case that takes its node down is tried for ever"

    lab.head.after_spawn = lambda program: None
    lab.worker.is_away = lambda call: False
    assert lab.worker.alive(collectors)
    meta = run(context)
    assert (meta["status"], meta["attempt"]) == ("ok", 2)
    assert not lab.worker.alive(collectors)


def test_a_server_that_cannot_be_reached_uses_up_no_try(lab: Lab) -> None:
    lab.ensured = NotRunError("launch", "no route", "worker", "plug it in")
    lab.ensured.__cause__ = patience.ConnectionLostError("no route", "worker", "plug it in")
    context = lab.context()
    meta = run(context)
    assert (meta["status"], meta["cause"]) == ("not_run", "unreachable")
    assert state(records(context), meta["spec_sha256"], 1) == "not_run"


def test_collectors_that_die_end_the_case_at_once(lab: Lab, slow: list[float]) -> None:
    slow[0] = 1.0

    def strike() -> None:
        with suppress(ProcessLookupError):
            os.kill(lab.worker.process("collect").pid, signal.SIGKILL)

    lab.at_request = strike
    meta = run(lab.context())
    assert meta["status"] == "failed"
    assert "worker/proc: their process is gone from the node" in meta["reasons"][0]
    assert meta["counts"]["sent"] < meta["counts"]["planned"], "the case was not run to its end"


def orphan(lab: Lab, context: Context, alive: str) -> None:
    """Let the controller die once the client was started."""
    dead = {**describe_self(session="s1"), "boot_id": "before the reboot"}
    session = context.run_dir / ".session.json"

    def die(program: str) -> None:
        if program == "bench":
            session.write_text(json.dumps(dead))

    node = lab.head if context.plan.load_node == "head" else lab.worker
    node.after_spawn = die
    with pytest.raises(OrphanedError):
        run(context)
    node.after_spawn = lambda program: None
    session.write_text(alive)


@pytest.mark.parametrize("load_node", ["head", "worker"])
def test_a_load_that_finished_without_its_controller_is_adopted(lab: Lab, load_node: str) -> None:
    context = lab.context(load_node)
    orphan(lab, context, (context.run_dir / ".session.json").read_text())
    assert not (folder(context) / "raw/client.json").exists(), "it is on the node only"
    meta = run(context)
    assert (meta["status"], meta["attempt"], meta["adopted"]) == ("ok", 1, True)
    assert meta["counts"]["ok"] == 8
    assert meta["clock"]["worker"]["reference"] == "head"
    assert not there(context, load_node).exists()


def test_an_orphan_on_a_node_that_is_away_stays_open(lab: Lab) -> None:
    context = lab.context("worker", lost_node_s=0.1)
    orphan(lab, context, (context.run_dir / ".session.json").read_text())
    lab.worker.away_for(10**9)
    with pytest.raises(patience.UnreachableError):
        run(context)
    assert not (folder(context) / "meta.json").exists()
    lab.worker.is_away = lambda call: False
    assert run(context)["adopted"] is True


def test_files_that_do_not_come_whole_fail_the_case_and_stay_there(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lab.worker.fetch
    times = []

    def changing(remote: str, local: Path, *, max_bytes: int | None = None) -> list[Any]:
        times.append(remote)
        found = real(remote, local, max_bytes=max_bytes)
        return [found[0].__class__(found[0].path, found[0].size, "other", True), *found[1:]]

    monkeypatch.setattr(lab.worker, "fetch", changing)
    context = lab.context()
    meta = run(context)
    assert meta["status"] == "failed"
    assert "on node worker was still being written when it was fetched" in meta["reasons"][0]
    assert len(times) == 2, "once more, for what was only late"
    assert there(context, "worker").exists()
    assert not there(context, "head").exists()


def raw(context: Context, name: str, number: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder(context, number) / "raw" / name).read_text())
    return found


def ids(context: Context) -> set[str]:
    """The loads that the files of the only attempt at the case are of."""
    names = ["load.json", "client.json"]
    names += [f"telemetry/{node}/collectors.json" for node in ("head", "worker")]
    return {raw(context, name)["load_id"] for name in names}


@pytest.mark.parametrize("load_node", ["head", "worker"])
@pytest.mark.parametrize("wiped", ["the case", "the run"])
def test_what_an_earlier_load_left_is_not_taken_for_a_new_one(
    lab: Lab, load_node: str, wiped: str
) -> None:
    context = lab.context(load_node)
    orphan(lab, context, (context.run_dir / ".session.json").read_text())
    node = lab.head if load_node == "head" else lab.worker
    client = psutil.Process(node.process("bench").pid)
    client.wait(60)
    (old,) = there(context, load_node).glob("raw-*/client.json")
    stale = json.loads(old.read_text())
    assert stale["status"] == "ok"
    session = (context.run_dir / ".session.json").read_text()
    shutil.rmtree(output(context).parent if wiped == "the case" else context.run_dir)
    context.run_dir.mkdir(exist_ok=True)
    (context.run_dir / ".session.json").write_text(session)

    meta = run(context)
    assert (meta["status"], meta["attempt"], meta.get("adopted")) == ("ok", 1, None)
    assert ids(context) == {raw(context, "client.json")["load_id"]} != {stale["load_id"]}
    assert meta["segments"][0]["start_ns"] > meta["started_ns"]
    requests = (folder(context) / "raw/requests.jsonl").read_text().splitlines()
    assert len(requests) == 8
    assert all(json.loads(line)["sent_ns"] > meta["started_ns"] for line in requests)


def test_a_record_of_another_load_is_none(lab: Lab) -> None:
    """The client's folder is given back as it was before: an old client.json in the new place."""
    context = lab.context()

    def put_back(program: str) -> None:
        if program == "bench":
            target = Path(lab.head.started[-1][0][-1]) / "client.json"
            target.write_text(json.dumps({"load_id": "old", "status": "ok", "counts": {"ok": 8}}))

    lab.head.after_spawn = put_back
    meta = run(context)
    assert meta["status"] == "failed"
    assert meta["reasons"][0].startswith(
        "the record that the load client left is that of another load: "
    )
    assert "holds a finished run" in meta["reasons"][0], "the client's own last words"
    assert meta["segments"] == []
    assert meta["counts"] is None


def test_a_client_whose_start_was_not_answered_is_ended(lab: Lab, slow: list[float]) -> None:
    slow[0] = 1.0

    def lose_the_answer(program: str) -> None:
        if program == "bench":
            raise ConnectionLostError("the connection was lost", "node head", "wait")

    lab.head.after_spawn = lose_the_answer
    context = lab.context()
    meta = run(context)
    assert (meta["status"], meta["cause"]) == ("failed", "unreachable")
    assert not lab.head.alive(lab.head.process("bench"))
    (event,) = [e for e in read_events(context.run_dir) if e["event"] == "load_ended"]
    assert event["processes"][0]["pid"] == lab.head.process("bench").pid


@pytest.mark.parametrize("wiped", [False, True])
def test_no_client_that_nobody_knows_of_runs_beside_a_new_load(
    lab: Lab, slow: list[float], wiped: bool
) -> None:
    slow[0] = 1.0
    alive_beside: list[bool] = []

    def die(program: str) -> None:
        if program == "bench":
            raise OrphanedError

    lab.head.after_spawn = die
    context = lab.context()
    with pytest.raises(OrphanedError):
        run(context)
    client = lab.head.process("bench")
    assert lab.head.alive(client)
    if wiped:
        shutil.rmtree(output(context).parent)
    slow[0] = 0.02
    lab.head.after_spawn = lambda program: (
        alive_beside.append(lab.head.alive(client)) if program == "bench" else None
    )
    meta = run(context)
    assert (meta["status"], meta["attempt"]) == ("ok", 1 if wiped else 2)
    assert alive_beside == [False]
