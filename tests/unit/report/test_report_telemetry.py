"""The report's section on telemetry: hosts, the largest changes, gaps. Made-up samples."""

import pytest
from runbuilder import build_repeat, proc_line, request, scrape_line

from servemap.analysis.derive import derive_attempt
from servemap.report.declared import MOST_ROWS, declared_table
from servemap.report.document import Cell
from servemap.report.run import read_run
from servemap.report.telemetry import telemetry

PLAN = [{"variant": "baseline", "repeat": 1, "compared_with": [], "case": name} for name in "ab"]


TABLE = {
    "entity": "pump{No}",
    "columns": [
        {"column": "Flow", "metric": "pump_flow", "unit": "litres_per_s"},
        {"column": "Power", "metric": "gpu_power", "unit": "watts"},
    ],
}


def measure(run, case, busy, drop=(), variant="baseline", own=(), **keys):
    """A case of 4 s whose two cores are busy to a share and half of that.

    `own`: what a collector of the campaign's own printed every half second.
    """
    lines = []
    for k in range(12):
        cores = [[50 * k * use, 0, 0, 50 * k * (1 - use), 0, 0, 0, 0] for use in (busy, busy / 2)]
        lines.append(proc_line(k, interval_ms=500, cpu={"cpu0": cores[0], "cpu1": cores[1]}))
    folder = build_repeat(
        run,
        case=case,
        telemetry={
            "proc": [line for k, line in enumerate(lines) if k not in drop],
            "engine_metrics": [scrape_line(k) for k in range(12)],
            **({"pump": list(own)} if own else {}),
        },
        variant=variant,
        **keys,
        segments=[("main", 0.0, 4000.0)],
        requests=[request(i, sent_ms=500.0 * i) for i in range(4)],
    )
    derive_attempt(folder, {"limits": {"collector_coverage": 0.0, "foreign_cpu_share": 1.0}})


def tables(run):
    section = telemetry(read_run(run, PLAN), [], 0)
    found = {table.columns[4]: table for table in section.tables}
    return section, found


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_hosts_and_what_changed_with_its_row(tmp_path):
    run = tmp_path / "run"
    measure(run, "a", 0.2)
    measure(run, "b", 0.8)
    section, found = tables(run)
    hosts = texts(found["CPU mean"])
    assert [row[0] for row in hosts] == ["a", "b"]
    assert [row[5] for row in hosts] == ["20.0 %", "80.0 %"], "the busiest core"
    changes = texts(found["Entity"])
    (core,) = [row for row in changes if row[-1] == "case_hot_cores_summary.csv"]
    assert core[:5] == ["b", "baseline r1", "main", "cpu_util", "cpu0"]
    assert [float(value.rstrip(" %")) for value in core[5].split(" / ")] == [80.0] * 3
    assert (core[6], core[7]) == ("20 %", "+300.0 %")
    (first,) = [line for line in section.paragraphs if "have no change" in line]
    assert first.endswith("against its control: baseline/a.")
    assert any("No collector went without" in line for line in section.paragraphs)


def printed(k, flow):
    line = proc_line(k, interval_ms=500)
    text = f"No Flow Power\n0 {flow} 300\n1 {2 * flow} N/A\n"
    return {"t_ns": line["t_ns"], "mono_ns": line["mono_ns"], "text": text}


def of_own(**record):
    base = {"status": "ok", "samples": 12, "interval_s": 0.5, "required": False}
    others = dict.fromkeys(("head/proc", "head/engine_metrics"), base)
    return {"collectors": {**others, "head/pump": {**base, "table": TABLE, **record}}}


def test_the_hosts_coverage_is_that_of_their_own_collector(tmp_path):
    run = tmp_path / "run"
    measure(run, "a", 0.2, own=["one line that is no sample"])
    _, found = tables(run)
    (hosts,) = [t for t in found.values() if "Coverage of proc" in t.columns]
    assert texts(hosts)[0][hosts.columns.index("Coverage of proc")] == "100 %"


def test_what_a_collector_of_the_campaigns_own_tells_has_its_rows(tmp_path):
    run = tmp_path / "run"
    measure(run, "a", 0.2, own=[printed(k, 4.0) for k in range(12)], facts=of_own())
    _, found = tables(run)
    assert [row[3:] for row in texts(found["Collector"])] == [
        ["head", "pump", "pump0", "pump_flow", "4 / 4 / 4", "case_declared_summary.csv"],
        ["head", "pump", "pump1", "pump_flow", "8 / 8 / 8", "case_declared_summary.csv"],
        ["head", "pump", "pump0", "gpu_power", "300 / 300 / 300", "case_power_summary.csv"],
    ]
    assert found["Collector"].rows[0][7].note == "n=9", "one at each edge"
    assert found["Collector"].rows[0][6].note == "litres_per_s"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"status": "absent", "samples": 0}, "absent"),
        ({"status": "failed", "samples": 0}, "failed"),
        ({}, "it told nothing in the window"),
    ],
)
def test_a_collector_of_the_campaigns_own_that_told_nothing_says_why(tmp_path, record, said):
    run = tmp_path / "run"
    measure(run, "a", 0.2, facts=of_own(**record))
    _, found = tables(run)
    (row,) = found["Collector"].rows
    assert [cell.text for cell in row[3:]] == ["head", "pump", "-", "-", "-", "-"]
    assert row[7].note == said


def test_more_rows_of_own_collectors_than_a_page_takes_are_named():
    rows = [[Cell(str(k))] for k in range(MOST_ROWS + 3)]
    table = declared_table(rows)
    assert len(table.rows) == MOST_ROWS
    assert "3 more rows" in table.caption
    assert declared_table([]) is None


def test_a_case_without_anything_to_be_held_against_says_so(tmp_path):
    run = tmp_path / "run"
    measure(run, "a", 0.2, status="failed")
    measure(run, "a", 0.2, variant="other")
    plan = [*PLAN[:1], {**PLAN[0], "variant": "other", "compared_with": ["baseline"]}]
    section = telemetry(read_run(run, plan), [], 0)
    (said,) = [line for line in section.paragraphs if "no change" in line]
    assert said.startswith("No variant that these are compared with has a valid repeat")
    assert said.endswith("other/a.")


def test_a_gap_is_listed_and_not_denied(tmp_path):
    run = tmp_path / "run"
    measure(run, "a", 0.2)
    measure(run, "b", 0.2, drop=(3, 4, 5, 6))
    section, found = tables(run)
    (gap,) = texts(found["Collector"])
    assert (gap[0], gap[3:]) == ("b", ["head", "proc", "0.500", "2.50", "0.500"])
    assert not any("No collector went without" in line for line in section.paragraphs)


def test_a_run_without_telemetry_says_so(tmp_path):
    section, found = tables(tmp_path / "run")
    assert found == {}
    assert section.paragraphs == ["No telemetry of a valid repeat was found."]
