"""The three answers of a search rest on valid probes only, whatever is made of the others."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.probes import FAILURES, outcome_of
from servemap.analysis.search import Probe, check_search, search_figures
from servemap.analysis.table import say_answer
from servemap.analysis.verdict import Check, verdict
from servemap.model.search import Judgement, Outcome, say_level

CASE = {
    "over": "concurrency", "start": 1, "most": 64, "tolerance": 0, "max_probes": 16,
    "max_s": 100, "slo": {"ttft_s": 1}, "slo_share": 0.99,
}  # fmt: skip


def probe(number: int, level: int, outcome: Outcome, failed: int = 0, rate: float = 1.0) -> Probe:
    judgement = Judgement(outcome, 1.0, ["client_lag_ms: late"] if outcome == "invalid" else [])
    figures = {"failed": failed, "timed_out": 0, "request_s": rate, "agg_output_tps": 8 * rate}
    return Probe(f"probe-{number:02d}", level, judgement, figures, [])


def found(probes: list[Probe], ended: str = "converged", **case: Any) -> dict[str, Any]:
    return search_figures({**CASE, **case}, {"ended": ended}, probes)


def test_three_answers_are_kept_apart() -> None:
    probes = [
        probe(1, 1, "met", rate=1),
        probe(2, 2, "met", rate=2),
        probe(3, 4, "missed", rate=4),
        probe(4, 8, "missed", rate=3),
        probe(5, 16, "missed", failed=2, rate=2),
        probe(6, 3, "met", rate=3),
    ]
    search = found(probes)
    answers = {key: search[key]["level"] for key in ("within_slo", "most_throughput")}
    assert answers == {"within_slo": 3, "most_throughput": 4}
    assert search["most_succeeded"]["probe"] == "probe-04"
    assert (search["ended"], search["lower_bound"], search["missed_at"]) == ("converged", False, 4)


def test_an_invalid_probe_makes_the_answer_a_lower_bound_and_nothing_else() -> None:
    probes = [probe(1, 1, "met"), probe(2, 2, "met"), probe(3, 4, "invalid"), probe(4, 3, "met")]
    search = found(probes)
    assert search["within_slo"]["level"] == 3
    assert (search["ended"], search["lower_bound"]) == ("invalid", True)
    assert verdict(check_search(probes))[0] == "valid"
    outcome, reasons = verdict(check_search([probes[2]]))
    assert outcome == "invalid"
    assert "client_lag_ms" in reasons[0]
    assert verdict(check_search([]))[0] == "invalid"


def test_without_a_valid_probe_nothing_is_known() -> None:
    search = found([probe(1, 1, "invalid"), probe(2, 1, "invalid")], ended="invalid")
    assert (search["ended"], search["within_slo"]) == ("unknown", None)
    assert "nothing is known" in search["said"]
    assert say_answer(search) == "no level is known to meet the SLO"


def test_a_rate_has_its_unit() -> None:
    assert (say_level("concurrency", 24), say_level("rate", 2.5)) == (
        "concurrency 24",
        "rate 2.5 req/s",
    )
    search = found([probe(1, 4, "missed"), probe(2, 8, "met")], over="rate")
    assert search["non_monotonic"] == ["rate 8 req/s met the SLO although 4 missed it"]


def test_what_is_not_monotonic_is_said() -> None:
    probes = [probe(1, 1, "met"), probe(2, 4, "missed", failed=1), probe(3, 8, "met")]
    search = found(probes)
    assert search["within_slo"]["level"] == 1, "the answer lies below all that missed"
    assert search["non_monotonic"] == [
        "concurrency 8 met the SLO although 4 missed it",
        "concurrency 8 had no failed request although 4 had some",
    ]


def test_no_level_meets_the_slo() -> None:
    search = found([probe(1, 1, "missed")], "none")
    assert (search["within_slo"], search["ended"], search["lower_bound"]) == (None, "none", False)
    assert search["most_succeeded"]["level"] == 1


def test_an_older_record_without_its_end_is_read() -> None:
    assert search_figures(CASE, {}, [probe(1, 1, "met")])["ended"] == "invalid"


@given(
    st.lists(
        st.tuples(
            st.integers(1, 64), st.sampled_from(["met", "missed", "invalid"]), st.integers(0, 2)
        ),
        max_size=12,
    )
)
def test_no_answer_rests_on_an_invalid_probe(made: list[tuple[int, Outcome, int]]) -> None:
    probes = [probe(n, *one) for n, one in enumerate(made)]
    valid = {p.name for p in probes if p.valid}
    search = found(probes, "probes")
    for key in ("within_slo", "most_succeeded", "most_throughput"):
        assert search[key] is None or search[key]["probe"] in valid
    if search["within_slo"] is not None and search["missed_at"] is not None:
        assert search["within_slo"]["level"] < search["missed_at"]
    if valid:
        assert search["most_throughput"] is not None


def test_failures_miss_the_slo_and_other_checks_make_a_probe_invalid() -> None:
    failures = Check(FAILURES, 0.5, 0.01, False)
    assert outcome_of(0.5, 0.99, [failures]).outcome == "missed"
    assert outcome_of(1.0, 0.99, [failures]).outcome == "met"
    late = outcome_of(1.0, 0.99, [Check("client_lag_ms", 400.0, 100.0, False)])
    assert (late.outcome, late.reasons) == ("invalid", ["client_lag_ms: 400, limit 100"])
    assert outcome_of(None, 0.99, []).outcome == "invalid"
