"""The arithmetic of benchmarks/ on a run that is written by hand, where every figure is known."""

import json
from pathlib import Path

import pytest

from benchmarks import demo, metrics
from benchmarks.__main__ import broken
from benchmarks.dryrun import BARE, dressed, jobs
from benchmarks.overhead import covered, job_intervals, overhead_per_case, spans, where_it_goes
from benchmarks.sandbox import high_water_mb, program
from servemap.analysis.derive import derive_attempt

S = 10**9
T0 = 1_700_000_000


def write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def attempt(run: Path, case: str, start: float, window: float, warm_up: float | None) -> None:
    """An attempt of `window + 1` s and its warm-up: 0.1 s ensure, 0.2 + 0.1 s collectors, ..."""
    folder = run / "cases" / "baseline" / case / "r1" / "attempts" / "001"
    warm = warm_up or 0.0
    first = T0 + start + 0.5 + warm
    client = {"warmup": None}
    if warm_up is not None:
        client = {"warmup": {"start_ns": int((first - warm) * S), "end_ns": int(first * S)}}
    write(folder / "raw" / "client.json", client)
    write(
        folder / "meta.json",
        {
            "status": "ok",
            "started_ns": int((T0 + start) * S),
            "ended_ns": int((T0 + start + 1 + warm + window) * S),
            "segments": [
                {"start_ns": int(first * S), "end_ns": int((first + window / 2) * S)},
                {"start_ns": int((first + window / 2) * S), "end_ns": int((first + window) * S)},
            ],
            "overhead": {
                "ensure_s": 0.1,
                "collectors_start_s": 0.2,
                "collectors_stop_s": 0.1,
                "client_s": window + warm + 0.3,
            },
        },
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A call of 30 s: freeze 1 s, a start of 2 s, cases of 4 s and of 6 s with 1 s of warm-up."""
    run = tmp_path / "results" / "demo"
    attempt(run, "a", start=10, window=4, warm_up=None)
    attempt(run, "b", start=17, window=6, warm_up=1)
    attempt(run, "old", start=-500, window=50, warm_up=5)
    not_run = run / "cases" / "baseline" / "c" / "r1" / "attempts" / "001" / "meta.json"
    write(not_run, {"status": "not_run", "started_ns": (T0 + 26) * S, "segments": []})
    boots = run / "server" / "baseline" / "boots"
    write(boots / "x" / "boot.json", {"started_ns": (T0 + 6) * S, "ready_ns": (T0 + 8) * S})
    write(boots / "y" / "boot.json", {"started_ns": (T0 + 9) * S, "ready_ns": None})
    write(boots / "z" / "boot.json", {"started_ns": (T0 - 90) * S, "ready_ns": (T0 - 60) * S})
    events = [
        {"t_ns": (T0 - 600) * S, "event": "session_begin"},
        {"t_ns": (T0 - 100) * S, "event": "session_end"},
        {"t_ns": (T0 + 2) * S, "event": "session_begin"},
        {"t_ns": (T0 + 28) * S, "event": "session_end"},
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    records = [
        ("freeze", 3.0, 4.0, "f"),
        ("freeze", 3.25, 4.0, "f"),
        ("launch", 5.5, 8.5, "l"),
        ("case", 9.5, 15.5, "a"),
        ("case", 16.5, 25.5, "b"),
        ("derive", 25.5, 27.5, "d"),
        ("derive", -300.0, -200.0, "old"),
    ]
    for number, (rule, first, last, log) in enumerate(records):
        record = {"rule": rule, "starttime": T0 + first, "endtime": T0 + last, "log": [log]}
        write(tmp_path / ".snakemake" / "metadata" / str(number), record)
    return run


def test_only_what_this_call_measured_is_counted(run: Path) -> None:
    assert spans(run, T0) == {
        "windows": pytest.approx(10),
        "warm_ups": pytest.approx(1),
        "server_starts": pytest.approx(2),
        "repeats": 2,
    }


def test_overhead_is_what_is_left_of_the_wall_time_for_each_repeat(run: Path) -> None:
    assert overhead_per_case(30, spans(run, T0)) == pytest.approx((30 - 10 - 1 - 2) / 2)


def test_a_job_with_two_outputs_counts_once(run: Path) -> None:
    found = job_intervals(run.parents[1] / ".snakemake" / "metadata", T0)
    assert [(rule, first - T0, last - T0) for rule, first, last in found] == [
        ("freeze", 3, 4),
        ("launch", 5.5, 8.5),
        ("case", 9.5, 15.5),
        ("case", 16.5, 25.5),
        ("derive", 25.5, 27.5),
    ]


def test_the_parts_add_up_to_the_overhead(run: Path) -> None:
    parts = where_it_goes(run, T0, 30)
    assert parts == {
        "case: ensure": pytest.approx(0.2),
        "case: collectors": pytest.approx(0.6),
        "case: client": pytest.approx(0.6),
        "case: record": pytest.approx(0.6),
        "jobs: freeze": pytest.approx(1),
        "jobs: launch": pytest.approx(1),
        "jobs: case": pytest.approx(6 + 9 - 5 - 8),
        "jobs: derive": pytest.approx(2),
        "between jobs": pytest.approx(26 - 21),
        "begin": pytest.approx(2),
        "end": pytest.approx(2),
    }
    assert sum(parts.values()) == pytest.approx(30 - 10 - 1 - 2)


def test_jobs_side_by_side_cover_time_once() -> None:
    assert covered([(5, 6), (0, 2), (1, 3), (1.5, 1.75)]) == 4


def test_processes_are_named_by_what_they_run() -> None:
    assert program([b"/x/python", b"-m", b"servemap", b"finish", b"demo"]) == "servemap finish"
    assert program([b"/x/python", b"/a/.snakemake/scripts/tmp1ab_.case.py", b""]) == "script case"
    assert program([b"/x/python", b"/a/agent.pyz", b"collect"]) == "agent.pyz"
    assert program([b"/usr/bin/sleep", b"1"]) == "sleep"
    assert program([b""]) == ""


def test_peak_memory_is_the_kernels_high_water_mark() -> None:
    assert high_water_mb("Name:\tpython\nVmHWM:\t  250000 kB\nVmRSS:\t 1 kB\n") == 256.0
    assert high_water_mb("Name:\tzombie\n") is None


def test_the_bare_workflow_with_our_directives_has_the_same_rules() -> None:
    bare = BARE.format(cases=3)
    with_ours = dressed(bare)
    assert with_ours.count("\nrule ") == bare.count("\nrule ") == 9
    assert with_ours.count('script: "script.py"') == 2
    assert with_ours.count("shell:") == bare.count("shell:") - 2
    compile(BARE.format(cases=3).splitlines()[0], "first line", "exec")


def test_the_number_of_jobs_is_the_tables_last_line() -> None:
    assert jobs("job  count\n----  -----\ncase     3\ntotal    12\n\nReasons:\n") == 12


def figures(overhead: float, load: list[float], main: int = 200, child: int = 200) -> dict:
    return {
        "overhead_per_case_s": overhead,
        "load_average": load,
        "snakemake_peak_mb": main,
        "largest_child_peak_mb": child,
    }


def test_limits() -> None:
    assert broken("demo", figures(demo.OVERHEAD_LIMIT_S, [9.0, 9.0]), 2) == ([], [])
    assert broken("demo", figures(1.51, [0.5, 1.9]), 2)[0] == ["overhead: 1.51 s a case, limit 1.5"]
    failures, remarks = broken("demo", figures(1.51, [0.5, 2.1]), 2)
    assert not failures and "not judged" in remarks[0]
    assert len(broken("demo", figures(1.0, [0.1], main=500, child=600), 2)[0]) == 2
    assert broken("dryrun", {"ratio_min": {"bare_same_jobs": 1.5}}, 2) == ([], [])
    assert len(broken("dryrun", {"ratio_min": {"bare_same_jobs": 1.51}}, 2)[0]) == 1


@pytest.mark.parametrize("load", metrics.LOADS)
def test_the_large_case_is_one_that_derives_and_is_valid(tmp_path: Path, load: str) -> None:
    metrics.write_case(tmp_path, metrics.LOADS[load], 20)
    derive_attempt(tmp_path, {})
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["verdict"] == "valid", found["reasons"]
    figures = found["segments"][0]["metrics"]
    assert figures["itl_s"]["n"] == 20 * (metrics.TOKENS - 1)
    assert (figures["itl_s"] == figures["chunk_gap_s"]) == (metrics.LOADS[load] == 1)


def test_the_best_turn_of_the_large_case_is_judged() -> None:
    good = [{"wall_s": 9.0, "peak_mb": 900.0}, {"wall_s": 30.0, "peak_mb": 950.0}]
    slow = [{"wall_s": 11.0, "peak_mb": 2100.0}]
    one, other = metrics.LOADS
    found = metrics.broken({one: {"turns": good}, other: {"turns": slow}})
    assert found == [
        f"metrics, {other}: 11.0 s, limit 10.0",
        f"metrics, {other}: 2100.0 MB, limit 2000.0",
    ]
