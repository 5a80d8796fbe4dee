"""Collectives in the report and in tables/baselines.csv."""

import json
from typing import Any

import pytest

from servemap.analysis.baselines import COLUMNS, baseline_rows, read_baselines
from servemap.analysis.gate import slower_places
from servemap.model.canon import write_json_atomic
from servemap.report.baselines import baselines
from servemap.report.communication import ranks_table
from servemap.report.document import Section
from servemap.report.markdown import to_markdown
from servemap.report.render import build
from servemap.report.run import read_run

RATES = {("all_reduce", 8192): 2e6, ("all_reduce", 1 << 24): 118e6, ("all_gather", 8192): 3e6}


def row(operation: str, size: int, rate: float) -> dict[str, Any]:
    return {
        "operation": operation, "size_bytes": size, "count": size // 4, "type": "float32",
        "time_s": {"min": 1e-3, "mean": 3e-3, "p50": 2e-3, "max": 5e-3}, "iterations": 20,
        "algbw_bytes_per_s": rate, "busbw_bytes_per_s": rate, "wrong": 0,
    }  # fmt: skip


def part(**keys: Any) -> dict[str, Any]:
    return {
        "nodes": ["head", "worker"], "world": 2, "tool": "torch", "launch": "torchrun",
        "settings": {"NCCL_CROSS_NIC": "1"}, "status": "ok", "error": None, "backend": "gloo",
        "versions": {"torch": "2.13.0", "python": "3.11.7"},
        "rows": [row(*key, rate) for key, rate in RATES.items()], **keys,
    }  # fmt: skip


def record(*parts: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {
        "schema": 1, "name": "coll", "kind": "collective", "status": "ok", "reasons": [],
        "results": list(parts), "simulated": False, "reused": None, **keys,
    }  # fmt: skip


@pytest.fixture
def section(copy):
    run, rows = copy

    def of(made: dict[str, Any]) -> Section:
        write_json_atomic(run / "baselines/coll.json", made)
        return baselines(read_run(run, rows))

    return of


def test_a_part_has_its_launch_and_versions_and_a_table_of_sizes(section) -> None:
    found = section(record(part()))
    _, parts, sizes = found.tables
    (cells,) = parts.rows
    said = [one.text for one in cells]
    assert said[:9] == [
        "coll", "ok", "NCCL_CROSS_NIC=1", "head, worker", "2", "torch", "torchrun", "gloo",
        "torch 2.13.0, python 3.11.7",
    ]  # fmt: skip
    assert sizes.columns == ["Size", "all_reduce", "all_gather"]
    assert [[one.text for one in cells] for cells in sizes.rows] == [
        ["8 KiB", "0.002", "0.003"], ["16 MiB", "0.118", "-"],
    ]  # fmt: skip
    assert sizes.rows[0][1].note == "2,000 µs"
    assert "coll NCCL_CROSS_NIC=1 on head, worker" in sizes.caption


def test_busbw_is_drawn_over_the_size_for_each_operation_and_setting(section) -> None:
    two = part(settings={"NCCL_CROSS_NIC": "2"})
    (plot,) = section(record(part(), two)).plots
    names = [line["name"] for line in plot.figure["data"]]
    assert names == [f"{op} NCCL_CROSS_NIC={n}" for n in (1, 2) for op in ("all_reduce", "all_gather")]  # fmt: skip  # noqa: E501
    assert plot.figure["data"][0]["x"] == [8192, 1 << 24]
    assert plot.figure["data"][0]["y"] == [0.002, 0.118]
    assert plot.figure["data"][0]["line"]["dash"] != plot.figure["data"][2]["line"]["dash"]


def test_what_failed_is_named_and_neither_tabled_nor_drawn(section) -> None:
    bad = part(status="failed", error="rank 1 on worker: gone", rows=[])
    found = section(record(bad, status="failed"))
    assert len(found.tables) == 2
    assert not found.plots
    assert "rank 1 on worker: gone" in found.tables[1].rows[0][-1].text
    # Rows of a part that failed are never shown, even if there are some.
    assert len(section(record({**bad, "rows": part()["rows"]})).tables) == 2


def test_what_was_simulated_or_taken_from_another_run_says_so_everywhere(section) -> None:
    found = section(
        record(
            part(), simulated=True, reused={"run": "before", "started_ns": 1_700_000_000 * 10**9}
        )
    )
    assert found.tables[1].rows[0][0].note == "simulated, of run before"
    assert found.tables[2].caption.endswith("simulated")
    assert found.plots[0].figure["layout"]["annotations"][0]["text"] == "coll (simulated)"
    assert "those of run before, measured 2023-11-1" in found.paragraphs[0]


def tcp(**rates: float) -> dict[str, Any]:
    results = [
        {"from": way.split("_")[0], "to": way.split("_")[1], "status": "ok", "rtt_us": {},
         "bandwidth_bytes_per_s": rate}
        for way, rate in rates.items()
    ]  # fmt: skip
    return {**record(), "kind": "tcp", "results": results}


def test_what_is_slower_than_the_others_is_named_with_what_it_means(section) -> None:
    found = section(tcp(head_worker=36e6, worker_head=119e6))
    (said,) = [one for one in found.paragraphs if "median of the others" in one]
    assert "(pair 2): slower by more than 20.0 %: 1 (limits.slower_share)" in said
    (table,) = [one for one in found.tables if one.caption.startswith("Slower than")]
    (cells,) = table.rows
    assert [one.text for one in cells[:6]] == [
        "coll", "head to worker", "69.7 %", "0.036", "0.119", "TCP bandwidth",
    ]  # fmt: skip
    assert "what the second one receives, is slow" in cells[6].text
    assert "ethtool" in cells[7].text


def test_where_nothing_is_slower_that_is_said_without_a_table(section) -> None:
    found = section(tcp(head_worker=118e6, worker_head=119e6))
    assert any("(pair 2): slower by more than 20.0 %: none" in one for one in found.paragraphs)
    assert not [one for one in found.tables if one.caption.startswith("Slower than")]


def test_the_limit_is_the_campaigns(copy) -> None:
    run, rows = copy
    write_json_atomic(run / "baselines/coll.json", tcp(head_worker=36e6, worker_head=119e6))
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["limits"] = {"slower_share": 0.7}
    write_json_atomic(run / "run_manifest.json", manifest)
    said = " ".join(baselines(read_run(run, rows)).paragraphs)
    assert "slower by more than 70.0 %: none" in said
    assert slower_places(run, {}) == [
        "baseline coll: head to worker is slower than the others by 70% (TCP bandwidth; limit "
        "20%): what the first node sends, or what the second one receives, is slow"
    ]
    assert slower_places(run, {"slower_share": 0.7}) == []


def test_the_whole_report_takes_a_record_of_a_collective(copy) -> None:
    run, rows = copy
    write_json_atomic(run / "baselines/coll.json", record(part()))
    assert "all\\_reduce" in to_markdown(build(read_run(run, rows), False), "index.html")


def test_the_table_has_a_row_for_each_figure_of_every_kind(copy) -> None:
    run, _ = copy
    write_json_atomic(run / "baselines/coll.json", record(part()))
    found = baseline_rows(read_baselines(run))
    assert all(tuple(one) == COLUMNS for one in found)
    own = [one for one in found if one["baseline"] == "coll"]
    assert len(own) == 3 * 7
    (rate,) = [one for one in own if one["figure"] == "busbw" and one["size_bytes"] == 1 << 24]
    assert (rate["value"], rate["unit"], rate["operation"]) == (118e6, "bytes_per_s", "all_reduce")
    assert (rate["nodes"], rate["settings"], rate["ranks"]) == (
        "head worker", "NCCL_CROSS_NIC=1", 2,
    )  # fmt: skip
    others = {one["figure"] for one in found if one["kind"] == "tcp"}
    assert {"rtt_p50", "bandwidth"} <= others


def test_a_failure_and_a_missing_value_have_no_number(copy) -> None:
    run, _ = copy
    lost = part(rows=[{**row("all_reduce", 8192, 1.0), "wrong": None, "time_s": {"mean": 2e-3}}])
    bad = part(status="failed", error="no\n  where: x", rows=part()["rows"])
    write_json_atomic(run / "baselines/coll.json", record(lost, bad))
    write_json_atomic(
        run / "baselines/other.json", record(status="not_run", reasons=["stopped"], name="other")
    )
    found = baseline_rows(read_baselines(run))
    own = [one for one in found if one["baseline"] == "coll"]
    assert [one["figure"] for one in own] == ["time_mean", "algbw", "busbw", None]
    assert (own[-1]["value"], own[-1]["reason"]) == (None, "no where: x")
    (other,) = [one for one in found if one["baseline"] == "other"]
    assert (other["status"], other["reason"]) == ("not_run", "stopped")


@pytest.mark.parametrize("broken", ["results", "rows", "versions", "settings"])
def test_a_damaged_record_breaks_nothing(section, copy, broken: str) -> None:
    run, _ = copy
    made = record(part())
    if broken == "results":
        made["results"] = "x"
    else:
        made["results"][0][broken] = ["x", 3, None]
    section(json.loads(json.dumps(made)))
    baseline_rows(read_baselines(run))


def test_ranks_without_nccl_stand_with_their_interface_and_its_numa_node(copy) -> None:
    run, rows = copy
    ranks = [{"rank": n, "node": node, "interface": "eth0", "device": "cpu"}
             for n, node in enumerate(["head", "worker"])]  # fmt: skip
    write_json_atomic(run / "baselines/coll.json", record(part(ranks=ranks)))
    nics = {"interfaces": {"eth0": {"numa_node": 1}}}
    write_json_atomic(run / "freeze/head.json", {"schema": 1, "facts": {"nics": nics}})
    table = ranks_table(read_run(run, rows))
    assert [[one.text for one in cells] for cells in table.rows] == [
        ["coll", "head", "0", "-", "-", "-", "eth0 (1)"],
        ["coll", "worker", "1", "-", "-", "-", "eth0"],
    ]
