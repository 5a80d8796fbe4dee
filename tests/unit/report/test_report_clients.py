"""The section on load clients of others: absent without one, and what it says of each repeat."""

from pathlib import Path
from typing import Any

from servemap.analysis.client_summary import check_summary
from servemap.analysis.repeats import Repeat
from servemap.parsers.clients.records import ClientCall, ClientRun
from servemap.report.clients import COLUMNS, clients
from servemap.report.run import Run, read_run

META = {
    "status": "ok",
    "client": {"name": "vllm-bench", "version": "0.32.0", "window_cpu": {"cpu_s": 0.35}},
    "segments": [{"source": "the client's stamps", "error_ns": 305_715}],
}


def run_with(tmp_path: Path, meta: dict[str, Any], metrics: dict[str, Any]) -> Run:
    row = {"variant": "baseline", "case": "c", "repeat": 1}
    run = read_run(tmp_path, [row])
    (repeat,) = run.repeats
    assert isinstance(repeat, Repeat)
    return run._replace(repeats=[repeat._replace(meta=meta, metrics=metrics)])


def metrics_of(said_ms: float) -> dict[str, Any]:
    call = ClientCall("0", True, ttft_s=0.04, own_tokens=1)
    check, kept = check_summary(ClientRun([call], {"mean_ttft_ms": said_ms}, 1.0), "vllm-bench")
    return {"checks": [check._asdict()], "client_summary": kept}


def test_without_other_clients_there_is_no_section(tmp_path: Path) -> None:
    assert clients(run_with(tmp_path, {"status": "ok"}, {})) is None


def test_a_row_says_where_the_window_is_from_and_whether_the_summary_holds(tmp_path: Path) -> None:
    section = clients(run_with(tmp_path, META, metrics_of(40.0)))
    assert section is not None
    table, meanings = section.tables
    row = dict(zip(COLUMNS, table.rows[0], strict=True))
    assert row["Client"][:2] == ("vllm-bench", "0.32.0")
    assert row["Window from"].text == "the client's stamps"
    assert row["Known to ms"].text == "0.31"
    assert row["Processor time s"].text == "0.35"
    assert row["Figures made again"].text == "1 of 1"
    assert row["Largest difference"].tone == ""
    assert "TTFT" in [cells[0].text for cells in meanings.rows]


def test_a_summary_that_does_not_hold_is_marked(tmp_path: Path) -> None:
    section = clients(run_with(tmp_path, META, metrics_of(41.0)))
    assert section is not None
    cell = section.tables[0].rows[0][-1]
    assert cell.tone == "bad"
    assert cell.note == "mean_ttft_ms is 41, its requests give 40"


def test_an_attempt_that_failed_has_its_row(tmp_path: Path) -> None:
    failed = {"status": "failed", "client": {"name": "aiperf", "version": None}}
    section = clients(run_with(tmp_path, failed, {}))
    assert section is not None
    assert [cell.text for cell in section.tables[0].rows[0][4:]] == ["-"] * 5
