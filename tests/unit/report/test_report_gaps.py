"""The report's failures: one row for all repeats that have equal reasons."""

from runbuilder import build_repeat

from servemap.report.gaps import MOST_CASES, failures, not_measured
from servemap.report.run import read_run

WHY = "the server did not start\n  where: n1\n  remedy: read its log"
BOTH = "baseline/a r1 r2, baseline/b r1 r2"


def planned(run, cases, repeats=2, why=WHY, status="not_run"):
    for case in cases:
        for repeat in range(1, repeats + 1):
            build_repeat(run, case=case, repeat=repeat, status=status, reasons=[why])
    return [
        {"variant": "baseline", "case": case, "repeat": repeat, "compared_with": []}
        for case in cases
        for repeat in range(1, repeats + 1)
    ]


def rows(section):
    (table,) = section.tables
    return [[cell.text for cell in row] for row in table.rows]


def test_equal_reasons_share_a_row_with_their_count_and_cases(tmp_path):
    plan = planned(tmp_path / "run", ["a", "b"])
    plan += planned(tmp_path / "run", ["c"], repeats=1, why="the disk is full", status="failed")
    run = read_run(tmp_path / "run", plan)
    assert rows(failures(run)) == [
        [
            "not run",
            "4",
            "baseline/a r1 r2, baseline/b r1 r2",
            "1",
            "the server did not start",
            "-",
        ],
        ["failed", "1", "baseline/c r1", "1", "the disk is full", "-"],
    ]
    assert failures(run).tables[0].rows[0][4].note == "at n1; to do: read its log"
    missing = [row for row in rows(not_measured(run)) if row[0].startswith("baseline/")]
    assert missing == [[BOTH, "the server did not start"]]


def test_reasons_that_differ_stay_apart(tmp_path):
    plan = planned(tmp_path / "run", ["a"], repeats=1)
    plan += planned(tmp_path / "run", ["b"], repeats=1, why=WHY.replace("n1", "n2"))
    assert len(rows(failures(read_run(tmp_path / "run", plan)))) == 2


def test_many_cases_of_one_reason_are_cut_and_counted(tmp_path):
    plan = planned(tmp_path / "run", [f"c{k:02d}" for k in range(MOST_CASES + 3)], repeats=1)
    (row,) = rows(failures(read_run(tmp_path / "run", plan)))
    assert row[1] == str(MOST_CASES + 3)
    assert row[2].endswith("baseline/c19 r1 and 3 more")
