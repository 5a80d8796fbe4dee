"""The page on failures is what the table gives, and its counts are those of the recorded logs."""

from pathlib import Path

from servemap.engines.failures import load_signatures
from servemap.engines.failures_page import PAGE, UNKNOWN, judge_logs, page_text
from tests.parts import need
from tests.unit.engines.test_failures import CORPUS

ROOT = Path(__file__).parents[3]
# A benchmark of a router that missed its own limit, which is no failure of a server.
UNEXPLAINED = {"016_sglang_ascend_pd_router_error"}
RECORDED = {
    name: [UNKNOWN] if name in UNEXPLAINED else [found for _, found in expected]
    for name, expected in CORPUS.items()
}


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page_text(RECORDED), (
        "run `python -m servemap.engines.failures_page FOLDER` in the repository"
    )


def test_its_counts_are_those_of_the_recorded_logs() -> None:
    assert judge_logs(Path(need("corpus"), "server_logs")) == RECORDED


def test_each_signature_has_a_row_and_each_log_its_line() -> None:
    text = page_text({"a": ["killed", "stopped"], "b": [UNKNOWN], "c": [], "d": ["killed"]})
    lines = text.splitlines()
    for signature in load_signatures():
        (row,) = [line for line in lines if line.startswith(f"| `{signature.id}` |")]
        assert signature.remedy.replace("|", "\\|") in row
        expected = {"killed": 2, "stopped": 1}.get(signature.id, 0)
        assert row.endswith(f"| {expected} |")
    assert "Of 4 recorded logs of real servers 2 match a signature, 1 tell of an error" in text
    assert lines[-4:] == [
        "| a | `killed`, `stopped` |",
        "| b | unknown: its first traceback and its last errors are shown |",
        "| c | no error |",
        "| d | `killed` |",
    ]


def test_a_folder_of_logs(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"\xff\nKilled\n")
    (tmp_path / "y.log").write_text("OddError: no one knows\n")
    (tmp_path / "z.log").write_text("")
    (tmp_path / "no.txt").write_text("Killed\n")
    assert judge_logs(tmp_path) == {"x": ["killed"], "y": [UNKNOWN], "z": []}
