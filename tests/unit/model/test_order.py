"""The order of repeats, and the milestones that ask for some."""

from collections import Counter
from itertools import groupby, product
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servemap.analysis.summary import AGGREGATED
from servemap.model.campaign import Campaign
from servemap.model.checks import check
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.order import Order, job_sequence, repeats_in_order
from servemap.model.phases import Milestone, PhaseSpec
from servemap.model.plan import Plan

ORDERS: tuple[Order, ...] = get_args(Order)
TWO = {("a", "x"): 2, ("a", "y"): 2, ("b", "x"): 2, ("b", "y"): 1}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("interleaved", "ax1 ay1 ax2 ay2 bx1 by1 bx2"),
        ("blocked", "ax1 ax2 ay1 ay2 bx1 bx2 by1"),
        ("relaunched", "ax1 ay1 bx1 by1 ax2 ay2 bx2"),
    ],
)
def test_the_three_orders(order: Order, expected: str) -> None:
    keys = repeats_in_order(order, ["a", "b"], ["x", "y"], TWO)
    assert " ".join(f"{v}{c}{k}" for v, c, k in keys) == expected


COUNTS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), st.integers(0, 4), max_size=9
)


@given(st.sampled_from(ORDERS), COUNTS)
def test_every_repeat_once_and_servers_started_no_more_than_needed(
    order: Order, counts: dict[tuple[str, str], int]
) -> None:
    keys = repeats_in_order(order, "abc", "xyz", counts)
    expected = [(v, c, k) for (v, c), n in counts.items() for k in range(1, n + 1)]
    assert Counter(keys) == Counter(expected)
    for _, own in groupby(sorted(keys, key=lambda key: key[:2]), key=lambda key: key[:2]):
        repeats = [key[2] for key in own]
        assert repeats == sorted(repeats), "the repeats of a case go up"
    starts = len([variant for variant, _ in groupby(key[0] for key in keys)])
    if order != "relaunched":
        assert starts == len({key[0] for key in keys})


@given(st.sampled_from(ORDERS), COUNTS, st.sets(st.sampled_from([*product("abc", "xyz")])))
def test_what_a_case_needs_comes_before_it(
    order: Order, counts: dict[tuple[str, str], int], captures: set[tuple[str, str]]
) -> None:
    keys = repeats_in_order(order, "abc", "xyz", counts)
    places = job_sequence(["net"], True, keys, sorted(captures))
    assert sorted(places.values()) == list(range(len(places)))
    assert [places["baseline", "net"], places["calibrate",]] == [0, 1]
    used = {key[0] for key in keys} | {variant for variant, _ in captures}
    wanted = {("patch", name) for name in used} | {("launch", name) for name in used}
    wanted |= {("case", v, c, str(k)) for v, c, k in keys}
    wanted |= {("capture", *pair) for pair in captures}
    assert places.keys() == wanted | {("baseline", "net"), ("calibrate",)}
    for name in used:
        own = sorted((place, key[0]) for key, place in places.items() if key[1:2] == (name,))
        kinds = [kind for _, kind in own]
        assert kinds[:2] == ["patch", "launch"]
        assert kinds[2:] == sorted(kinds[2:], key=["case", "capture"].index)
        assert own[1][0] == own[0][0] + 1


def campaign(**keys: Any) -> Campaign:
    base: dict[str, Any] = {
        "run": "r",
        "nodes": [{"id": "n1"}],
        "model": {"name": "m", "path": "/m", "context": 1000},
        "server": {"engine": "vllm"},
        "cases": [
            {"id": "one", "isl": 8, "osl": 8, "concurrency": 1},
            {"id": "two", "isl": 8, "osl": 8, "concurrency": 2},
        ],
        "phases": [
            {"id": "quick", "cases": ["one", "two"]},
            {"id": "m1", "cases": ["one"], "milestone": True, "requires": ["quick"]},
            {"id": "after", "requires": ["m1"]},
        ],
    }
    return parse_campaign({**base, **keys})


def test_a_milestone_plans_its_repeats_and_no_other_phase_does() -> None:
    made = Plan(campaign())
    assert made.items("quick").repeats == [("baseline", "one", 1), ("baseline", "two", 1)]
    assert [key[1:] for key in made.items("m1").repeats] == [
        ("one", 1), ("two", 1), ("one", 2), ("one", 3)
    ]  # fmt: skip
    assert made.milestones("quick") == []
    (asked,) = made.milestones("m1")
    assert (asked["phase"], asked["repeats"], asked["cv"]) == ("m1", 3, 0.03)
    assert asked["metric"] == "agg_output_tps"
    assert [(row["case"], row["repeat"]) for row in asked["rows"]] == [
        ("one", 1), ("one", 2), ("one", 3)
    ]  # fmt: skip
    assert made.milestones("after") == [asked], "a phase that requires it fails with it"
    assert asked["rows"][0] == made.rows()[0]


def test_the_order_and_the_milestone_change_no_spec() -> None:
    """What was measured stays measured when only these change."""
    phases = [{"id": "quick", "cases": ["one", "two"]}]
    plain = Plan(campaign(phases=phases))
    for other in (campaign(), campaign(policy={"order": "blocked", "repeats": 3})):
        for case in ("one", "two"):
            assert Plan(other).spec("case", "baseline", case) == plain.spec(
                "case", "baseline", case
            )


def phase(milestone: Any) -> dict[str, Any]:
    return {"id": "m1", "cases": ["one", "two"], "milestone": milestone}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"phases": [{"id": "m", "milestone": True}, phase(False)]}, "the phase has none"),
        ({"phases": [phase({"metric": "weighted_tok_s"})]}, "without `weights`"),
        ({"phases": [phase({"metric": "goodput_req_s"})]}, "without `slo`"),
        (
            {
                "cases": [
                    {"id": "one", "isl": 8, "osl": 8, "concurrency": 1, "repeats": 2},
                    {"id": "two", "isl": 8, "osl": 8, "concurrency": 2},
                ],
                "phases": [phase(True)],
            },
            "2 repeats of case 'one' are planned, the milestone asks for 3",
        ),
        (
            {
                "server": {"engine": "vllm", "attach": "http://127.0.0.1:1"},
                "policy": {"order": "relaunched"},
            },
            "only attached to",
        ),
    ],
)
def test_what_can_never_be_met_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check(campaign(**keys))


@pytest.mark.parametrize(
    ("keys", "metric"),
    [
        ({"weights": {"uncached_input": 1, "cached_input": 1, "output": 1}}, "weighted_tok_s"),
        ({"slo": {"ttft_s": 1}}, "goodput_req_s"),
    ],
)
def test_a_figure_that_is_there_is_taken(keys: dict[str, Any], metric: str) -> None:
    check(campaign(**keys, phases=[phase({"metric": metric, "repeats": 2, "cv": 0.1})]))


def test_the_figures_of_a_milestone_are_aggregated() -> None:
    assert set(get_args(Milestone.model_fields["metric"].annotation)) <= set(AGGREGATED)


def test_no_rule_without_a_milestone() -> None:
    assert PhaseSpec(id="p").rule is None
    assert PhaseSpec(id="p", milestone=Milestone(cv=0.1)).rule == Milestone(cv=0.1)
    with pytest.raises(ValidationError):
        Milestone(repeats=1)
