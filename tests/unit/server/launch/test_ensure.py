"""Which server a job gets: reused, relaunched, given up or refused, and what is recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Effective
from servemap.engines.llamacpp import LlamaCpp
from servemap.measure.profiled import profiled_context, profiled_name
from servemap.model.errors import ConfigError
from servemap.nodes.base import ProcessId
from servemap.onnode import redact
from servemap.server.context import Context
from servemap.server.events import append_event, read_events
from servemap.server.freeze import freeze_node
from servemap.server.gates.checks import Check, GateResult
from servemap.server.launch import admit, boots, ensure, logs, process, start
from servemap.server.launch import stage as launch
from servemap.server.launch.ending import stop_server
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import server_url
from servemap.server.not_run import NotRunError
from servemap.server.stop import request_stop
from tests.fakes import FakeNode, campaign, everything_written, fake_context


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Answers:
    """What the server says when it is asked; gates see the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.healthy = True
        self.unhealthy = "HTTP 500"
        self.gates = [Check("port", True, "ours")]
        self.port_free = True
        self.settings = {"context": 2048}
        monkeypatch.setattr(admit, "check_ready", self.completion)
        monkeypatch.setattr(ensure, "check_completion", self.completion)
        monkeypatch.setattr(admit, "run_gates", self.run_gates)
        monkeypatch.setattr(ensure, "run_gates", self.run_gates)
        monkeypatch.setattr(start, "require_clean", self.require_clean)
        monkeypatch.setattr(admit, "only_ours", lambda *args: [])

    def completion(self, *args: Any) -> Check:
        return Check("completion", self.healthy, "token" if self.healthy else self.unhealthy)

    def run_gates(self, *args: Any) -> GateResult:
        return GateResult(
            self.gates, Effective(engine_version="fake 1", settings=dict(self.settings))
        )

    def require_clean(self, *args: Any) -> None:
        if not self.port_free:
            raise NotRunError("launch", "pid 7 listens", "node n1", "stop it")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


def again(context: Context, node: FakeNode, session: str) -> Context:
    """The same campaign in a later session."""
    return fake_context(node, context.plan.campaign.model_dump(mode="json"), session)


def last_boot(context: Context, variant: str = "baseline") -> boots.Boot:
    return boots.read_boots(context.run_dir, variant)[-1]


def test_started_once_then_reused(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    first = ensure_server(context, "baseline")
    second = ensure_server(context, "baseline")
    assert (first.reused, second.reused) == (False, True)
    assert first.boot_id == second.boot_id
    assert second.checks == first.checks, "a reused server keeps the evidence of its gates"
    assert second.engine_version == "fake 1"
    assert second.pids == {"n1": [node.server.pid]}
    assert node.starts() == 1
    assert last_boot(context).status == "ready"
    later = ensure_server(again(context, node, "s2"), "baseline")
    assert later.reused, "a live matching server outlives its controller"


def test_another_variant_stops_the_first(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    ensure_server(context, "baseline")
    old = node.server
    served = ensure_server(context, "few")
    assert old not in node.living
    assert not served.reused
    assert last_boot(context).status == "stopped"
    assert last_boot(context).reason == "variant few is next"
    assert last_boot(context, "few").status == "ready"


def test_a_start_for_captures_is_never_taken_for_one_of_results(
    node: FakeNode, answers: Answers
) -> None:
    context = fake_context(node, campaign(server={"engine": "vllm", "port": 18999}))
    plain = ensure_server(context, "baseline")
    profiled = profiled_context(context, "baseline", 5)
    first = ensure_server(profiled, profiled_name("baseline"))
    second = ensure_server(profiled, profiled_name("baseline"))
    assert (first.reused, second.reused) == (False, True), "captures share a start"
    assert "--profiler-config" in first.argv
    old = node.server
    again_ = ensure_server(context, "baseline")
    assert old not in node.living
    assert not again_.reused
    assert again_.fingerprint == plain.fingerprint != first.fingerprint
    assert "--profiler-config" not in again_.argv
    assert {boot.boot_id for boot in boots.read_boots(context.run_dir, "baseline")} == {
        plain.boot_id,
        again_.boot_id,
    }, "a start for captures that fails gives no variant up"


def test_each_round_of_repeats_has_a_start_of_its_own(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    served = [ensure_server(context, "baseline", turn) for turn in (None, 1, 1, 2, 2, 1)]
    boot_ids = [one.boot_id for one in served]
    assert [one.reused for one in served] == [False, True, True, False, True, False]
    assert len(set(boot_ids)) == 3
    first = boots.read_boots(context.run_dir, "baseline")[0]
    assert (first.turn, first.status) == (1, "stopped")
    assert "round 2 of the repeats" in (first.reason or "")
    assert ensure_server(context, "baseline").reused, "any start will do without rounds"


def test_a_start_that_was_never_gated_is_not_reused(node: FakeNode, answers: Answers) -> None:
    """kill -9 between the start and the gates leaves a server that answers but proved nothing."""
    context = fake_context(node, campaign())
    ensure_server(context, "baseline")
    boot = last_boot(context)
    path = boots.boot_dir(context.run_dir, "baseline", boot.boot_id) / "boot.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "starting"}))
    assert not ensure_server(context, "baseline").reused
    path.unlink()
    for other in (context.run_dir / "server/baseline/boots").glob("*/boot.json"):
        other.unlink()
    assert not ensure_server(context, "baseline").reused, "nor one without any record"
    assert node.starts() == 3


def test_a_server_without_its_supervisor_is_replaced(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    ensure_server(context, "baseline")
    node.living.discard(node.supervisor)
    old = node.server
    served = ensure_server(context, "baseline")
    assert not served.reused
    assert old in node.stopped
    assert old not in node.living
    assert any("supervisor is gone" in (b.reason or "") for b in boots.read_boots(
        context.run_dir, "baseline"))  # fmt: skip
    assert boots.deaths(context.run_dir, "baseline", "s1") == []


@pytest.mark.parametrize("policy", ["relaunch", "abort"])
def test_health_that_is_lost(node: FakeNode, answers: Answers, policy: str) -> None:
    config = campaign(policy={"on_unhealthy": policy, "stop_grace_s": 0.1})
    context = fake_context(node, config)
    ensure_server(context, "baseline")
    node.server_dies(signal=9, code=None)
    if policy == "relaunch":
        assert not ensure_server(context, "baseline").reused
    else:
        for _ in range(2):
            with pytest.raises(NotRunError, match="lost its health") as caught:
                ensure_server(context, "baseline")
            assert caught.value.cause == "abort"
        assert node.starts() == 1
    (dead,) = boots.deaths(context.run_dir, "baseline", "s1")
    assert "signal 9" in (dead.reason or "")


@pytest.mark.parametrize("tells", ["log", "container"])
def test_health_lost_for_want_of_memory_is_replaced_whatever_the_policy(
    node: FakeNode, answers: Answers, tells: str
) -> None:
    context = fake_context(node, campaign())
    assert context.policy.on_unhealthy == "abort", "as where a campaign says nothing"
    if tells == "log":
        node.server_log = "E: failed to allocate buffer for kv cache\n"
    ensure_server(context, "baseline")
    node.server_dies(signal=9, code=None, **({"oom_killed": True} if tells == "container" else {}))
    assert not ensure_server(context, "baseline").reused
    (dead,) = boots.deaths(context.run_dir, "baseline", "s1")
    assert "out of memory" in (dead.reason or "") or "memory was used up" in (dead.reason or "")


def test_a_lapsed_lease_is_no_lost_health(node: FakeNode, answers: Answers) -> None:
    config = campaign(policy={"on_unhealthy": "abort", "stop_grace_s": 0.1})
    context = fake_context(node, config)
    ensure_server(context, "baseline")
    node.server_dies(reason="lease_expired", code=0, signal=None)
    assert not ensure_server(context, "baseline").reused
    assert boots.deaths(context.run_dir, "baseline", "s1") == []


def test_a_lost_server_of_an_earlier_session_aborts_nothing(
    node: FakeNode, answers: Answers
) -> None:
    config = campaign(policy={"on_unhealthy": "abort", "stop_grace_s": 0.1})
    context = fake_context(node, config)
    ensure_server(context, "baseline")
    node.server_dies(signal=9, code=None)
    assert not ensure_server(again(context, node, "s2"), "baseline").reused


def test_a_variant_that_keeps_dying_is_given_up(node: FakeNode, answers: Answers) -> None:
    config = campaign(policy={"max_deaths": 2, "stop_grace_s": 0.1, "start_timeout_s": 0.1})
    context = fake_context(node, config)
    node.on_spawn["supervise"] = lambda argv, pid: (
        node.supervise(argv, pid),
        node.server_dies(code=3),
    )[0]
    for _ in range(2):
        with pytest.raises(NotRunError, match="exited with code 3") as caught:
            ensure_server(context, "baseline")
        assert caught.value.cause == "launch"
    with pytest.raises(NotRunError, match="given up after 2 starts") as caught:
        ensure_server(context, "baseline")
    assert caught.value.cause == "breaker"
    assert node.starts() == 2
    with pytest.raises(NotRunError, match="code 3"):
        ensure_server(again(context, node, "s2"), "baseline")


def test_a_failed_gate_stops_the_server(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    answers.gates = [Check("module", False, "imported /elsewhere", "set server.cwd")]
    with pytest.raises(NotRunError, match="imported /elsewhere") as caught:
        ensure_server(context, "baseline")
    assert caught.value.cause == "launch"
    assert node.server not in node.living
    boot = last_boot(context)
    assert boot.status == "failed"
    folder = boots.boot_dir(context.run_dir, "baseline", boot.boot_id)
    assert (folder / "n1.log").read_text() == node.server_log
    gate = json.loads((folder / "gate.json").read_text())
    assert [c["ok"] for c in gate["checks"]] == [True, False, True]


def test_a_taken_port_starts_nothing(node: FakeNode, answers: Answers) -> None:
    answers.port_free = False
    with pytest.raises(NotRunError, match="pid 7 listens"):
        ensure_server(fake_context(node, campaign()), "baseline")
    assert node.starts() == 0


def test_a_stop_request_holds_for_its_session_only(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    request_stop(context.run_dir, "s1", "stop", "lunch")
    with pytest.raises(NotRunError, match="lunch") as caught:
        ensure_server(context, "baseline")
    assert caught.value.cause == "stop"
    assert ensure_server(again(context, node, "s2"), "baseline")


def freeze(context: Context, facts: dict[str, Any]) -> None:
    path = context.run_dir / "freeze" / "n1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "node": "n1", "facts": facts}))


def test_drift_refuses(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    freeze(context, {"kernel": {"release": "5.15"}})
    with pytest.raises(NotRunError, match=r"n1: kernel.release was '5.15', is '6.1'") as caught:
        ensure_server(context, "baseline")
    assert caught.value.cause == "drift"
    assert "freeze/NODE.json, which makes every launch and case of that node" in caught.value.remedy
    assert node.starts() == 0


def test_drift_that_is_marked_marks_every_use_of_the_server(
    node: FakeNode, answers: Answers
) -> None:
    config = campaign(policy={"on_drift": "mark", "stop_grace_s": 0.1})
    context = fake_context(node, config)
    freeze(context, {"kernel": {"release": "5.15"}})
    drifts = [ensure_server(context, "baseline").drift for _ in range(3)]
    drifts.append(ensure_server(again(context, node, "s2"), "baseline").drift)
    assert drifts == [["n1: kernel.release was '5.15', is '6.1'"]] * 4
    assert node.starts() == 1


def test_a_mark_of_the_start_stays_with_every_use_of_the_server(
    node: FakeNode, answers: Answers
) -> None:
    rails = {"nodes": [{"id": "n1", "rails": [{"netdev": "eth9"}]}]}
    context = fake_context(node, campaign(**rails, policy={"on_drift": "mark"}))
    node.facts = {"nics": {"interfaces": {}, "rdma": {}}}
    freeze(context, node.facts)
    said = ["rails: n1: there is no interface eth9 (there: none)"]
    assert ensure_server(context, "baseline").drift == said
    assert ensure_server(again(context, node, "s2"), "baseline").drift == said
    assert node.starts() == 1


def test_facts_that_drift_under_a_server_of_an_earlier_session(
    node: FakeNode, answers: Answers
) -> None:
    context = fake_context(node, campaign())
    freeze(context, {"kernel": {"release": "6.1"}})
    ensure_server(context, "baseline")
    node.facts = {"kernel": {"release": "6.2"}}
    with pytest.raises(NotRunError, match=r"is '6\.2'"):
        ensure_server(again(context, node, "s2"), "baseline")


def test_a_secret_is_written_nowhere(
    node: FakeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLAINLY_NAMED", "hunter2-hunter2")
    server = {
        "engine": "llamacpp",
        "env": {"NODE_SAYS": {"secret": "PLAINLY_NAMED"}, "OPEN": "1"},
    }
    context = fake_context(node, campaign(server=server))
    launch.launch_variant(context, "baseline", 1, Path("results/r/server/baseline/launch.json"))
    stop_server(context, "the end")
    text = everything_written(tmp_path)
    assert "hunter2" not in text
    assert "PLAINLY_NAMED" in text, "the reference is recorded"
    (_, argv, env) = node.spawned[0]
    assert env == {"NODE_SAYS": "hunter2-hunter2"}
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    assert "NODE_SAYS" not in spec["env"], "the node's own value must not replace the secret"
    assert spec["env"]["OPEN"] == "1"


def test_a_secret_that_is_not_set_is_a_failed_launch(node: FakeNode, answers: Answers) -> None:
    server = {"engine": "llamacpp", "env": {"A": {"secret": "NOT_SET_ANYWHERE"}}}
    context = fake_context(node, campaign(server=server))
    output = Path("results/r/server/baseline/launch.json")
    launch.launch_variant(context, "baseline", 1, output)
    record = json.loads(output.read_text())
    assert (record["status"], record["cause"]) == ("failed", "launch")
    assert "NOT_SET_ANYWHERE" in record["reasons"][0]
    assert node.starts() == 0


def test_the_nodes_environment_reaches_the_server(node: FakeNode, answers: Answers) -> None:
    ensure_server(fake_context(node, campaign()), "baseline")
    (_, argv, _) = node.spawned[0]
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    assert spec["env"]["NODE_SAYS"] == "hello"


@pytest.mark.parametrize(
    ("bind", "address", "url"),
    [
        ("127.0.0.1", "10.0.0.1", "http://127.0.0.1:18999"),
        ("0.0.0.0", "10.0.0.1", "http://10.0.0.1:18999"),
        ("::", "fd00::1", "http://[fd00::1]:18999"),
        ("::1", "10.0.0.1", "http://[::1]:18999"),
    ],
)
def test_the_url_that_clients_use(node: FakeNode, bind: str, address: str, url: str) -> None:
    config = campaign(
        nodes=[{"id": "w", "role": "worker", "address": "10.9.9.9"}, {"id": "n1",
               "address": address}],
        server={"engine": "llamacpp", "port": 18999, "bind": bind},
    )  # fmt: skip
    context = fake_context(node, config)
    assert server_url(context, context.server("baseline")) == url


def test_an_attached_server_is_neither_started_nor_stopped(
    node: FakeNode, answers: Answers
) -> None:
    config = campaign(
        server={"engine": "vllm", "attach": "http://10.0.0.9:8000/v1/"},
        variables=[],
        variants=[{"id": "as-it-is"}],
    )
    context = fake_context(node, config)
    served = ensure_server(context, "as-it-is")
    assert (served.url, served.boot_id, served.pids) == ("http://10.0.0.9:8000/v1", None, {})
    assert served.fingerprint == context.plan.spec_sha256("launch", "as-it-is")
    assert node.spawned == []
    assert stop_server(context, "the end") is False
    answers.gates = [Check("model", False, "served: other", "mend model.name")]
    with pytest.raises(NotRunError, match="served: other"):
        ensure_server(context, "as-it-is")


def test_an_attached_server_cannot_be_patched(tmp_path: Path) -> None:
    patch = {"id": "p", "source": "a", "target": "b", "root": "."}
    config = campaign(
        server={"engine": "vllm", "attach": "http://h:1", "patches": [patch]},
        variables=[], variants=[{"id": "baseline"}],
    )  # fmt: skip
    with pytest.raises(ConfigError, match="only attached to"):
        fake_context(FakeNode(), config)


def test_launch_record_of_a_reused_server_has_its_gates(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    ensure_server(context, "baseline")
    output = Path("launch.json")
    launch.launch_variant(again(context, node, "s2"), "baseline", 4, output)
    record = json.loads(output.read_text())
    assert (record["status"], record["token"]) == ("ok", 4)
    assert [check["name"] for check in record["gate"]["checks"]] == ["ready", "port", "settings"]
    assert record["argv"] == last_boot(context).argv
    kept = json.loads(Path("results/r/server/baseline/launches/001/meta.json").read_text())
    assert kept == record


def test_a_server_with_other_settings_than_asked_is_not_measured(
    node: FakeNode, answers: Answers
) -> None:
    answers.settings = {"context": 1024}
    context = fake_context(node, campaign())
    with pytest.raises(NotRunError, match=r"settings\.context: asked 2048, got 1024"):
        ensure_server(context, "baseline")
    assert last_boot(context).status == "failed"
    assert not node.alive(node.server)


def test_launch_records_a_failure_with_the_last_lines(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    node.server_log = "loading\nfatal: no such card\n"
    answers.gates = [Check("port", False, "nobody listens", "see the log")]
    output = Path("launch.json")
    launch.launch_variant(context, "baseline", 1, output)
    record = json.loads(output.read_text())
    assert record["status"] == "failed"
    assert record["log_tail"][-1] == "fatal: no such card"
    assert record["gate"]["checks"][1]["evidence"] == "nobody listens"
    assert (record["ready_ns"], record["start_s"]) == (None, None)


def silent(node: FakeNode, answers: Answers, log: str, engine: str = "vllm") -> dict[str, Any]:
    """The launch record of a server that lives, writes a log and never answers."""
    node.server_log = log
    answers.healthy = False
    server = {"engine": engine, "port": 18999}
    policy = {"stop_grace_s": 0.1, "start_timeout_s": 0.1}
    output = Path("launch.json")
    launch.launch_variant(
        fake_context(node, campaign(server=server, policy=policy)), "baseline", 1, output
    )
    record: dict[str, Any] = json.loads(output.read_text())
    assert record["status"] == "failed"
    return record


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's name with the commands of the embedded engine."""
    monkeypatch.setattr(start, "get_engine", lambda _: LlamaCpp())
    monkeypatch.setattr(admit, "get_adapter", lambda _: LlamaCpp())


@pytest.mark.usefixtures("vllm")
def test_a_capture_that_never_ends_is_named_as_a_hang(node: FakeNode, answers: Answers) -> None:
    record = silent(node, answers, "loaded\nCapturing the model for CUDA graphs.\n")
    (reason,) = record["reasons"]
    assert reason.startswith(
        "The capture of graphs began and never ended, while the process lives;"
    )
    assert "\n  remedy: Set settings.cuda_graph=false" in reason
    assert "no new line in its log" in reason
    (finding,) = record["diagnosis"]["n1"]["findings"]
    assert (finding["id"], finding["failure"], finding["line_number"]) == (
        "capture-hang",
        "hang",
        2,
    )
    assert record["diagnosis"]["n1"]["unknown"] is None
    assert not node.living, "it is ended all the same"


@pytest.mark.usefixtures("vllm")
def test_an_unknown_failure_is_more_than_its_exit(node: FakeNode, answers: Answers) -> None:
    begin = node.on_spawn["supervise"]

    def dies(argv: list[str], pid: ProcessId) -> None:
        begin(argv, pid)
        node.server_dies(code=1)

    node.on_spawn["supervise"] = dies
    log = (
        "Traceback (most recent call last):\n"
        '  File "/x/odd.py", line 3, in begin\n'
        "OddError: --api-key=s3cr3t does not fit\n"
    )
    record = silent(node, answers, log)
    (reason,) = record["reasons"]
    assert (
        "first traceback: OddError: --api-key=<redacted> does not fit at /x/odd.py:3 in begin; "
        "last errors of its log: OddError: "
    ) in reason
    assert reason.count("the server exited with code 1") == 1
    unknown = record["diagnosis"]["n1"]["unknown"]
    assert unknown["traceback"]["line_number"] == 1
    assert record["diagnosis"]["n1"]["exit"] == "the server exited with code 1"
    assert "s3cr3t" not in json.dumps(record)


def test_a_gate_that_fails_on_a_ready_server_is_not_looked_for_in_its_log(
    node: FakeNode, answers: Answers
) -> None:
    answers.gates = [Check("context", False, "asked 9, got 8")]
    with pytest.raises(NotRunError, match=r"^context: asked 9, got 8"):
        ensure_server(fake_context(node, campaign()), "baseline")


def test_a_credential_in_a_log_or_an_answer_is_written_nowhere(
    node: FakeNode, answers: Answers
) -> None:
    context = fake_context(node, campaign())
    node.server_log = "started with --api-key=s3cr3t\nHF_TOKEN=s3cr3t\nfatal: no such card\n"
    answers.gates = [Check("port", False, "it said: Bearer s3cr3t", "see the log")]
    output = context.run_dir / "launch.json"
    launch.launch_variant(context, "baseline", 1, output)
    record = json.loads(output.read_text())
    assert record["log_tail"][-1] == "fatal: no such card"
    assert "it said: Bearer <redacted>" in record["reasons"][0]
    assert record["gate"]["checks"][1]["evidence"] == "it said: Bearer <redacted>"
    assert last_boot(context).reason == "port: it said: Bearer <redacted>"
    assert "s3cr3t" not in everything_written(context.run_dir)


def test_lost_health_is_recorded_without_a_credential(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign(policy={"on_unhealthy": "abort"}))
    ensure_server(context, "baseline")
    answers.unhealthy = "Bearer s3cr3t"
    answers.healthy = False
    with pytest.raises(NotRunError, match="it lost its health: Bearer <redacted>"):
        ensure_server(context, "baseline")
    assert "s3cr3t" not in everything_written(context.run_dir)


def test_the_value_of_a_secret_is_nowhere_whatever_the_server_says(
    node: FakeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redact, "_hidden", set())
    monkeypatch.setattr(redact, "_hidden_pattern", None)
    monkeypatch.setenv("LOGIN", "quietly-known-77")
    server = {"engine": "llamacpp", "port": 18999, "env": {"LOGIN": {"secret": "LOGIN"}}}
    context = fake_context(node, campaign(server=server))
    node.server_log = "cannot log in with quietly-known-77\n"
    node.facts["python"] = {"executable": "/x/quietly-known-77"}
    answers.gates = [Check("port", False, "it said: quietly-known-77", "see the log")]
    launch.launch_variant(context, "baseline", 1, context.run_dir / "launch.json")
    record = json.loads((context.run_dir / "launch.json").read_text())
    assert record["log_tail"] == ["cannot log in with <redacted>"]
    freeze_node(context, "n1", context.run_dir / "n1.json", context.run_dir / "before.json")
    append_event(context.run_dir, "any", said=["quietly-known-77"])
    assert "quietly-known-77" not in everything_written(context.run_dir)


def test_a_log_that_cannot_be_rewritten_is_not_kept(
    node: FakeNode, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(data: object) -> None:
        raise OSError(28, "No space left on device")

    context = fake_context(node, campaign())
    node.server_log = "HF_TOKEN=s3cr3t\n"
    monkeypatch.setattr(logs, "redacted", full)
    ensure_server(context, "baseline")
    (event,) = (e for e in read_events(context.run_dir) if e["event"] == "log_not_fetched")
    assert "No space left" in event["error"]
    assert "s3cr3t" not in everything_written(context.run_dir)


def test_line_ends_of_a_redacted_log_stay(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    node.server_log = "10%\r20%\r\nHF_TOKEN=s3cr3t\r\n"
    ensure_server(context, "baseline")
    kept = boots.boot_dir(context.run_dir, "baseline", last_boot(context).boot_id) / "n1.log"
    assert kept.read_bytes() == b"10%\r20%\r\nHF_TOKEN=<redacted>\r\n"


def test_launch_that_was_stopped_is_not_run(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    request_stop(context.run_dir, "s1", "stop", "lunch")
    output = Path("launch.json")
    launch.launch_variant(context, "baseline", 1, output)
    assert json.loads(output.read_text())["status"] == "not_run"


def test_a_server_that_does_not_end_is_said(node: FakeNode, answers: Answers) -> None:
    context = fake_context(node, campaign())
    ensure_server(context, "baseline")
    node.stubborn.add(node.server)
    node.living.discard(node.supervisor)
    with pytest.raises(NotRunError, match="does not end") as caught:
        ensure_server(context, "few")
    assert f"pid {node.server.pid}" in caught.value.where
    assert process.read_running(node, context.workdir("n1")) is not None, "it is not forgotten"
