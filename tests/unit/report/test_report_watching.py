"""The report's section on what watching costs."""

from runbuilder import build_repeat, write_json

from servemap.analysis.derive import derive_attempt
from servemap.report.run import read_run
from servemap.report.watching import watching


def record(interval_s, status="ok"):
    return {"status": status, "samples": 7, "interval_s": interval_s, "required": False}


def test_it_names_the_collectors_that_cannot_be_as_fast(tmp_path):
    run = tmp_path / "run"
    fast = {
        "head/proc": record(0.1),
        "head/mpstat": record(1.0),
        "head/ethtool": record(0.5),
        "head/npu_smi": record(1.0, "absent"),
    }
    for case, collectors in (("d-unwatched", {}), ("d-watched", fast), ("d-10hz", fast)):
        derive_attempt(build_repeat(run, case=case, facts={"collectors": collectors}), {})
    cases = [{"id": "d", "kind": "fixed", "watching": "compare"}]
    write_json(run / "run_manifest.json", {"schema": 1, "campaign": {"cases": cases}})
    plan = [
        {"variant": "baseline", "case": case, "repeat": 1, "compared_with": []}
        for case in ("d-unwatched", "d-watched", "d-10hz")
    ]
    (table,) = watching(read_run(run, plan)).tables
    assert [(row[2].text, row[2].note) for row in table.rows] == [
        ("collectors as in the campaign", ""),
        ("collectors at 10 Hz", "less often, as their tools allow: ethtool 0.5 s, mpstat 1 s"),
    ]
