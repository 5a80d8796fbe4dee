"""What every model of the campaign file shares: no number is true or false, no program is empty."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from servemap.model import campaign as whole
from servemap.model.base import Model, numbers_of
from servemap.model.baselines import CollectiveBaseline
from servemap.model.campaign import Variant
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.phases import CaptureSpec, PhaseSpec
from servemap.model.policy import Policy
from tests.fakes import campaign


def models(base: type[Model] = Model) -> Iterator[type[Model]]:
    for model in base.__subclasses__():
        yield model
        yield from models(model)


FIELDS = sorted(
    {
        (model.__name__, name): (model, name)
        for model in models()
        if model.__module__.startswith(whole.__package__)
        for name in numbers_of(model)
    }.items()
)


def test_numbers_are_found_in_every_shape() -> None:
    assert len(FIELDS) > 100
    found = {key for key, _ in FIELDS}
    assert {("CaptureSpec", "ranks"), ("CollectiveBaseline", "sweep"), ("Limits", "stalled_s"),
            ("Policy", "max_deaths"), ("SearchCase", "tolerance")} <= found  # fmt: skip
    assert not {("PhaseSpec", "milestone"), ("Variant", "set"), ("Policy", "calibrate")} & found


@pytest.mark.parametrize(("key", "field"), FIELDS, ids=[".".join(key) for key, _ in FIELDS])
def test_no_number_is_true_or_false(key: tuple[str, str], field: tuple[type[Model], str]) -> None:
    model, name = field
    for value in (True, False, [True], {"A": True}, {"A": [False]}):
        with pytest.raises(ValidationError) as raised:
            model.model_validate({name: value})
        (error,) = raised.value.errors()
        assert (error["loc"][0], error["type"]) == (name, "number"), value


def test_true_stays_what_it_is_where_it_belongs() -> None:
    assert Policy(calibrate=False).calibrate is False
    assert PhaseSpec(id="p", milestone=True).rule is not None
    assert Variant(id="v", variable="x", set={"args.flag": True}).set == {"args.flag": True}


def test_a_campaign_says_where_a_number_is_true() -> None:
    with pytest.raises(ConfigError, match=r"true and false .* are no numbers") as raised:
        parse_campaign(campaign(cases=[{"id": "c", "isl": 64, "osl": 8, "concurrency": True}]))
    assert "concurrency" in str(raised.value)


@pytest.mark.parametrize("empty", ["", " "])
def test_a_program_is_named(empty: str) -> None:
    for model, keys in (
        (CaptureSpec, {"case": "c", "kind": "nsys", "program": empty}),
        (CollectiveBaseline, {"id": "b", "kind": "collective", "python": empty}),
        (CollectiveBaseline, {"id": "b", "kind": "collective", "programs": empty}),
    ):
        given: dict[str, Any] = keys
        with pytest.raises(ValidationError, match="should match pattern"):
            model(**given)
