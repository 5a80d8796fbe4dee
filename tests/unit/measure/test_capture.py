"""Captures against a made-up server and client: what is recorded, and what is never measured."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from servemap.measure import capture_files, capture_take
from servemap.measure import case as measuring
from servemap.measure.capture import run_capture
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.profiled import profiled_context, profiled_name
from servemap.measure.progress import capture_line
from servemap.model.errors import NodeError
from servemap.nodes.base import Completed, ProcessId
from servemap.nodes.local import LocalNode
from servemap.server.context import Context
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, campaign, fake_context

SERVED = Served("http://127.0.0.1:1", "f" * 64, "boot-1", "vllm", "fake 1", {}, False)
CASES = [
    {"id": "c", "isl": 64, "osl": 8, "concurrency": 2},
    {"id": "prefill", "isl": 64, "osl": 1, "concurrency": 1},
    {
        "id": "mixed",
        "kind": "mixed",
        "background": {"isl": 8, "osl": 64, "concurrency": 2, "num_prompts": 4},
        "inject": {"isl": 640, "osl": 1, "after_s": 1.5},
    },
]
RECORD = {
    "status": "ok",
    "reasons": [],
    "counts": {"planned": 4, "ok": 2},
    "warmup": {"ok": 2},
    "clock": {"wall_ns": 5_000, "mono_ns": 1_000},
    "profile": {
        "segment": "main",
        "start_ns": 10_000,
        "started_ns": 11_000,
        "whole_ns": 15_000,
        "whole": True,
        "stop_ns": None,
        "stopped_ns": None,
        "problem": None,
    },
}


class Node(FakeNode):
    """Its client leaves a record, its server traces; files are really listed and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.on_spawn["bench"] = self.bench
        self.traces = ["rank0.pt.trace.json.gz", "rank1.pt.trace.json.gz", "profiler_out_0.txt"]
        self.record: dict[str, Any] = RECORD
        self.specs: list[dict[str, Any]] = []
        self.folder = Path()

    def trace(self, name: str) -> bytes:
        text = json.dumps({"traceEvents": [], "name": name, "capture": len(self.specs)}).encode()
        return gzip.compress(text) if name.endswith(".gz") else text

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        really = argv[0] in ("find", "rm", "df", "mkdir", "chmod")
        return LocalNode.run(self, argv, **more) if really else super().run(argv, **more)

    def bench(self, argv: list[str], process: ProcessId) -> None:
        spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
        self.specs.append(spec)
        self.folder.mkdir(parents=True)
        for name in self.traces:
            (self.folder / name).write_bytes(self.trace(name))
        out = Path(argv[argv.index("--out") + 1])
        (out / "client.json").write_text(json.dumps({**self.record, "load_id": spec["load_id"]}))
        self.living.discard(process)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(capture_take, "PAUSE_S", 0.0)
    monkeypatch.setattr(capture_take, "server_down", lambda *_: None)
    monkeypatch.setattr(capture_take, "server_down_for_sure", lambda *_: None)
    monkeypatch.setattr(capture_take, "ensure_server", lambda *_: SERVED)
    return Node()


def vllm(node: Node, **server: Any) -> Context:
    spec = {"engine": "vllm", "port": 18999, "topology": {"tp": 2}, **server}
    phase = {
        "id": "phase1",
        "cases": [case["id"] for case in CASES],
        "captures": [{"case": case["id"], "num_steps": 6} for case in CASES],
    }
    context = fake_context(node, campaign(server=spec, cases=CASES, phases=[phase]))
    node.folder = Path(context.workdir("n1")) / "servemap-profiles"
    return context


def taken(context: Context, case: str = "c") -> dict[str, Any]:
    output = context.run_dir / f"captures/baseline/{case}/capture.json"
    record = run_capture(context, "baseline", case, 1, output)
    assert json.loads(output.read_text()) == record
    return record


def test_a_capture_is_bound_to_its_case_its_server_and_its_files(node: Node) -> None:
    context = vllm(node)
    record = taken(context)
    assert (record["status"], record["reasons"], record["profiled"]) == ("ok", [], True)
    assert record["spec"] == context.plan.spec_data("capture", "baseline", "c")
    assert record["spec_sha256"] == context.plan.spec_sha256("capture", "baseline", "c")
    assert record["server"]["variant"] == "baseline.profiled"
    assert record["server"]["boot_id"] == "boot-1"
    window = record["window"]
    assert (window["start_ns"], window["end_ns"], window["ended_by"]) == (10_000, 15_000, "steps")
    assert record["load"]["collectors"] == []
    assert not any(name == "collect" for name, _, _ in node.spawned)
    folder = context.run_dir / "captures/baseline/c"
    assert {name for name in record["files"] if name.startswith("n1/")} == {
        f"n1/{name}" for name in node.traces
    }
    for name, facts in record["files"].items():
        assert facts["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    assert "load/client.json" in record["files"]
    assert capture_line(record) == "capture baseline/c: ok, 2 traces"
    assert not node.folder.exists(), "nothing of it stays where the server writes"


def test_a_capture_that_is_taken_again_leaves_nothing_of_the_first(node: Node) -> None:
    context = vllm(node)
    taken(context)
    node.traces = ["a.json", "b.json"]
    record = taken(context)
    came = {name for name in record["files"] if name.startswith("n1/")}
    here = context.run_dir.glob("captures/baseline/c/n1/*")
    assert came == {"n1/a.json", "n1/b.json"} == {f"n1/{path.name}" for path in here}


def test_when_the_profile_begins(node: Node) -> None:
    context = vllm(node)
    for case in ("c", "prefill", "mixed"):
        taken(context, case)
    decode, prefill, mixed = node.specs
    assert decode["profile"]["settled"], "the first wave is let through its prefill"
    assert not prefill["profile"]["settled"]
    assert mixed["profile"]["after_s"] == 1.5, "with the long prompt"
    assert [one["name"] for one in mixed["segments"]] == ["injected"]
    assert mixed["profile"]["segment"] == "injected"
    assert decode["profile"]["start"] == "/start_profile"
    assert decode["profile"]["body"]["max_iterations"] == 6
    assert decode["profile"]["stop_always"], "vLLM refuses the next start otherwise"
    assert decode["warmup"] is not None


def test_a_rank_without_a_trace_fails_the_capture(node: Node) -> None:
    node.traces = node.traces[1:]
    record = taken(vllm(node))
    assert (record["status"], record["reasons"]) == ("failed", ["1 of 2 ranks left a trace"])
    assert record["cause"] is None, "the next command takes it once more"
    assert capture_line(record) == "capture baseline/c: failed: 1 of 2 ranks left a trace"


def test_a_profiler_that_was_not_started_is_the_reason(node: Node) -> None:
    node.traces = []
    problem = "the profiler was not started: HTTP status 404"
    node.record = {**RECORD, "profile": {**RECORD["profile"], "whole_ns": None, "problem": problem}}
    record = taken(vllm(node))
    assert (record["status"], record["reasons"]) == ("failed", [problem])
    assert record["window"]["ended_by"] == "stop"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotRunError("launch", "it did not start", "there", "see"), "not_run"),
        (NodeError("the disk is full", "n1", "make room"), "failed"),
    ],
)
def test_what_goes_wrong_is_recorded_and_not_raised(
    node: Node, monkeypatch: pytest.MonkeyPatch, error: Exception, status: str
) -> None:
    def refuse(*_: Any) -> Served:
        raise error

    monkeypatch.setattr(capture_take, "ensure_server", refuse)
    record = taken(vllm(node))
    assert record["status"] == status
    assert str(error) in record["reasons"]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"engine": "llamacpp", "topology": {}}, "llama.cpp is not built on PyTorch"),
    ],
)
def test_servers_of_which_no_capture_can_be_taken(
    node: Node, server: dict[str, Any], reason: str
) -> None:
    record = taken(vllm(node, **server))
    assert record["status"] == "not_available"
    assert reason in record["reasons"][0]
    assert node.specs == []


def test_the_start_for_captures_is_no_variants(node: Node) -> None:
    context = vllm(node)
    profiled = profiled_context(context, "baseline", 6)
    name = profiled_name("baseline")
    prints = {context.plan.spec_sha256("launch", one) for one in context.plan.variants}
    assert profiled.plan.spec_sha256("launch", name) not in prints
    assert name not in context.plan.variants
    assert "--profiler-config" not in str(context.plan.spec("launch", "baseline"))
    args = profiled.server(name).args
    assert json.loads(args["profiler-config"])["max_iterations"] == 6
    other = profiled_context(context, "few", 6)
    assert other.server(profiled_name("few")).settings.max_active == 2


def test_no_case_is_measured_on_a_server_that_was_started_for_captures(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = vllm(node)
    monkeypatch.setattr(measuring, "ensure_server", lambda *_: SERVED)
    monkeypatch.setattr(measuring, "start_load", lambda *_: pytest.fail("it was measured"))
    (context.run_dir / "server/baseline.profiled/boots/boot-1").mkdir(parents=True)
    output = context.run_dir / "cases/baseline/c/r1/meta.json"
    meta = run_case(context, Job("baseline", "c", 1, 1), output)
    assert meta["status"] == "not_run"
    assert "was started for captures" in meta["reasons"][0]


def test_only_files_that_look_like_traces_are_counted() -> None:
    sizes = {"n:/a.json": 3, "n:/b.trace.json.gz": 4, "n:/c.json": 0, "n:/profiler_out_0.txt": 9}
    assert capture_files.traces(sizes) == ["n:/a.json", "n:/b.trace.json.gz"]


