"""The telemetry tables of a run, from raw files made here."""

import csv
from pathlib import Path

import pytest
from runbuilder import MS, T0, build_repeat, proc_line, request, scrape_line

from servemap.analysis.case_tables import BIN_COLUMNS, COLUMNS, GAP_COLUMNS
from servemap.analysis.derive import derive_attempt
from servemap.analysis.references import references
from servemap.analysis.repeats import Repeat
from servemap.analysis.summary import summarize

BUSY = {"cpu0": [10, 0, 10, 0, 0, 0, 0, 0], "cpu1": [0, 0, 0, 20, 0, 0, 0, 0]}


def lines(count, busy=0.5, drop=(), step_ms=500):
    """Samples of two cores that are busy to a share, without those that are dropped."""
    found = []
    for k in range(count):
        ticks = k * step_ms / 10
        core = [ticks * busy, 0, 0, ticks * (1 - busy), 0, 0, 0, 0]
        found.append(proc_line(k, interval_ms=step_ms, cpu={"cpu0": core, "cpu1": core}))
    return [line for k, line in enumerate(found) if k not in drop]


def measure(run, *, busy=0.5, drop=(), end_ms=4000.0, **kwargs):
    telemetry = {
        "proc": lines(int(end_ms) // 500 + 4, busy, drop),
        "engine_metrics": [scrape_line(k) for k in range(int(end_ms) // 500 + 4)],
    }
    segments = kwargs.pop("segments", [("main", 0.0, end_ms)])
    records = kwargs.pop("requests", [request(i, sent_ms=500.0 * i) for i in range(4)])
    folder = build_repeat(run, telemetry=telemetry, segments=segments, requests=records, **kwargs)
    derive_attempt(folder, {"limits": {"collector_coverage": 0.0}})
    return folder


def read(run, name):
    with (run / "tables" / f"{name}.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def summed(run, *rows):
    plan = [{"variant": "baseline", "repeat": 1, "compared_with": [], **row} for row in rows]
    summarize(run, plan)


def core(run, **keys):
    rows = read(run, "case_hot_cores_summary")
    wanted = {"entity": "cpu0", "metric": "cpu_util", **keys}
    return [r for r in rows if all(r.get(k) == v for k, v in wanted.items())]


def test_a_row_has_all_figures_and_its_raw_file(tmp_path):
    run = tmp_path / "run"
    folder = measure(run, case="a")
    summed(run, {"case": "a"})
    (row,) = core(run)
    assert list(row) == list(COLUMNS)
    assert (row["part"], row["n"], row["expected"], row["coverage"]) == ("whole", "8", "8.0", "1.0")
    figures = [float(row[name]) for name in ("mean", "p50", "p95", "max", "min")]
    assert figures == pytest.approx([50.0] * 5)
    assert (folder / row["raw_file"]).is_file()
    traffic = next(r for r in read(run, "case_network_summary") if r["metric"] == "net_rx")
    assert (float(traffic["integral"]), traffic["integral_unit"]) == (4000.0, "bytes")
    assert float(traffic["integral_s"]) == 4.0
    assert (row["integral"], row["reference"], row["change"]) == ("-", "-", "-")


def test_a_case_is_held_against_the_first_of_its_variant(tmp_path):
    run = tmp_path / "run"
    measure(run, case="idle", busy=0.2)
    measure(run, case="busy", busy=0.6)
    summed(run, {"case": "idle"}, {"case": "busy"})
    (row,) = core(run, case="busy")
    assert row["reference"] == "baseline/idle r1 main"
    assert float(row["change"]) == pytest.approx(40.0)
    assert float(row["change_pct"]) == pytest.approx(200.0)
    (row,) = core(run, case="idle")
    assert {row[k] for k in ("reference", "reference_mean", "change", "change_pct")} == {"-"}


def test_cases_of_other_shapes_are_not_held_against_each_other():
    def one(case, **spec):
        meta = {"spec": {"case": {"id": case, "kind": "fixed", "osl": 8, **spec}}}
        return Repeat("baseline", case, 1, Path(), meta, {}, "ok", "valid", [])

    repeats = [
        one("dec", isl=8, concurrency=1, watching="usual"),
        one("pre", isl=999, concurrency=1, watching="usual"),
        one("dec4", isl=8, concurrency=4, watching="usual"),
        one("obs-unwatched", isl=8, concurrency=1, watching="none"),
        one("obs-watched", isl=8, concurrency=1, watching="usual"),
        one("obs-10hz", isl=8, concurrency=1, watching="10hz"),
    ]
    found = [one and one.case for one in references(repeats, {})]
    assert found == [None, None, "dec", None, "obs-unwatched", "obs-unwatched"]


def test_a_variant_is_held_against_the_same_case_of_its_reference(tmp_path):
    run = tmp_path / "run"
    for variant, busy in (("baseline", 0.4), ("new", 0.5)):
        measure(run, variant=variant, case="a", busy=0.1)
        measure(run, variant=variant, case="b", busy=busy)
    new = {"variant": "new", "compared_with": ["baseline"]}
    summed(run, {"case": "a"}, {"case": "b"}, {"case": "a", **new}, {"case": "b", **new})
    (row,) = core(run, variant="new", case="b")
    assert row["reference"] == "baseline/b r1 main"
    assert float(row["change_pct"]) == pytest.approx(25.0)


def test_an_invalid_repeat_is_no_reference(tmp_path):
    run = tmp_path / "run"
    measure(run, case="a", requests=[request(1, status="failed")])
    measure(run, case="b")
    measure(run, variant="new", case="a")
    new = {"variant": "new", "case": "a", "compared_with": ["baseline"]}
    summed(run, {"case": "a"}, {"case": "b"}, new)
    assert [r["verdict"] for r in core(run, case="a")] == ["invalid", "valid"]
    (row,) = core(run, variant="new")
    assert row["reference"] == "-"
    (row,) = core(run, variant="baseline", case="a")
    assert row["reference"] == "baseline/b r1 main"


def mixed(run):
    segments = [("control", 0.0, 4000.0), ("injected", 4000.0, 9000.0)]
    records = [
        *(request(i, segment="control", sent_ms=900.0 * i) for i in range(4)),
        *(request(i, segment="injected", sent_ms=4000 + 900.0 * i) for i in range(4)),
        request(1, stream="injected", segment="injected", sent_ms=5000, ttft_ms=1000, osl=1),
    ]
    return measure(run, case="m", end_ms=9000.0, segments=segments, requests=records)


def test_an_injection_has_rows_of_its_own(tmp_path):
    run = tmp_path / "run"
    mixed(run)
    summed(run, {"case": "m"})
    rows = core(run, segment="injected")
    counts = {r["part"]: (int(r["n"]), float(r["expected"])) for r in rows}
    assert counts == {"whole": (10, 10.0), "overlap": (2, 2.0), "steady": (8, 8.0)}
    assert {r["reference"] for r in rows} == {"baseline/m r1 control"}
    assert [r["part"] for r in core(run, segment="control")] == ["whole"]


def test_throughput_over_time(tmp_path):
    run = tmp_path / "run"
    mixed(run)
    summed(run, {"case": "m"})
    bins = read(run, "throughput_over_time")
    assert list(bins[0]) == list(BIN_COLUMNS)
    own = [b for b in bins if b["segment"] == "injected"]
    assert [b["part"] for b in own] == ["steady", "overlap", "steady", "steady", "steady"]
    # The injected request's only token, and with it its prompt, came when the third began.
    assert [(float(b["output_tok_s"]), float(b["input_tok_s"])) for b in own] == [
        (8.0, 128.0),
        (4.0, 64.0),
        (5.0, 128.0),
        (0.0, 0.0),
        (0.0, 0.0),
    ]
    flying = [float(b["in_flight"]) for b in own]
    assert flying == pytest.approx([0.16, 1.08, 0.08, 0.0, 0.0])
    rows = read(run, "case_throughput_summary")
    whole = next(
        r
        for r in rows
        if (r["segment"], r["part"], r["metric"]) == ("injected", "whole", "output_tok_s")
    )
    assert (whole["n"], float(whole["integral"]), float(whole["integral_s"])) == ("5", 17.0, 5.0)


def test_a_gap_is_named_with_its_place(tmp_path):
    run = tmp_path / "run"
    measure(run, case="a", drop=(4, 5, 6, 7))
    summed(run, {"case": "a"})
    (gap,) = read(run, "telemetry_gaps")
    assert list(gap) == list(GAP_COLUMNS)
    assert (gap["node"], gap["collector"], gap["segment"]) == ("head", "proc", "main")
    assert (float(gap["begin_s"]), float(gap["length_s"])) == (1.0, 2.5)
    assert int(gap["begin_ns"]) == T0 + 1000 * MS
    (row,) = core(run)
    assert (row["gaps"], float(row["largest_gap_s"])) == ("1", 2.5)


def test_the_cores_in_most_use_come_first(tmp_path):
    run = tmp_path / "run"
    derive_attempt(build_repeat(run), {})
    summed(run, {"case": "decode_c2"})
    rows = read(run, "case_hot_cores_summary")
    use = [(r["entity"], float(r["mean"])) for r in rows if r["metric"] == "cpu_util"]
    assert use == [
        ("cpu0", pytest.approx(80.0)),
        ("cpu1", pytest.approx(20.0)),
    ]


def test_engine_tables_are_apart(tmp_path):
    run = tmp_path / "run"
    derive_attempt(build_repeat(run), {})
    summed(run, {"case": "decode_c2"})
    assert {r["metric"] for r in read(run, "case_engine_queue_summary")} == {
        "llamacpp:requests_processing"
    }
    (cache,) = read(run, "case_engine_cache_summary")
    assert (cache["collector"], cache["state"], cache["mean"]) == ("engine_metrics", "ok", "-")


def test_two_nodes_are_side_by_side(tmp_path):
    run = tmp_path / "run"
    folder = build_repeat(run)
    raw = folder / "attempts/001/raw/telemetry"
    (raw / "worker").mkdir()
    (raw / "worker/proc.jsonl").write_bytes((raw / "head/proc.jsonl").read_bytes())
    records = {f"{n}/proc": {"status": "ok", "interval_s": 0.5} for n in ("head", "worker")}
    derive_attempt(build_repeat(run, facts={"collectors": records, "files": {}}), {})
    summed(run, {"case": "decode_c2"})
    assert [r["node"] for r in core(run)] == ["head", "worker"]
    rows = read(run, "side_by_side")
    where = ("cpu0", "cpu_util", "hot_cores")
    (row,) = [r for r in rows if (r["entity"], r["metric"], r["family"]) == where]
    assert float(row["head.mean"]) == float(row["worker.mean"]) == pytest.approx(80.0)
    (busy,) = [r for r in rows if r["metric"] == "output_tok_s"]
    assert {busy["head.mean"], busy["worker.n"]} == {"-"}


def test_plain_rails_have_their_balance_in_the_network_table(tmp_path):
    run = tmp_path / "run"
    rates = {"eth1": 3000, "eth2": 1000, "docker0": 9000}
    samples = [
        proc_line(k, net={name: [0] * 4 + [k * rate, k, 0, 0] for name, rate in rates.items()})
        for k in range(8)
    ]
    rails = [{"netdev": "eth1", "hca": None}, {"netdev": "eth2", "hca": None}]
    server = {"nodes": [{"id": "head", "rails": rails}]}
    folder = build_repeat(run, telemetry={"proc": samples}, facts={"spec": {"server": server}})
    derive_attempt(folder, {})
    summed(run, {"case": "decode_c2"})
    rows = read(run, "case_network_summary")
    found = {(r["entity"], r["metric"]): float(r["mean"]) for r in rows
             if r["metric"].endswith(("_share", "_balance"))}  # fmt: skip
    assert found == {
        ("eth1", "net_tx_share"): pytest.approx(0.75),
        ("eth2", "net_tx_share"): pytest.approx(0.25),
        ("rails", "net_tx_balance"): pytest.approx(1.5),
    }


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"case_spec": {"watching": "none"}, "telemetry": {}}, "not watched"),
        ({"telemetry": {}}, "no collector"),
        ({"telemetry": {}, "status": "not_run"}, "not_run"),
        ({}, "no collector"),
    ],
)
def test_a_family_without_a_row_says_why(tmp_path, facts, state):
    run = tmp_path / "run"
    derive_attempt(build_repeat(run, **facts), {})
    summed(run, {"case": "decode_c2"})
    (row,) = read(run, "case_gpu_summary")
    assert (row["collector"], row["mean"], row["state"]) == ("-", "-", state)


def test_requests_that_were_not_sent_have_the_state_of_their_repeat(tmp_path):
    run = tmp_path / "run"
    derive_attempt(build_repeat(run, status="not_run", reasons=["no server"]), {})
    summed(run, {"case": "decode_c2"})
    (row,) = read(run, "case_throughput_summary")
    assert row["state"] == "not_run"
