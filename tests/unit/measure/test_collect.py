"""Collectors around a case: which run, with what, and what became of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.telemetry import read_telemetry
from servemap.measure import collect
from servemap.measure.collect import (
    await_collectors,
    chosen_collectors,
    collector_records,
    collector_spec,
    ended_early,
    runnable,
    server_log,
    simulated_mark,
    start_collectors,
)
from servemap.measure.setup import load_context
from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError, NodeError
from servemap.nodes.base import ProcessId
from servemap.onnode.collect import check_collectors
from servemap.server import patience
from servemap.server.patience import Patience
from servemap.telemetry.align import Segment
from servemap.telemetry.collectors import Collector
from tests.fakes import BOOT, FakeNode, campaign
from tests.far_nodes import FlakyNode
from tests.plain_align import rows_of


def of(**keys: object) -> Campaign:
    return load_context(campaign(**keys)).plan.campaign


ATTACH = {
    "server": {"engine": "vllm", "attach": "http://h:1"},
    "variables": [],
    "variants": [{"id": "baseline"}],
}


def test_all_run_where_none_is_named() -> None:
    chosen = {item.name: item.required for item in chosen_collectors(of())}
    assert [name for name, required in chosen.items() if required] == ["proc", "engine_metrics"]
    assert [name for name, required in chosen.items() if not required] == [
        *("nvidia_smi", "nvidia_pmon", "dcgm", "pressure", "hca", "mpstat", "pidstat", "numa"),
        *("tcp", "ethtool", "amd_smi", "rocm_smi", "ixsmi", "mx_smi", "npu_smi", "xpu_smi"),
    ]


def test_a_tool_is_not_asked_faster_than_it_can() -> None:
    (chosen,) = chosen_collectors(of(collectors={"nvidia_pmon": {"interval_s": 1.5}}))
    assert chosen.interval_s == 2.0
    spec = spec_of([chosen], None)
    assert (spec["argv"][-2:], spec["otherwise"], spec["interval_s"]) == (["-d", "2"], [], 2.0)


def spec_of(chosen: list[Collector], url: str | None) -> dict[str, Any]:
    (one,) = collector_spec(
        chosen, node="n1", raw="/raw", pids=[7], metrics_url=url, log=None, heartbeat="/h",
        until=None, gone_s=5, max_s=9, load_id="x",
    )["collectors"]  # fmt: skip
    check_collectors([one])
    return one


def test_a_replayed_recording_marks_the_attempt(tmp_path: Path) -> None:
    (tmp_path / "n1").mkdir()
    ran = {"status": "ok", "samples": 3, "error": None, "program": "/x/dcgmi", "simulated": True}
    ended = {"load_id": "x", "collectors": {"dcgm": ran}}
    (tmp_path / "n1" / "collectors.json").write_text(json.dumps(ended))
    records = collector_records(tmp_path, chosen_collectors(of()), "n1", "x")
    assert (records["n1/dcgm"]["simulated"], records["n1/dcgm"]["program"]) == (True, "/x/dcgmi")
    assert simulated_mark(records) == {"simulated": True}
    assert simulated_mark({"n1/proc": records["n1/proc"]}) == {}


def test_those_that_are_named_run_as_they_are_set() -> None:
    chosen = chosen_collectors(of(collectors={
        "proc": {"interval_s": 0.1, "required": False},
        "engine_metrics": {"enabled": False},
    }))  # fmt: skip
    assert [(item.name, item.interval_s, item.required) for item in chosen] == [
        ("proc", 0.1, False)
    ]


def test_one_that_is_not_known_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="no collector 'nvidia'") as caught:
        of(collectors={"nvidia": {}})
    assert caught.value.where == "collectors.nvidia"


@pytest.mark.parametrize(("setting", "required"), [(None, False), ({}, False),
                                                   ({"required": True}, True)])  # fmt: skip
def test_an_attached_server_need_not_serve_metrics(
    setting: dict[str, bool] | None, required: bool
) -> None:
    keys = {} if setting is None else {"collectors": {"engine_metrics": setting, "proc": {}}}
    chosen = {item.name: item for item in chosen_collectors(of(**ATTACH, **keys))}
    assert chosen["engine_metrics"].required is required
    assert chosen["proc"].required


def test_the_spec_leaves_out_what_has_nothing_to_read() -> None:
    chosen = chosen_collectors(of(collectors={"proc": {}, "engine_metrics": {}}))
    spec = collector_spec(
        chosen, node="n1", raw="/raw", pids=[7], metrics_url=None, log=None, heartbeat="/h",
        until="/raw/client.json", gone_s=5, max_s=9, load_id="x",
    )  # fmt: skip
    assert [(item["name"], item["root_pids"]) for item in spec["collectors"]] == [("proc", [7])]
    assert (spec["renew"], spec["max_s"], spec["load_id"]) == ("/h", 9, "x")
    assert spec["server"] == {"pids": [7], "gone_s": 5}
    assert (spec["out"], spec["until"]) == ("/raw/telemetry/n1", "/raw/client.json")
    assert spec["ready_file"] == "/raw/telemetry/n1/collect.ready"
    assert [item.name for item in runnable(chosen, None, None)] == ["proc"]
    assert [item.name for item in runnable(chosen, "http://h/metrics", None)] == [
        "proc",
        "engine_metrics",
    ]


def test_what_became_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "n1"
    folder.mkdir()
    ended = {"load_id": "x", "collectors": {"proc": {"status": "ok", "samples": 4, "error": None}}}
    (folder / "collectors.json").write_text(json.dumps(ended))
    records = collector_records(tmp_path, chosen_collectors(of()), "n1", "x")
    assert (records["n1/proc"]["status"], records["n1/proc"]["samples"]) == ("ok", 4)
    lost = records["n1/engine_metrics"]
    assert (lost["status"], lost["error"]) == ("failed", "it left no record")
    of_another = collector_records(tmp_path, chosen_collectors(of()), "n1", "y")["n1/proc"]
    assert of_another["status"] == "failed"
    assert of_another["error"] == "its record is that of another load"
    (folder / "collectors.json").write_text("{")
    records = collector_records(tmp_path, chosen_collectors(of()), "n1", "x")
    assert {item["status"] for item in records.values()} == {"failed"}


def started(node: FakeNode, out: Path) -> tuple[dict[str, str], ProcessId]:
    spec = {"out": str(out), "ready_file": str(out / "ready")}
    return spec, start_collectors(node, spec, {})


def test_collectors_that_are_not_ready_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "READY_S", 0.05)
    node = FakeNode()
    spec, process = started(node, tmp_path)
    (tmp_path / "collect.log").write_text("collect: no such folder\n")
    with pytest.raises(NodeError, match="no such folder"):
        await_collectors(node, spec, process, Patience(tmp_path, 1))


def test_a_node_that_is_away_for_a_moment_delays_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "RETRY_S", 0.001)
    node = FlakyNode("n1", tmp_path)
    (tmp_path / "ready").write_text("{}")
    node.away_for(3)
    spec = {"out": str(tmp_path), "ready_file": str(tmp_path / "ready")}
    await_collectors(node, spec, ProcessId(1, 1, BOOT), Patience(tmp_path, 60))
    assert node.lost == 3


REQUIRED = ["proc", "engine_metrics"]


def events(out: Path, *lines: object) -> None:
    (out / "telemetry/n1").mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (out / "telemetry/n1/collect.events.jsonl").write_text(text + '{"cut')


def early(node: FakeNode, out: Path, process: ProcessId) -> dict[str, str]:
    return ended_early(node, str(out), process, REQUIRED, Patience(out, 60))


def test_one_that_ended_early_is_seen_at_once(tmp_path: Path) -> None:
    node = FakeNode()
    process = node.new_process()
    assert early(node, tmp_path, process) == {}
    events(
        tmp_path,
        {"event": "exited", "collector": "optional", "error": "x"},
        {"event": "exited", "collector": "proc", "error": "ended early with signal 9"},
    )
    assert early(node, tmp_path, process) == {"n1/proc": "ended early with signal 9"}


def test_one_whose_tool_goes_on_failing_is_seen_while_it_runs(tmp_path: Path) -> None:
    node = FakeNode()
    process = node.new_process()
    events(tmp_path, {"event": "failing", "collector": "proc", "error": "the last 3 runs failed"})
    assert early(node, tmp_path, process) == {"n1/proc": "the last 3 runs failed"}


def test_all_are_gone_with_their_process(tmp_path: Path) -> None:
    node = FakeNode()
    process = node.new_process()
    node.living.clear()
    assert set(early(node, tmp_path, process)) == {"n1/proc", "n1/engine_metrics"}
    assert ended_early(node, str(tmp_path), process, [], Patience(tmp_path, 60)) == {}


def test_a_node_that_is_away_ended_nothing(tmp_path: Path) -> None:
    node = FlakyNode("n1", tmp_path)
    node.away_for(2)
    assert early(node, tmp_path, ProcessId(1, 1, BOOT)) == {}


TABLE: dict[str, Any] = {
    "entity": "gpu{Index}",
    "columns": [
        {"column": "Util", "metric": "gpu_util", "unit": "percent"},
        {"column": "Mem (MiB)", "metric": "gpu_mem_used", "unit": "bytes", "scale": 1048576},
        {"column": "Retries", "metric": "link_retries", "unit": "per_s", "counter": True},
    ],
}
OWN: dict[str, Any] = {"argv": ["my-smi", "--csv"], "table": TABLE}


def test_a_campaign_declares_a_collector_of_its_own(tmp_path: Path) -> None:
    (own,) = chosen_collectors(of(collectors={"my_smi": {**OWN, "interval_s": 1}}))
    assert (own.kind, own.interval_s, own.required) == ("poll", 1, False)
    assert {family: [m.metric for m in metrics] for family, metrics in own.families.items()} == {
        "gpu": ["gpu_util"],
        "gpu_memory": ["gpu_mem_used"],
        "declared": ["link_retries"],
    }
    spec = spec_of([own], None)
    assert (spec["argv"], spec["interval_s"], spec["kind"]) == (["my-smi", "--csv"], 1, "poll")
    # What analyses it has its record only.
    folder = tmp_path / "n1"
    folder.mkdir()
    ended = {"status": "ok", "samples": 2, "error": None}
    (folder / "collectors.json").write_text(
        json.dumps({"load_id": "x", "collectors": {"my_smi": ended}})
    )
    lines = [
        {"t_ns": n * 10**9, "mono_ns": n * 10**9,
         "text": f"Index,Util,Mem (MiB),Retries\n0,{50 + n} %,{n},{10 * n}\n"}
        for n in range(1, 4)
    ]  # fmt: skip
    (folder / "my_smi.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = json.loads(json.dumps(collector_records(tmp_path, [own], "n1", "x")))
    found = read_telemetry(tmp_path, [Segment("main", 0, 4 * 10**9)], records, {})
    assert {(row.entity, row.metric, row.unit, row.value) for row in rows_of(found.series)} == {
        *(("gpu0", "gpu_util", "percent", 50.0 + n) for n in (1, 2, 3)),
        *(("gpu0", "gpu_mem_used", "bytes", n * 1048576.0) for n in (1, 2, 3)),
        ("gpu0", "link_retries", "per_s", 10.0),
    }
    assert found.skipped == {}


@pytest.mark.parametrize(
    ("collectors", "word", "where"),
    [
        ({"my": {"argv": ["x"]}}, "argv and table belong together", "collectors.my"),
        ({"mpstat": OWN}, "its command is known", "collectors.mpstat"),
        ({"my": {"path": "/x"}}, "no collector 'my'", "collectors.my"),
        ({"proc": {"path": "/x"}}, "follows no log", "collectors.proc.path"),
        ({"engine_log": {}}, "nothing to read of this engine", "collectors.engine_log"),
        ({"my": {"argv": [], "table": TABLE}}, "at least 1", "collectors.my.argv"),
        ({"my": {"argv": [" "], "table": TABLE}}, "first word is blank", "collectors.my.argv"),
        (
            {"my": {**OWN, "table": {**TABLE, "entity": "gpu"}}},
            "does not name one column in braces",
            "collectors.my.table.entity",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    collectors: dict[str, Any], word: str, where: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        of(collectors=collectors)
    assert word in caught.value.what
    assert caught.value.where.endswith(where)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"metric": "gpu_power", "unit": "milliwatts"}, "is in watts elsewhere"),
        ({"metric": "Power"}, "pattern"),
        ({"counter": True, "unit": "errors"}, "ends in per_s"),
        ({"scale": 0}, "greater than 0"),
        ({"metric": "gpu_mem_used", "unit": "bytes"}, "two columns make the metric gpu_mem_used"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_column_that_cannot_be_is_refused(change: dict[str, Any], word: str) -> None:
    first, *others = TABLE["columns"]
    table = {**TABLE, "columns": [{**first, **change}, *others]}
    with pytest.raises(ConfigError) as caught:
        of(collectors={"my": {**OWN, "table": table}})
    assert word in f"{caught.value.what} {caught.value.where}"


def test_a_collector_of_its_own_is_part_of_what_is_measured_and_others_as_before() -> None:
    plain = load_context(campaign(collectors={"proc": {}})).plan
    spec = json.loads(plain.spec("case", "baseline", "c", "1"))
    assert spec["collectors"] == {
        "proc": {"interval_s": None, "required": None, "enabled": True}
    }, "a measurement of earlier versions is not measured again"
    own = load_context(campaign(collectors={"my": OWN})).plan
    again = json.loads(own.spec("case", "baseline", "c", "1"))
    assert again["collectors"]["my"]["table"]["entity"] == "gpu{Index}"


VLLM: dict[str, Any] = {"server": {"engine": "vllm", "python": "/x/python", "port": 18999}}


def test_the_log_of_the_server_is_followed_on_the_head() -> None:
    chosen = chosen_collectors(of(**VLLM))
    assert "engine_log" in {one.name for one in chosen}
    assert "engine_log" not in {one.name for one in chosen_collectors(of())}
    started = server_log(chosen, "/srv/run", "boot-1")
    assert started == "/srv/run/server/boot-1.log"
    assert server_log(chosen, "/srv/run", None) is None, "of an attached server no log is known"
    assert "engine_log" not in {one.name for one in runnable(chosen, None, None)}
    named = chosen_collectors(of(**VLLM, collectors={"engine_log": {"path": "/var/log/v.log"}}))
    assert server_log(named, "/work", None) == "/var/log/v.log"
    (spec,) = collector_spec(
        named, node="n1", raw="/raw", pids=[7], metrics_url=None, log="/var/log/v.log",
        heartbeat="/h", until=None, gone_s=5, max_s=9, load_id="x",
    )["collectors"]  # fmt: skip
    check_collectors([spec])
    assert (spec["path"], spec["keep"]) == ("/var/log/v.log", ["Avg prompt throughput", " batch"])


def test_what_a_campaign_names_runs_beside_a_tool_that_tells_the_same() -> None:
    by_default = {one.name: one for one in chosen_collectors(of())}
    assert spec_of([by_default["rocm_smi"]], None)["unless"] == "amd-smi"
    (named,) = chosen_collectors(of(collectors={"rocm_smi": {}}))
    assert "unless" not in spec_of([named], None)
    (perf,) = chosen_collectors(of(collectors={"perf_stat": {"interval_s": 0.5}}))
    spec = spec_of([perf], None)
    assert spec["argv"][spec["argv"].index("-I") + 1] == "500"
    assert (spec["argv"][-2:], spec["pids"]) == (["-p", "{pids}"], [7])
