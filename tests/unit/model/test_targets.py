"""Targets of a campaign: their text, their figures, and what is refused."""

from typing import get_args

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from test_checks import campaign

from servemap.analysis.summary import FIGURES
from servemap.model.checks import check
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.phases import Milestone
from servemap.model.plan import Plan
from servemap.model.schema import schema_text
from servemap.model.targets import figures, parse_target, with_present_names


@pytest.mark.parametrize(
    ("text", "name", "sign", "limit"),
    [
        ("ttft_p90_s <= 5", "ttft_p90_s", "<=", 5.0),
        ("output_tps_p10>=20", "output_tps_p10", ">=", 20.0),
        (" success_rate >= 0.99 ", "success_rate", ">=", 0.99),
        ("itl_max_s < 1.5e-2", "itl_max_s", "<", 0.015),
    ],
)
def test_a_target_is_figure_comparison_and_number(text, name, sign, limit):
    wanted = parse_target(text)
    assert (wanted.figure.name, wanted.sign, wanted.limit) == (name, sign, limit)


@pytest.mark.parametrize(
    "text", ["", "ttft_p90_s", "ttft_p90_s = 5", "5 >= ttft_p90_s", "ttft_p90_s <= -1",
             "ttft_p90_s <= 5 s", "ttft_p90_s <= nan", "a <= 1; b <= 2"]
)  # fmt: skip
def test_other_text_is_no_target(text):
    with pytest.raises(ValueError, match="must be FIGURE"):
        parse_target(text)


def test_an_unknown_figure_is_refused_with_those_near_it():
    with pytest.raises(ValueError, match=r"no figure ttft_p92_s; near it are ttft_p9"):
        parse_target("ttft_p92_s <= 5")


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("goodput_rps", "goodput_req_s"),
        ("request_rps", "request_s"),
        ("weighted_tps", "weighted_tok_s"),
        ("agg_input_tps", "input_tok_s"),
        ("total_tps", "total_tok_s"),
        ("uncached_input_tps", "uncached_input_tok_s"),
        ("cached_input_tps", "cached_input_tok_s"),
    ],
)
def test_a_former_name_is_refused_with_the_present_one_and_read_in_records(former, present):
    with pytest.raises(ValueError, match=rf"no figure {former}; near it are .*\b{present}\b"):
        parse_target(f"{former} >= 5")
    record = {"run": "r", "targets": [f" {former} >= 5", {"target": f"{former}>1", "gate": True}]}
    assert with_present_names(record)["targets"] == [
        f"{present} >= 5",
        {"target": f"{present}>1", "gate": True},
    ]


def test_records_without_targets_or_with_odd_ones_stay_as_they_are():
    for record in ({}, {"targets": 3}, {"targets": ["agg_output_tps >= 1", 3, {"gate": True}]}):
        assert with_present_names(record) == record


def test_a_single_figure_has_the_name_of_its_column():
    """The same figure has one name in targets, milestones and summary.csv."""
    for name, figure in figures().items():
        if figure.path in FIGURES:
            assert name == figure.path
    metric = Milestone.model_fields["metric"].annotation
    assert set(get_args(metric)) <= figures().keys() & FIGURES.keys()


def test_a_target_given_twice_is_refused():
    twice = ["ttft_p90_s <= 5", {"target": "ttft_p90_s<=5.0", "cases": ["one"], "gate": True}]
    with pytest.raises(ConfigError) as error:
        check(campaign(targets=twice))
    assert "'ttft_p90_s<=5.0' stands for case 'one' already" in error.value.what
    assert error.value.where == "targets.1 and targets.0"
    check(campaign(targets=["ttft_p90_s <= 5", "ttft_p90_s <= 2"]))


def test_a_percentage_is_no_share():
    with pytest.raises(ValueError, match="share of one"):
        parse_target("success_rate >= 99")


@given(st.sampled_from(["<=", ">=", "<", ">"]), st.integers(0, 50), st.integers(0, 50))
def test_a_limit_itself_counts_only_with_an_equals_sign(sign, limit, value):
    met = parse_target(f"ttft_p90_s {sign} {limit}").met_by(float(value))
    assert met == {"<=": value <= limit, ">=": value >= limit, "<": value < limit,
                   ">": value > limit}[sign]  # fmt: skip


def test_all_ten_points_of_each_series_can_be_named():
    points = ["p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max"]
    assert {f"ttft_{point}_s" for point in points} <= figures().keys()
    assert {f"output_tps_{point}" for point in points} <= figures().keys()


def test_targets_are_given_as_text_or_for_some_cases():
    found = campaign(
        targets=["ttft_p90_s <= 5", {"target": "tpot_p50_s <= 1", "cases": ["one"], "gate": True}]
    )
    check(found)
    rows = {row["case"]: row["targets"] for row in Plan(found).rows()}
    every = {"target": "ttft_p90_s <= 5", "gate": False}
    assert rows["one"] == [every, {"target": "tpot_p50_s <= 1", "gate": True}]
    assert rows["mix"] == [every]


def test_declared_bandwidth_stands_in_the_rows_and_changes_no_measurement():
    plain, declared = (
        Plan(campaign(nodes=[{"id": "head", **more}]))
        for more in ({}, {"memory_bandwidth_gb_s": 40, "accelerators": 2})
    )
    assert all("memory_bandwidth" not in row for row in plain.rows())
    expected = {"head": {"gb_s": 40, "accelerators": 2}}
    rows = declared.rows()
    assert [row.pop("memory_bandwidth") for row in rows] == [expected] * len(rows)
    assert rows == plain.rows()


def test_a_target_changes_no_measurement():
    with_, without = Plan(campaign(targets=["ttft_p90_s <= 5"])), Plan(campaign())
    assert with_.spec("case", "baseline", "one") == without.spec("case", "baseline", "one")
    assert with_.spec("derive") == without.spec("derive")


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([{"target": "ttft_p90_s <= 5", "cases": ["none"]}], "no case 'none'"),
        (["weighted_tok_s >= 8000"], "declares no weights"),
        (["slo_share >= 0.9"], "declares no slo"),
    ],
)
def test_a_target_that_can_never_be_measured_is_refused(targets, said):
    with pytest.raises(ConfigError) as error:
        check(campaign(targets=targets))
    assert said in error.value.what


def test_the_key_of_a_wrong_target_is_named():
    data = campaign().model_dump(mode="json")
    with pytest.raises(ConfigError) as error:
        parse_campaign({**data, "targets": ["ttft_p90 <= 5"]})
    assert "targets.0" in str(error.value)
    assert "ttft_p90_s" in str(error.value)


def test_the_schema_takes_a_targets_text_and_its_keys():
    schema = yaml.safe_load(schema_text())
    part = {**schema["properties"]["targets"], "$defs": schema.get("$defs", {})}
    jsonschema.validate(["ttft_p90_s <= 5", {"target": "ttft_p90_s <= 5", "gate": True}], part)
    for wrong in ([5], [{"cases": ["one"]}], "ttft_p90_s <= 5"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, part)
