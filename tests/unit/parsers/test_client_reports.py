"""Reports and tables of load clients, made up: what is missing, and what is cut."""

import json
from pathlib import Path

import pytest

from servemap.model.errors import ParseError
from tests.corpus import extract

MADE = Path(__file__).parent / "made"


def test_a_figure_of_which_nothing_was_counted_is_null_and_not_0() -> None:
    (run,) = extract("guidellm", (MADE / "guidellm.json").read_bytes()).data["benchmarks"]
    assert run["requests"] == {"successful": 16, "errored": 1, "incomplete": 3, "total": 20}
    assert run["figures"]["time_to_first_token_s"]["mean"] == 0.0625
    assert run["figures"]["request_latency_s"]["mean"] == 0.75
    assert run["figures"]["inter_token_latency_s"] is None
    assert "slo_attainment" not in run["figures"]


def test_statistics_of_a_figure_count_once_their_number_is_known() -> None:
    text = (MADE / "guidellm.json").read_text()
    start = text.index('"time_to_first_token_ms"')
    data, skipped = extract("guidellm", text[: text.index('"count"', start)].encode())
    assert data["benchmarks"][0]["figures"]["time_to_first_token_s"] is None
    assert [piece.reason for piece in skipped] == ["cut from here on"]


@pytest.mark.parametrize(
    "document", [{}, {"benchmarks": []}, {"benchmarks": [{"metrics": {}}]}, []]
)
def test_a_document_without_benchmarks_is_refused(document) -> None:
    with pytest.raises(ParseError, match="no list of benchmarks with metrics"):
        extract("guidellm", json.dumps(document if document else {"a": [{}]}).encode())


def test_failures_of_inference_perf_have_their_own_latencies() -> None:
    data, _ = extract("inference-perf", (MADE / "inference-perf.json").read_bytes())
    assert (data["successes"]["count"], data["failures"]["count"]) == (38, 2)
    assert data["failures"]["request_latency_s"]["median"] == 30
    assert data["successes"]["normalized_time_per_output_token_s"] is None


def test_a_row_whose_name_goes_on_below_waits_for_the_border() -> None:
    text = (MADE / "aiperf.txt").read_text()
    (whole,) = extract("aiperf", text.encode()).data["tables"]
    per_user = "output_token_throughput_per_user_tokens_per_s"
    assert whole["metrics"][per_user]["avg"] == 80.25
    data, skipped = extract("aiperf", text[: text.index("(tokens/sec/user)")].encode())
    (table,) = data["tables"]
    assert list(table["metrics"]) == ["time_to_first_token_s", "request_latency_s"]
    assert [piece.reason for piece in skipped] == [
        "the table is cut here",
        "a last line without its end, which may be cut",
    ]


@pytest.mark.parametrize("cell", ["1,25", "1.2.3", "12,5.0", "…", "1e5", "12 34", "1,250"])
def test_a_cell_that_is_no_number_of_aiperfs_costs_its_row(cell) -> None:
    text = (MADE / "aiperf.txt").read_text().replace("   62.50", f"{cell:>8}")
    data, skipped = extract("aiperf", text.encode())
    assert "time_to_first_token_s" not in data["tables"][0]["metrics"]
    assert [piece.reason for piece in skipped] == ["a cell that is no number"]
