"""One repeat of a case against made-up servers, clients and collectors: what is recorded."""

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from servemap.measure import cards, case, load_run, loads, record
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.reasons import Disturbed, undisturbed
from servemap.model.attempts import read_records, state
from servemap.model.errors import LockedError, NodeError, OrphanedError, ResultsError
from servemap.nodes.base import ProcessId
from servemap.onnode.view import Process
from servemap.scripting import InterruptedByController
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.gates.holders import Card, CardProcess, Holders
from servemap.server.gates.ports import NodeView
from servemap.server.launch import boots, process
from servemap.server.launch.served import Served
from servemap.server.locks import describe_self, server_lock
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, campaign, fake_context

JOB = Job("baseline", "c", 1, 7)
SERVED = Served("http://127.0.0.1:1", "f", None, "llamacpp", "fake 1", {}, True)
ENDED_NS = 1_000


class Client:
    """What the load client does: the outcome of each call, in order; the last one repeats."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.calls: list[dict[str, Any]] = []
        self.errors: list[list[str]] = [[]]
        self.status = "ok"
        self.silent = False
        self.log = ""
        self.goes_on = False
        self.collectors: dict[str, dict[str, Any]] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        node.on_spawn |= {"bench": self.bench, "collect": self.collect}

    def bench(self, argv: list[str], pid: ProcessId) -> None:
        self.calls.append(json.loads(Path(argv[argv.index("--spec") + 1]).read_text()))
        self.raw = Path(argv[argv.index("--out") + 1])
        self.pid = pid
        self.meanwhile()
        if not self.goes_on:
            self.finish()

    def finish(self) -> None:
        self.node.living.discard(self.pid)
        if self.silent:
            (self.raw / "client.log").write_text(self.log)
            return
        errors = self.errors[min(len(self.calls), len(self.errors)) - 1]
        lines = [{"warmup": True, "error": {"class": "oom"}}, {"warmup": False, "error": None}]
        lines += [{"warmup": False, "error": {"class": name}} for name in errors]
        text = "\n".join(json.dumps(line) for line in lines)
        (self.raw / "requests.jsonl").write_text(text + "\nnot json\n")
        client = {
            "load_id": self.calls[-1]["load_id"],
            "status": self.status,
            "reasons": ["case timeout"] if self.status == "failed" else [],
            "segments": [{"name": "main", "start_ns": 1, "end_ns": 2, "source": "client"}],
            "counts": {"planned": 1, "sent": 1, "ok": 0 if errors else 1, "failed": len(errors)},
            "ended_ns": ENDED_NS,
        }
        (self.raw / "client.json").write_text(json.dumps(client))

    def collect(self, argv: list[str], pid: ProcessId) -> None:
        spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
        self.collect_spec, self.collect_pid = spec, pid
        Path(spec["ready_file"]).write_text("{}")
        records = {
            item["name"]: {"status": "ok", "samples": 3, "error": None}
            for item in spec["collectors"]
        }
        ended = {"load_id": spec["load_id"], "collectors": {**records, **self.collectors}}
        (Path(spec["out"]) / "collectors.json").write_text(json.dumps(ended))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return FakeNode()


@pytest.fixture
def client(node: FakeNode) -> Client:
    return Client(node)


class Ensured:
    """`ensure_server` as the cases see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[Served | BaseException] = [SERVED]
        self.calls = 0
        self.turns: list[int | None] = []
        monkeypatch.setattr(case, "ensure_server", self)

    def __call__(self, context: Context, variant: str, turn: int | None = None) -> Served:
        self.turns.append(turn)
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.fixture
def ensured(monkeypatch: pytest.MonkeyPatch) -> Ensured:
    return Ensured(monkeypatch)


@pytest.fixture
def context(node: FakeNode, client: Client, ensured: Ensured) -> Context:
    return fake_context(node, campaign())


def run(context: Context, disturbed: Disturbed = undisturbed) -> dict[str, Any]:
    output = context.run_dir / "cases/baseline/c/r1/meta.json"
    meta = run_case(context, JOB, output, disturbed)
    assert json.loads(output.read_text()) == meta
    return meta


def attempt_dir(context: Context, number: int = 1) -> Path:
    return context.run_dir / f"cases/baseline/c/r1/attempts/{number:03d}"


def meta_of(context: Context, number: int = 1) -> dict[str, Any]:
    return dict(json.loads((attempt_dir(context, number) / "meta.json").read_text()))


def fallback_campaign() -> dict[str, Any]:
    fallback = {"isl": 32, "on": ["context", "oom"]}
    return campaign(
        cases=[{"id": "c", "isl": 64, "osl": 8, "concurrency": 1, "fallback": fallback}]
    )


def own_server(context: Context, node: FakeNode) -> Served:
    """A server of ours that really has its records, so that it can die and be stopped."""
    running = process.start(
        node, context.workdir("n1"), boot_id="b", variant="baseline", fingerprint="f", port=1,
        argv=[], env={}, secrets={}, cwd=None, ttl_s=60, grace_s=1,
    )  # fmt: skip
    boots.write_boot(
        context.run_dir, boots.Boot("baseline", running.boot_id, "s1", "f", [], 1, 1, "ready")
    )
    return replace(SERVED, boot_id=running.boot_id, pids={"n1": [node.server.pid]})


def test_ok(context: Context, client: Client) -> None:
    meta = run(context)
    assert (meta["status"], meta["reasons"], meta["cause"]) == ("ok", [], None)
    assert (meta["attempt"], meta["token"]) == (1, 7)
    assert meta["segments"][0]["name"] == "main"
    assert meta["counts"]["ok"] == 1
    assert meta["server"]["fingerprint"] == "f"
    assert set(meta["overhead"]) == {
        "ensure_s", "collectors_start_s", "client_s", "collectors_stop_s", "fetch_s",
    }  # fmt: skip
    assert meta["collectors"]["n1/proc"]["samples"] == 3
    assert {"raw/client.json", "raw/requests.jsonl", "raw/load.json"} <= set(meta["files"])
    assert not (attempt_dir(context) / "open.json").exists()
    assert client.collect_pid not in client.node.living
    records = read_records(attempt_dir(context).parent)
    assert state(records, meta["spec_sha256"], 2) == "done"
    events = [event["event"] for event in read_events(context.run_dir)]
    assert events == ["case_start", "case_end"]


@pytest.mark.parametrize(("order", "turn"), [("interleaved", None), ("relaunched", 1)])
def test_only_relaunched_repeats_ask_for_a_start_of_their_own(
    node: FakeNode, client: Client, ensured: Ensured, order: str, turn: int | None
) -> None:
    assert run(fake_context(node, campaign(policy={"order": order})))["status"] == "ok"
    assert ensured.turns == [turn]


@pytest.mark.parametrize(
    ("engine", "path"),
    [("vllm", "/reset_prefix_cache?reset_external=true"), ("sglang", "/flush_cache")],
)
def test_the_client_empties_the_cache_by_the_engines_own_call(
    node: FakeNode, client: Client, ensured: Ensured, engine: str, path: str
) -> None:
    case = {"id": "c", "isl": 64, "osl": 8, "concurrency": 1, "cache": "flush"}
    alone: dict[str, Any] = {"variables": [], "variants": [{"id": "baseline"}]}
    run(fake_context(node, campaign(server={"engine": engine}, cases=[case], **alone)))
    assert client.calls[0]["flush"] == {"path": path, "method": "POST"}


def test_what_the_client_is_asked(context: Context, client: Client) -> None:
    run(context)
    run(context)
    first, second = client.calls
    assert first["segments"][0]["streams"][0]["isl"] == 64
    assert first["url"] + first["endpoint"] == "http://127.0.0.1:1/v1/completions"
    assert first["seed"] != second["seed"], "prompts are unique per attempt"


def test_no_request_succeeded(context: Context, client: Client) -> None:
    client.errors = [["http", "http", "cut"]]
    meta = run(context)
    assert meta["status"] == "failed"
    assert meta["reasons"] == ["no request succeeded (1 x cut, 2 x http)"]


def test_a_disturbed_load_fails_with_that_cause_and_keeps_its_record(
    context: Context, client: Client
) -> None:
    asked: list[tuple[Path, Any]] = []

    def judge(raw: Path, facts: Any) -> list[str]:
        asked.append((raw, facts))
        return ["the load client was saturated"]

    meta = run(context, judge)
    assert (meta["status"], meta["cause"]) == ("failed", "disturbed")
    assert meta["reasons"] == ["the load client was saturated"]
    assert meta["segments"][0]["name"] == "main"
    ((raw, facts),) = asked
    assert (raw / "client.json").exists()
    assert facts["segments"] == meta["segments"]
    assert facts["collectors"] == meta["collectors"]
    records = read_records(attempt_dir(context).parent)
    assert state(records, meta["spec_sha256"], 9) == "failed"
    run(context, judge)
    records = read_records(attempt_dir(context).parent)
    assert state(records, meta["spec_sha256"], 9) == "gave_up"


def test_a_load_that_failed_is_not_called_disturbed(context: Context, client: Client) -> None:
    client.errors = [["http"]]
    meta = run(context, lambda raw, facts: ["the load client was saturated"])
    assert (meta["status"], meta["cause"]) == ("failed", None)
    assert meta["reasons"] == ["no request succeeded (1 x http)"]


def test_an_adopted_load_is_judged_too(context: Context, client: Client) -> None:
    orphaned(context, client)
    client.finish()
    meta = run(context, lambda raw, facts: ["others used the machine"])
    assert (meta["adopted"], meta["cause"]) == (True, "disturbed")


class Cards:
    """What the tools would say of the cards (simulated): the next look at each is popped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: Holders | NodeError) -> None:
        self.looks = list(looks)
        monkeypatch.setattr(cards, "holders_on", self)

    def __call__(self, context: Context, names: list[str]) -> dict[str, Holders]:
        found = self.looks.pop(0)
        if isinstance(found, NodeError):
            raise found
        return dict.fromkeys(names, found)


def with_cards(node: FakeNode) -> Context:
    return fake_context(node, campaign(nodes=[{"id": "n1", "accelerators": 1}]))


def test_the_cards_are_looked_at_before_and_after(
    node: FakeNode, client: Client, ensured: Ensured, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_cards(node)
    ensured.answers = [own_server(context, node)]
    foreign = Process(9, 1, 109, "S", "./gpu_burn", "bob")
    used = Holders(
        NodeView("", "", {}, {9: foreign}),
        [Card("nvidia", "0", 31_000_000_000, 80_000_000_000)],
        [CardProcess("nvidia", "0", 9, 30_000_000_000, "gpu_burn")],
    )
    empty = Holders(NodeView("", "", {}, {}), [Card("nvidia", "0", 0, 80_000_000_000)])
    seen = Cards(monkeypatch, empty, used)
    meta = run(context)
    assert (meta["status"], seen.looks) == ("ok", [])
    assert meta["cards"]["before"]["n1"]["ok"] is True
    assert meta["cards"]["after"]["n1"]["ok"] is False
    assert "gpu_burn" in meta["cards"]["after"]["n1"]["evidence"]


def test_cards_that_cannot_be_looked_at_stop_no_case(
    node: FakeNode, client: Client, ensured: Ensured, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = with_cards(node)
    ensured.answers = [own_server(context, node)]
    Cards(monkeypatch, *[NodeError("no answer", "n1", "look")] * 2)
    meta = run(context)
    assert meta["status"] == "ok"
    assert meta["cards"]["before"]["n1"]["ok"] is None
    assert "no answer" in meta["cards"]["after"]["n1"]["evidence"]


def test_no_cards_and_no_server_of_ours_are_no_look(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    assert run(context)["cards"] == {"before": {}, "after": {}}
    assert run(with_cards(node))["cards"] == {"before": {}, "after": {}}, "an attached server"


def test_the_clients_own_failure(context: Context, client: Client) -> None:
    client.status = "failed"
    assert run(context)["reasons"] == ["case timeout"]


@pytest.mark.parametrize(
    ("available", "named"), [(0, True), (-8, True), (1023, True), (1024, False)]
)
def test_a_failed_load_names_the_disk_that_is_full(
    context: Context, client: Client, available: int, named: bool
) -> None:
    """What cannot be written cannot say why."""
    client.status = "failed"
    head = "Filesystem 1024-blocks Used Available Capacity Mounted on"
    client.node.on_run["-Pk"] = lambda argv: f"{head}\nmy disk 5000 4000 {available} 100% /a 1\n"
    reasons = run(context)["reasons"]
    assert reasons[0] == "case timeout"
    said = f"the disk of node n1 is full: {available} KiB are left for "
    assert [reason.startswith(said) for reason in reasons[1:]] == [True] * named


def test_the_client_left_no_record(context: Context, client: Client) -> None:
    client.silent = True
    client.log = "bench: started\nbench: the disk is full: free some room\n\n"
    meta = run(context)
    assert meta["status"] == "failed"
    reason = "the load client left no record: bench: the disk is full: free some room; see "
    assert meta["reasons"][0].startswith(reason)
    assert meta["reasons"][0].endswith("client.log")
    assert (meta["counts"], meta["segments"]) == (None, [])


@pytest.mark.parametrize("required", [True, False])
def test_a_collector_that_died(
    node: FakeNode, client: Client, ensured: Ensured, required: bool
) -> None:
    context = fake_context(node, campaign(collectors={"proc": {"required": required}}))
    client.collectors = {"proc": {"status": "failed", "samples": 1, "error": "killed"}}
    meta = run(context)
    assert meta["status"] == ("failed" if required else "ok")
    assert meta["collectors"]["n1/proc"]["error"] == "killed"
    if required:
        assert meta["reasons"] == ["required collector n1/proc failed: killed"]


@pytest.mark.parametrize("cause", ["stop", "launch", "breaker", "drift", "abort", "patch"])
def test_no_server_is_not_run(context: Context, ensured: Ensured, cause: str) -> None:
    ensured.answers = [NotRunError(cause, "why it is not", "here", "do that")]
    meta = run(context)
    assert (meta["status"], meta["cause"], meta["server"]) == ("not_run", cause, None)
    assert "why it is not" in meta["reasons"][0]
    assert meta["counts"] is None


def test_a_required_tool_that_does_not_answer_is_not_run(
    node: FakeNode, client: Client, ensured: Ensured
) -> None:
    node.on_run["discovery"] = lambda argv: "Error: unable to connect to host engine\n"
    required = {"proc": {}, "dcgm": {"required": True}}
    context = fake_context(node, campaign(collectors=required))
    meta = run(context)
    assert (meta["status"], meta["cause"]) == ("not_run", "collector")
    assert "required collector dcgm" in meta["reasons"][0]
    assert client.calls == []


def test_fallback_after_a_context_error(node: FakeNode, client: Client, ensured: Ensured) -> None:
    context = fake_context(node, fallback_campaign())
    client.errors = [["context"], []]
    meta = run(context)
    assert meta["status"] == "ok"
    assert meta["fallback"] == {
        "reason": "context",
        "planned": {"isl": 64, "osl": 8},
        "used": {"isl": 32, "osl": 8},
    }
    assert [call["segments"][0]["streams"][0]["isl"] for call in client.calls] == [64, 32]
    assert ensured.calls == 2, "the server is asked for again before the shorter load"
    assert "raw-planned/client.json" in meta["files"]
    assert "raw/client.json" in meta["files"]


@pytest.mark.parametrize("errors", [[["http"], []], [["context"], ["context"]]])
def test_fallback_is_for_its_errors_and_happens_once(
    node: FakeNode, client: Client, ensured: Ensured, errors: list[list[str]]
) -> None:
    context = fake_context(node, fallback_campaign())
    client.errors = errors
    meta = run(context)
    assert meta["status"] == "failed"
    assert len(client.calls) == (1 if errors[0] == ["http"] else 2)


def test_a_stop_between_a_load_and_its_fallback_is_not_run(
    node: FakeNode, client: Client, ensured: Ensured
) -> None:
    context = fake_context(node, fallback_campaign())
    client.errors = [["context"]]
    ensured.answers = [SERVED, NotRunError("stop", "lunch", "r", "start again")]
    meta = run(context)
    assert (meta["status"], meta["cause"]) == ("not_run", "stop")
    assert meta["server"]["fingerprint"] == "f"


def test_a_server_that_ran_out_of_memory_serves_nothing_more(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    ensured.answers = [own_server(context, node)]
    client.errors = [["oom"]]
    assert run(context)["reasons"] == ["no request succeeded (1 x oom)"]
    assert node.server not in node.living
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert boot.status == "stopped", "a restart that the principle asks for is no death"
    assert "out of memory" in (boot.reason or "")


def test_memory_that_only_the_servers_log_tells_of(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    node.server_log = "ready\nE: failed to allocate compute --api-key=s3cr3t\n"
    ensured.answers = [own_server(context, node)]
    client.errors = [["http"]]
    assert run(context)["reasons"] == [
        "the server's memory was used up on n1: E: failed to allocate compute --api-key=<redacted>",
        "no request succeeded (1 x http)",
    ]
    assert node.server not in node.living
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert boot.status == "stopped"


def test_a_log_is_not_searched_after_a_case_without_errors(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    node.server_log = "W: failed to allocate buffer of an unused kind\n"
    ensured.answers = [own_server(context, node)]
    assert run(context)["status"] == "ok"
    assert node.server in node.living


def test_a_server_stays_after_other_errors(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    ensured.answers = [own_server(context, node)]
    client.errors = [["http"]]
    run(context)
    assert node.server in node.living


def test_a_server_that_died_during_the_case(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    ensured.answers = [own_server(context, node)]
    client.meanwhile = lambda: node.server_dies(signal=9, code=None)
    meta = run(context)
    assert meta["reasons"][0] == "the server was ended by signal 9 during the case"
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert boot.status == "died"


def test_what_a_server_said_before_it_died_is_among_the_reasons(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    node.server_log = "ready\nOddError: it --api-key=s3cr3t broke\n"
    ensured.answers = [own_server(context, node)]
    client.meanwhile = lambda: node.server_dies(code=1)
    meta = run(context)
    assert meta["reasons"][:2] == [
        "the server exited with code 1 during the case",
        "last errors of its log: OddError: it --api-key=<redacted> broke",
    ]
    (boot,) = boots.read_boots(context.run_dir, "baseline")
    assert "OddError" in (boot.reason or "")


def test_a_server_that_was_killed_has_no_last_words(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    node.server_log = "served a request\n"
    ensured.answers = [own_server(context, node)]
    client.meanwhile = lambda: node.server_dies(signal=9, code=None)
    assert not any("served a request" in reason for reason in run(context)["reasons"])


def test_a_server_that_ended_after_the_client_is_no_failure(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    """The watchdog stops the server of a dead controller; what was measured before stays good."""
    ensured.answers = [own_server(context, node)]

    def ends() -> None:
        node.server_dies(reason="lease_expired")
        late = {**json.loads(node.state_path.read_text()), "ended_ns": ENDED_NS + 1}
        node.state_path.write_text(json.dumps(late))

    client.meanwhile = ends
    assert run(context)["status"] == "ok"


def test_a_death_that_the_supervisor_noted_late_is_a_failure(
    context: Context, node: FakeNode, client: Client, ensured: Ensured
) -> None:
    """A client that a dead server refuses is done before the supervisor has noted the death."""
    ensured.answers = [own_server(context, node)]
    client.errors = [["refused"]]

    def dies() -> None:
        node.server_dies(signal=9, code=None)
        late = {**json.loads(node.state_path.read_text()), "ended_ns": ENDED_NS + 1}
        node.state_path.write_text(json.dumps(late))

    client.meanwhile = dies
    meta = run(context)
    assert meta["status"] == "failed"
    assert meta["reasons"][0] == "the server was ended by signal 9 during the case"


def test_a_client_that_cannot_be_started_leaves_no_collectors(
    context: Context, node: FakeNode, client: Client
) -> None:
    def refuse(argv: list[str], pid: ProcessId) -> None:
        node.living.discard(pid)
        raise NodeError("cannot start agent", "n1", "install it")

    node.on_spawn["bench"] = refuse
    meta = run(context)
    assert (meta["status"], meta["cause"]) == ("failed", None)
    assert "cannot start agent" in meta["reasons"][0]
    assert client.collect_pid not in node.living


def test_an_interrupt_ends_everything_and_uses_up_no_try(
    context: Context, node: FakeNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.goes_on = True

    def interrupted(*args: object) -> None:
        raise InterruptedByController

    monkeypatch.setattr(load_run, "wait_client", interrupted)
    with pytest.raises(InterruptedByController):
        run(context)
    meta = meta_of(context)
    assert (meta["status"], meta["cause"]) == ("failed", "interrupted")
    assert meta["reasons"] == ["the controller was interrupted"]
    assert "raw/load.json" in meta["files"], "what was received is kept"
    assert not node.living
    records = read_records(attempt_dir(context).parent)
    assert state(records, meta["spec_sha256"], 1) == "failed", "and not given up"


def test_an_interrupt_while_the_server_starts_closes_the_attempt(
    context: Context, ensured: Ensured
) -> None:
    ensured.answers = [InterruptedByController()]
    with pytest.raises(InterruptedByController):
        run(context)
    assert meta_of(context)["cause"] == "interrupted"


def test_an_interrupt_while_collectors_start_ends_them(
    context: Context, node: FakeNode, client: Client
) -> None:
    started: list[ProcessId] = []

    def collect(argv: list[str], pid: ProcessId) -> None:
        started.append(pid)

    def interrupt(process: ProcessId) -> bool:
        raise InterruptedByController

    node.on_spawn["collect"] = collect
    node.alive = interrupt  # type: ignore[method-assign]
    with pytest.raises(InterruptedByController):
        run(context)
    assert started[0] in node.stopped


def test_collectors_that_start_after_an_interrupt_end_themselves(
    context: Context, node: FakeNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads go on when the main one is interrupted; what they start then, nobody notes."""
    late = threading.Event()
    threads: list[threading.Thread] = []

    def interrupted_each(items: list[str], start: Callable[[str], Any]) -> None:
        def work() -> None:
            late.wait(60)
            with contextlib.suppress(OrphanedError):
                start(items[0])

        threads.append(threading.Thread(target=work))
        threads[0].start()
        raise InterruptedByController

    monkeypatch.setattr(load_run, "each", interrupted_each)
    with pytest.raises(InterruptedByController):
        run(context)
    late.set()
    threads[0].join(60)
    assert client.collect_pid in node.stopped
    assert not node.living
    assert not (attempt_dir(context) / "open.json").exists()


def orphaned(context: Context, client: Client) -> None:
    """Let a controller die while its client goes on."""
    dead = {**describe_self(session="s1"), "boot_id": "before the reboot"}
    session = context.run_dir / ".session.json"
    alive = session.read_text()
    client.goes_on = True
    client.meanwhile = lambda: session.write_text(json.dumps(dead)) and None
    with pytest.raises(OrphanedError):
        run(context)
    session.write_text(alive)
    client.meanwhile = lambda: None


def test_an_orphan_leaves_its_attempt_to_the_next_controller(
    context: Context, node: FakeNode, client: Client
) -> None:
    orphaned(context, client)
    assert not (attempt_dir(context) / "meta.json").exists()
    assert client.pid in node.living
    client.finish()
    meta = run(context)
    assert (meta["status"], meta["attempt"], meta["adopted"]) == ("ok", 1, True)
    assert len(client.calls) == 1
    assert client.collect_pid not in node.living


def test_a_client_that_still_runs_is_waited_for(
    context: Context, node: FakeNode, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphaned(context, client)
    monkeypatch.setattr(load_run, "wait_client", lambda *args: client.finish())
    assert run(context)["adopted"] is True


@pytest.mark.parametrize(("errors", "status"), [([], "ok"), (["context"], "failed")])
def test_an_adopted_attempt_remembers_its_fallback(
    node: FakeNode, client: Client, ensured: Ensured, errors: list[str], status: str
) -> None:
    context = fake_context(node, fallback_campaign())
    client.errors = [["context"], errors]
    dead = json.dumps({**describe_self(), "boot_id": "before the reboot"})
    session = context.run_dir / ".session.json"
    alive = session.read_text()

    def second_goes_on() -> None:
        if len(client.calls) == 2:
            client.goes_on = True
            session.write_text(dead)

    client.meanwhile = second_goes_on
    with pytest.raises(OrphanedError):
        run(context)
    session.write_text(alive)
    client.finish()
    meta = run(context)
    assert (meta["status"], meta["adopted"]) == (status, True)
    assert meta["fallback"]["used"] == {"isl": 32, "osl": 8}
    assert len(client.calls) == 2


def test_an_adopted_attempt_may_need_its_fallback(
    node: FakeNode, client: Client, ensured: Ensured
) -> None:
    context = fake_context(node, fallback_campaign())
    client.errors = [["context"], []]
    orphaned(context, client)
    client.finish()
    client.goes_on = False
    meta = run(context)
    assert (meta["status"], meta["attempt"]) == ("ok", 1)
    assert meta["fallback"]["reason"] == "context"


@pytest.mark.parametrize("how", ["dead client", "other spec", "damaged", "before the load"])
def test_what_cannot_be_adopted_is_closed_as_evidence(
    context: Context, node: FakeNode, client: Client, how: str
) -> None:
    orphaned(context, client)
    client.goes_on = False
    opening = attempt_dir(context) / "open.json"
    noted = json.loads(opening.read_text())
    if how == "dead client":
        node.living.discard(client.pid)
    elif how == "other spec":
        noted["identity"]["spec_sha256"] = "another"
    elif how == "damaged":
        noted["served"] = {"of": "another version"}
    else:
        noted = {"identity": noted["identity"]}
    opening.write_text(json.dumps(noted))
    old = client.pid
    meta = run(context)
    assert (meta["status"], meta["attempt"]) == ("ok", 2)
    assert meta_of(context)["cause"] == "interrupted"
    assert "died" in meta_of(context)["reasons"][0]
    if how != "before the load":
        assert old not in node.living, "nothing of the old load runs beside the new one"


def test_a_served_record_survives_its_round_trip(
    context: Context, client: Client, ensured: Ensured
) -> None:
    whole = Served(
        "u", "f", "b", "llamacpp", None, {"n1": [3]}, False, ["drift"], ["argv"], [{"a": 1}]
    )
    opening = {
        "load_id": "x",
        "served": json.loads(json.dumps(asdict(whole))),
        "client": {"pid": 1, "start": 2, "boot_id": "m"},
        "collectors": {"n1": {"pid": 3, "start": 4, "boot_id": "m"}},
        "clocks": {"n1": {"offset_ns": 0, "error_ns": 0, "at_ns": 5}},
        "fallback": None,
    }
    load = loads.noted_load(opening)
    assert load is not None
    assert load.served == whole
    assert load.id == "x"
    assert load.client == ProcessId(1, 2, "m")
    assert load.collectors == {"n1": ProcessId(3, 4, "m")}


def fail_writes(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    real, left = record.write_json_atomic, [times]

    def write(path: Path, value: Any) -> None:
        if path.name == "meta.json" and left[0]:
            left[0] -= 1
            raise OSError(28, "No space left on device")
        real(path, value)

    monkeypatch.setattr(record, "write_json_atomic", write)


def test_a_full_disk_at_the_end_is_recorded_once_there_is_room(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = run(context)
    fail_writes(monkeypatch, 2)
    with pytest.raises(OSError, match="No space left"):
        run(context)
    assert meta_of(context) == kept, "nothing earlier is lost"
    failed = meta_of(context, 2)
    assert failed["status"] == "failed"
    assert "No space left" in failed["reasons"][0]
    assert "raw files were removed" in failed["reasons"][0]
    assert failed["files"] == {}


def test_a_disk_that_stays_full_leaves_the_attempt_to_the_next_run(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_writes(monkeypatch, 99)
    with pytest.raises(OSError, match="No space left"):
        run(context)
    assert not (attempt_dir(context) / "meta.json").exists()
    assert (attempt_dir(context) / "open.json").exists()


def test_a_lock_that_is_held_or_cannot_be_made(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case, "server_lock", lambda run, job: server_lock(run, job, 0.1))
    with server_lock(context.run_dir, "case other"), pytest.raises(LockedError, match="case other"):
        run(context)
    (context.run_dir / ".server.lock").unlink()
    (context.run_dir / ".server.lock").mkdir()
    with pytest.raises(ResultsError, match="lock cannot be written"):
        run(context)
    assert not attempt_dir(context).exists()
