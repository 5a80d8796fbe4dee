"""Targets of a campaign: their text, their figures, and what is refused."""

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from test_checks import campaign

from servemap.model.checks import check
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.plan import Plan
from servemap.model.schema import schema_text
from servemap.model.targets import figures, parse_target


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


def test_a_target_changes_no_measurement():
    with_, without = Plan(campaign(targets=["ttft_p90_s <= 5"])), Plan(campaign())
    assert with_.spec("case", "baseline", "one") == without.spec("case", "baseline", "one")
    assert with_.spec("derive") == without.spec("derive")


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([{"target": "ttft_p90_s <= 5", "cases": ["none"]}], "no case 'none'"),
        (["weighted_tps >= 8000"], "declares no weights"),
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
