"""A curve in the report: one table and one plot of its points, whatever is missing."""

import json
from pathlib import Path
from typing import Any

from campaignbuilder import case_requests, telemetry, window_ms
from runbuilder import build_repeat, write_json

from servemap.analysis.derive import derive_attempt
from servemap.analysis.repeats import Repeat
from servemap.report import frontier
from servemap.report.render import render
from servemap.report.run import read_run

CURVE = {"id": "decode", "kind": "curve", "isl": "64", "osl": "64", "concurrencies": [1, 4, 16]}


def build(run: Path, curve: dict[str, Any], levels: tuple[int, ...]) -> list[dict[str, Any]]:
    """Write a run with some of a curve's points and return its planned rows."""
    write_json(
        run / "run_manifest.json",
        {"schema": 1, "run": run.name, "created_ns": 1, "campaign": {"cases": [curve]}},
    )
    rows = []
    for level in (1, 4, 16):
        name = f"decode-c{level}"
        rows.append({"variant": "baseline", "case": name, "repeat": 1})
        if level in levels:
            requests = case_requests(64, 64, level, 1.0)
            end = window_ms(requests)
            folder = build_repeat(
                run,
                case=name,
                requests=requests,
                segments=[("main", 0.0, end)],
                telemetry=telemetry(end),
                interval_s=max(int(end / 12), 10) // 10 / 100,
                case_spec={"kind": "fixed", "isl": 64, "osl": 64, "concurrency": level},
            )
            derive_attempt(folder, {})
    return rows


def test_a_curve_is_one_table_and_one_plot(tmp_path: Path) -> None:
    rows = build(tmp_path / "run", CURVE, (1, 4, 16))
    section = frontier.curves(read_run(tmp_path / "run", rows))
    assert section is not None
    (table,), (plot,) = section.tables, section.plots
    assert [row[1].text for row in table.rows] == ["1", "4", "16"]
    throughput, ttft = plot.figure["data"][0]["x"], plot.figure["data"][0]["y"]
    assert throughput == sorted(throughput) and None not in throughput
    assert ttft == sorted(ttft)
    assert plot.figure["data"][0]["text"] == ["1", "4", "16"]
    json.dumps(plot.figure, allow_nan=False)
    render(tmp_path / "run", rows)
    assert "## Curves" in (tmp_path / "run/report.md").read_text()


def test_a_point_that_was_not_measured_is_there_without_figures(tmp_path: Path) -> None:
    section = frontier.curves(read_run(tmp_path / "run", build(tmp_path / "run", CURVE, (4,))))
    assert section is not None
    rows = {row[1].text: [cell.text for cell in row[2:4]] for row in section.tables[0].rows}
    assert rows["1"] == ["0/1", "-"]
    assert rows["4"][0] == "1/1" and rows["4"][1] != "-"


def test_a_searchs_answers_name_its_slo_and_what_they_are_of() -> None:
    answer = {"probe": "probe-02", "level": 32.5, "slo_share": 1.0}
    found = {"over": "rate", "slo": {"ttft_s": 2.0, "itl_p99_s": 0.05}, "slo_share": 0.995,
             "within_slo": answer, "most_succeeded": answer, "most_throughput": None,
             "said": "converged", "missed_at": 40.0}  # fmt: skip
    repeat = Repeat("baseline", "s", 1, Path(), {}, {}, "ok", "valid", [])
    within, succeeded, throughput = frontier._answer_rows(repeat, "baseline r1", found)
    assert within[0].note == "SLO: TTFT <= 2 s, ITL P99 <= 0.05 s, of 99.5 % of the requests"
    assert (within[3].text, within[8].text) == (
        "rate 32.5 req/s",
        "converged; missed at rate 40 req/s",
    )
    assert succeeded[2].text == "Most without a failed request, of the levels probed"
    assert throughput[2].text == "Most throughput, of the levels probed"
    assert throughput[3].text == "none"
    (probe,) = frontier._probe_rows(repeat, "", {**found, "probes": [{**answer, "failed": 0}]})
    assert probe[3].text == "rate 32.5 req/s"


def test_a_damaged_curve_and_a_run_without_one_have_no_section(tmp_path: Path) -> None:
    damaged = {**CURVE, "concurrencies": "many"}
    rows = build(tmp_path / "run", damaged, ())
    assert frontier.curves(read_run(tmp_path / "run", rows)) is None
    assert frontier.searches(read_run(tmp_path / "run", rows)) is None
