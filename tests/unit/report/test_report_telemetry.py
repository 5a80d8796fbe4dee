"""The report's section on telemetry: hosts, the largest changes, gaps. Made-up samples."""

from runbuilder import build_repeat, proc_line, request, scrape_line

from servemap.analysis.derive import derive_attempt
from servemap.report.run import read_run
from servemap.report.telemetry import telemetry

PLAN = [{"variant": "baseline", "repeat": 1, "compared_with": [], "case": name} for name in "ab"]


def measure(run, case, busy, drop=()):
    """A case of 4 s whose two cores are busy to a share and half of that."""
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
        },
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
    assert any("a reference itself: baseline/a" in line for line in section.paragraphs)
    assert any("No collector went without" in line for line in section.paragraphs)


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
