"""The example of a lab's report that the documents show, and the command that makes it."""

import csv
import re
import sys
import tempfile
from pathlib import Path

import pytest

from tests.lab.example import LEFT_OUT, MOST_BYTES, keep, known_answers, renamed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/example-lab"
FILES = sorted(path for path in EXAMPLE.rglob("*") if path.is_file())


def test_folders_are_renamed_the_longest_first() -> None:
    names = [("/a", "/short"), ("/a/venv", "/opt/servemap")]
    assert renamed("/a/venv/bin/python /a/b", names) == "/opt/servemap/bin/python /short/b"


def test_tables_without_rows_and_everything_else_stay_behind(tmp_path: Path) -> None:
    results, target = tmp_path / "results", tmp_path / "kept"
    (results / "tables").mkdir(parents=True)
    (results / "tables/case_cpu_summary.csv").write_text("node\n/there/head\n")
    (results / "tables/case_memory_summary.csv").write_text("node\n")
    (results / "report.md").write_text("# Run\n## Environment\n\npackages\n\n## Definitions\n")
    (results / "run.log").write_text("no\n")
    target.mkdir()
    (target / "old").write_text("gone\n")
    kept = keep(results, target, [("/there", "/here")])
    report, table = target / "report.md", target / "tables/case_cpu_summary.csv"
    assert kept == report.stat().st_size + table.stat().st_size
    assert [path.relative_to(target).as_posix() for path in sorted(target.rglob("*.*"))] == [
        "report.md", "tables/case_cpu_summary.csv",
    ]  # fmt: skip
    assert table.read_text() == "node\n/here/head\n"
    assert report.read_text() == f"# Run\n{LEFT_OUT}## Definitions\n"
    assert not (target / "old").exists()


def test_the_example_is_small_and_names_no_folder_of_the_machine_that_made_it() -> None:
    assert sum(path.stat().st_size for path in FILES) < MOST_BYTES
    own = "|".join(map(re.escape, {str(ROOT), sys.prefix, tempfile.gettempdir(), "/root/"}))
    for path in FILES:
        assert not re.search(rf"(?<![\w.]){own}", path.read_text()), path


@pytest.mark.parametrize("family", ["cpu", "memory", "network"])
def test_both_nodes_have_rows_in_its_tables(family: str) -> None:
    rows = list(csv.DictReader((EXAMPLE / f"tables/case_{family}_summary.csv").open()))
    assert {row["node"] for row in rows} == {"head", "worker"}
    assert "decode_with_long_prefill" in {row["case"] for row in rows}


def test_the_known_answers_of_the_documents_are_those_of_its_table() -> None:
    """16M of an all-reduce is the one that is known within 3 %; gloo's others are as they are."""
    rows = list(csv.DictReader((EXAMPLE / "tables/baselines.csv").open()))
    lines = known_answers(rows)
    assert len(lines) == 16
    page = (ROOT / "docs/baselines.md").read_text()
    assert "\n".join(lines) in page, "write these into docs/baselines.md:\n" + "\n".join(lines)
    (known,) = [
        float(row["value"])
        for row in rows
        if (row["operation"], row["size_bytes"], row["figure"])
        == ("all_reduce", str(16 << 20), "time_min")
    ]
    assert (16 << 20) / known == pytest.approx(0.118e9, rel=0.03)
