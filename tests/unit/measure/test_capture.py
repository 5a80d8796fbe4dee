"""Captures against a made-up server and client: what is recorded, and what is never measured."""

import gzip
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.summary import summarize
from servemap.cli_show import capture_table
from servemap.measure import capture_files, capture_run, capture_take
from servemap.measure import case as measuring
from servemap.measure.capture import run_capture
from servemap.measure.capture_status import first_of_starts, planned_captures
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.profiled import profiled_context, profiled_name
from servemap.measure.progress import capture_line
from servemap.measure.setup import load_context
from servemap.model.attempts import token
from servemap.model.captures import capture_records
from servemap.model.errors import ConfigError, NodeError
from servemap.nodes.base import Completed, ProcessId
from servemap.nodes.local import LocalNode
from servemap.server.context import Context
from servemap.server.hold.manifest import write_manifest
from servemap.server.launch.process import Running
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, FarNode, campaign, fake_context, two_nodes

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
        self.named: list[str] = []
        """Traces whose names begin as the capture asks, where the engine does that."""
        self.elsewhere: dict[Path, str] = {}
        """Such a trace by the folder of another node that it lies in."""
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
        asked = spec["profile"]["body"].get("profile_prefix")
        for name in [*self.traces, *(f"{asked}_{name}" for name in self.named)]:
            (self.folder / name).write_bytes(self.trace(name))
        for folder, name in self.elsewhere.items():
            folder.mkdir(parents=True)
            (folder / f"{asked}_{name}").write_bytes(self.trace(name))
        out = Path(argv[argv.index("--out") + 1])
        (out / "client.json").write_text(json.dumps({**self.record, "load_id": spec["load_id"]}))
        self.living.discard(process)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(capture_take, "PAUSE_S", 0.0)
    monkeypatch.setattr(capture_take, "server_down", lambda *_: None)
    monkeypatch.setattr(capture_run, "server_down_for_sure", lambda *_: None)
    monkeypatch.setattr(capture_take, "ensure_server", lambda *_: SERVED)
    return Node()


def vllm(node: Node, captures: dict[str, Any] | None = None, **server: Any) -> Context:
    spec = {"engine": "vllm", "port": 18999, "topology": {"tp": 2}, **server}
    asked = {"num_steps": 6} if captures is None else captures
    phase = {
        "id": "phase1",
        "cases": [case["id"] for case in CASES],
        "captures": [{"case": case["id"], **asked} for case in CASES],
    }
    context = fake_context(node, campaign(server=spec, cases=CASES, phases=[phase]))
    node.folder = Path(context.workdir("n1")) / "servemap-profiles"
    return context


def taken(context: Context, case: str = "c", token: int = 1) -> dict[str, Any]:
    output = context.run_dir / f"captures/baseline/{case}/capture.json"
    record = run_capture(context, "baseline", case, token, output)
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


def test_what_is_attached_to_or_not_offered_is_refused_at_planning() -> None:
    phase = {"id": "phase1", "captures": [{"case": "c"}]}
    attached = {"engine": "vllm", "attach": "http://127.0.0.1:1"}
    plain: dict[str, Any] = {"variants": [{"id": "baseline"}], "variables": []}
    with pytest.raises(ConfigError, match="only attached to"):
        load_context(campaign(server=attached, phases=[phase], **plain))
    # What was measured earlier can still be read.
    load_context(campaign(server=attached, phases=[phase], **plain), traces=False)


@pytest.mark.parametrize(
    ("engine", "captures", "where", "words"),
    [
        ("vllm", [{"case": "c", "stage": "decode"}], ".stage", "does not profile by stage"),
        ("vllm", [{"case": "c", "ranks": [0, 2]}], ".ranks", "rank 2 is none of its 2"),
        ("sglang", [{"case": "c", "ranks": [1, 1]}], ".ranks", "named twice"),
        ("vllm", [{"case": "c"}, {"case": "c", "num_steps": 5}], "", "in two ways"),
    ],
)
def test_a_capture_that_cannot_be_as_asked_is_refused_at_planning(
    engine: str, captures: list[dict[str, Any]], where: str, words: str
) -> None:
    server = {"engine": engine, "port": 18999, "topology": {"tp": 2}}
    phases = [{"id": "phase1", "captures": captures}]
    with pytest.raises(ConfigError) as caught:
        load_context(campaign(server=server, phases=phases))
    assert words in caught.value.what
    assert caught.value.where == f"phases.phase1.captures{where}"


def test_the_traces_of_another_profile_are_left_out(node: Node) -> None:
    """As an earlier one leaves them that ended late: the folder was empty before the load."""
    context = vllm(node)
    node.named = ["rank0.17.pt.trace.json.gz", "rank1.17.pt.trace.json.gz"]
    node.traces = ["older_rank0.16.pt.trace.json.gz", "older_rank1.16.pt.trace.json.gz"]
    record = taken(context)
    assert (record["status"], record["reasons"]) == ("ok", [])
    came = [name for name in record["files"] if name.startswith("n1/")]
    assert len(came) == 2
    assert all(name.startswith(f"n1/{record['load']['id']}_rank") for name in came)


def test_the_trace_of_another_capture_never_stands_for_ones_own(node: Node) -> None:
    """SGLang's other stage of the capture before begins in this one's warm-up."""
    other = "0123456789abcdef" * 2
    node.traces = [f"{other}_rank{rank}.16.pt.trace.json.gz" for rank in (0, 1)]
    record = taken(vllm(node))
    assert record["reasons"][0] == "0 of 2 ranks left a trace"
    assert not any("trace" in name for name in record["files"])


def test_more_traces_than_ranks_where_none_is_named_fail_the_capture(node: Node) -> None:
    node.traces = ["a.json", "b.json", "c.json"]
    record = taken(vllm(node))
    assert record["status"] == "failed"
    assert record["reasons"] == ["3 traces of 2 ranks: one is of another profile"]


def test_declared_ranks_alone_are_kept(node: Node) -> None:
    node.traces = []
    node.named = [f"rank{rank}.17.pt.trace.json.gz" for rank in range(4)]
    record = taken(vllm(node, captures={"ranks": [0, 3]}, topology={"tp": 4}))
    assert (record["status"], record["reasons"], record["ranks"]) == ("ok", [], 2)
    came = [name.partition("_")[2][:5] for name in record["files"] if name.startswith("n1/")]
    assert came == ["rank0", "rank3"]


def test_of_files_that_do_not_name_their_rank_all_are_kept(node: Node) -> None:
    """As older versions of vLLM write them."""
    node.traces = [f"host_{pid}.17.pt.trace.json.gz" for pid in range(4)]
    record = taken(vllm(node, captures={"ranks": [0, 3]}, topology={"tp": 4}))
    assert (record["status"], record["reasons"]) == ("ok", [])
    assert sum(name.startswith("n1/") for name in record["files"]) == 4


def test_the_traces_of_each_node_come_from_it(node: Node, tmp_path: Path) -> None:
    """The second node's files are not ours: they are fetched, and removed where they were."""
    far = FarNode("n2", tmp_path / "far")
    phase = {"id": "phase1", "captures": [{"case": "c", "num_steps": 6}]}
    two = two_nodes(engine="vllm", topology={"tp": 2})
    context = fake_context(node, {**two, "phases": [phase]})
    context.nodes["n2"] = far
    node.folder = Path(context.workdir("n1")) / "servemap-profiles"
    folder = Path(context.workdir("n2")) / "servemap-profiles"
    node.traces, node.named = [], ["rank0.17.pt.trace.json.gz"]
    node.elsewhere = {folder: "rank1.17.pt.trace.json.gz"}
    record = taken(context)
    assert (record["status"], record["reasons"]) == ("ok", [])
    came = {name.partition("/")[0]: name[-26:] for name in record["files"] if "_rank" in name}
    assert came == {"n1": "_rank0.17.pt.trace.json.gz", "n2": "_rank1.17.pt.trace.json.gz"}
    assert not folder.exists()
    node.elsewhere = {}
    record = taken(context, token=2)
    assert record["reasons"][0] == "1 of 2 ranks left a trace"


def test_traces_that_are_too_big_are_not_fetched(node: Node) -> None:
    context = vllm(node)
    node.traces = ["a.json", "b.json"]
    node.trace = lambda name: b"{" + b" " * 600_000 + b"}"  # type: ignore[method-assign]
    context.policy.__dict__["max_fetch_bytes"] = 1_000_000
    record = taken(context)
    (reason,) = record["reasons"]
    assert "0.0012 GB, more than policy.max_fetch_bytes (0.001 GB)" in reason
    assert "`ranks`" in reason
    assert not any(name.startswith("n1/") for name in record["files"])
    assert not node.folder.exists()


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_trace_that_is_cut_fails_the_capture_and_is_kept(node: Node, suffix: str) -> None:
    node.traces = [f"a{suffix}", f"b{suffix}"]
    made = node.trace
    node.trace = lambda name: made(name)[:-9] if name[0] == "b" else made(name)  # type: ignore[method-assign]
    record = taken(vllm(node))
    assert record["status"] == "failed"
    assert record["reasons"][0].startswith(f"the trace b{suffix} of node n1 is cut")
    assert f"n1/b{suffix}" in record["files"]


@given(st.binary(max_size=200), st.integers(0, 400))
def test_whole_is_what_ends_as_a_trace_does(text: bytes, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.json.gz")
        packed = gzip.compress(b'{"a": ' + json.dumps(text.hex()).encode() + b"}\n")
        path.write_bytes(packed[:cut])
        # The last 8 bytes are checksum and length, without which it is cut too.
        assert capture_files.whole(path) == (cut >= len(packed))


def test_a_disk_that_is_full_is_a_reason(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.traces = []
    asked = []

    def full(_: Any, names: list[str], place: Callable[[str], str]) -> list[str]:
        asked.extend(place(name) for name in names)
        return ["the disk of node n1 is full: 0 KiB are left for /there"]

    monkeypatch.setattr(capture_take, "full_disks", full)
    context = vllm(node)
    record = taken(context)
    assert record["reasons"][0] == "0 of 2 ranks left a trace"
    assert record["reasons"][-1].startswith("the disk of node n1 is full")
    assert asked == [context.workdir("n1")], "where the traces are written"


def test_steps_that_are_not_reached_are_said_to_be(node: Node) -> None:
    node.traces = []
    profile = {**RECORD["profile"], "whole": False, "whole_ns": None}
    node.record = {**RECORD, "profile": {**profile, "stop_error": "HTTP status 500"}}
    record = taken(vllm(node))
    assert record["reasons"] == [
        "0 of 2 ranks left a trace",
        "the steps that were asked for did not end within the load",
        "HTTP status 500",
    ]


@pytest.mark.parametrize(("status", "cause"), [(404, "profiler"), (405, "profiler"), (500, None)])
def test_a_server_without_the_call_is_not_asked_again(
    node: Node, status: int, cause: str | None
) -> None:
    node.traces = []
    problem = f"the profiler was not started: HTTP status {status}"
    profile = {**RECORD["profile"], "whole_ns": None, "problem": problem, "refused_with": status}
    node.record = {**RECORD, "profile": profile}
    context = vllm(node)
    record = taken(context)
    assert (record["status"], record["cause"]) == ("failed", cause)
    (planned, *_) = planned_captures(context)
    assert planned.state == ("gave_up" if cause else "failed")
    assert ("has no such call" in record["reasons"][0]) == (cause is not None)


def test_a_server_that_dies_in_a_capture_is_put_away_and_costs_no_case_its_own(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = vllm(node)
    ended: list[tuple[Any, ...]] = []
    rank = Running("baseline.profiled", "f", "boot-1", 1, ProcessId(1, 1, "b"), 1)
    monkeypatch.setattr(capture_run, "server_down_for_sure", lambda *_: "killed by signal 9")
    monkeypatch.setattr(capture_run, "standing", lambda *_: {"n1": rank})
    monkeypatch.setattr(capture_run, "why_lost", lambda *_: ["its log says why"])
    monkeypatch.setattr(capture_run, "finish", lambda *given: ended.append(given[1:]))
    node.traces = []
    record = taken(context)
    assert record["reasons"][:2] == ["killed by signal 9 during the capture", "its log says why"]
    # Else the next case would find it, and `on_unhealthy: abort` would end the campaign.
    words = "killed by signal 9 during the capture; its log says why"
    assert ended == [({"n1": rank}, "died", words)]


def test_a_capture_is_tried_as_often_as_a_case_and_then_given_up(node: Node) -> None:
    context = vllm(node)
    good, node.traces = node.traces, []

    def stands() -> tuple[str, int, int]:
        (one, *_) = planned_captures(context)
        records = capture_records("r", "baseline", "c")
        sha256 = context.plan.spec_sha256("capture", "baseline", "c")
        return one.state, one.tries, token(records, sha256, context.policy.max_attempts)

    assert stands() == ("missing", 0, 1)
    taken(context, token=1)
    assert stands() == ("failed", 1, 2)
    taken(context, token=2)
    assert stands() == ("gave_up", 2, 2)
    node.traces = good
    taken(context, token=2)
    assert stands() == ("done", 3, 2)
    (context.run_dir / "captures/baseline/c/n1" / good[0]).unlink()
    assert stands() == ("damaged", 3, 3)
    (context.run_dir / "captures/baseline/c/capture.json").unlink()
    assert stands()[0] == "damaged"


def test_no_capture_is_a_result(node: Node) -> None:
    """The tables of cases do not know of its load, which has a segment of the same name."""
    context = vllm(node)
    assert taken(context)["status"] == "ok"
    write_manifest(context.run_dir, context.plan.campaign, {"session": "s1"})
    rows = summarize(context.run_dir, context.plan.rows())
    assert len(rows) == len(context.plan.rows())
    assert [row for row in rows if row["status"] == "ok" or row["attempt"]] == []
    assert not (context.run_dir / "cases").exists()


def test_the_plan_counts_the_starts_of_captures(node: Node) -> None:
    context = vllm(node, captures={"num_steps": 6})
    captures = planned_captures(context)
    assert [one.variant for one in captures] == ["baseline"] * 3 + ["few"] * 3
    assert len(first_of_starts(captures)) == 2, "one for the captures of each variant"
    one_more = [captures[0], replace(captures[1], start="another"), captures[2]]
    assert len(first_of_starts(one_more)) == 3
    taken(context)
    assert [one.runs for one in planned_captures(context)] == [False, *[True] * 5]
    text = capture_table(planned_captures(context))
    assert "baseline" in text
    assert "done" in text
    assert "torch, 6 steps  " in text
    llamacpp = vllm(node, engine="llamacpp", topology={})
    assert first_of_starts(planned_captures(llamacpp)) == []
    assert "not built on PyTorch" in capture_table(planned_captures(llamacpp))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "nsys"}, "nsys, 2 s, graphs by node"),
        ({"kind": "nsys", "seconds": 0.5, "graphs": "graph"}, "nsys, 0.5 s, graphs by graph"),
        (
            {"num_steps": 6, "stage": "decode", "ranks": [0, 1]},
            "torch, 6 steps of decode, ranks 0 1",
        ),
    ],
)
def test_the_plan_says_what_profile_is_asked_for(
    node: Node, asked: dict[str, Any], said: str
) -> None:
    engine = "sglang" if "stage" in asked else "vllm"
    planned = planned_captures(vllm(node, captures=asked, engine=engine))
    assert {one.profile for one in planned} == {said}
