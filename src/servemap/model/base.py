"""What every model of the campaign file shares."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
PhaseName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

Program = Annotated[str, StringConstraints(pattern=r"\S")]
"""Name or path of a program, an interpreter or their folder on the nodes; it says something."""

_LENGTH = re.compile(r"^(?P<number>\d{1,12}(?:\.\d{1,12})?)(?P<unit>[Kk]?)$")


class Model(BaseModel):
    """A strict, immutable part of a campaign: an unknown key is an error, not a silence.

    Every number is finite, and true and false are none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_as_number(cls, data: Any) -> Any:
        given = data if isinstance(data, dict) else {}
        wrong = [
            InitErrorDetails(type=PydanticCustomError("number", _NO_NUMBER), loc=place, input=data)
            for name in sorted(given.keys() & numbers_of(cls))
            for place in _truths(given[name], (name,))
        ]
        if wrong:
            raise ValidationError.from_exception_data(cls.__name__, wrong)
        return data


_NO_NUMBER = "true and false (also written yes, no, on, off) are no numbers"


def _truths(value: Any, place: tuple[int | str, ...]) -> Iterator[tuple[int | str, ...]]:
    """Yield where in a value true or false stands."""
    if isinstance(value, bool):
        yield place
    elif isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in items:
            yield from _truths(one, (*place, key))


@cache
def numbers_of(model: type[BaseModel]) -> frozenset[str]:
    """Return the fields that are numbers, or lists or mappings of some, and never true or false."""
    found = {name: _kinds(field.annotation) for name, field in model.model_fields.items()}
    return frozenset(
        name for name, kinds in found.items() if kinds & {int, float} and bool not in kinds
    )


def _kinds(annotation: Any) -> set[Any]:
    """Return the plain types that an annotation is made of; a model checks its own fields."""
    if get_origin(annotation) is Literal:
        return {type(value) for value in get_args(annotation)}
    inner = get_args(annotation)
    return {kind for one in inner for kind in _kinds(one)} if inner else {annotation}


def _check_length(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a length is a number of tokens or a string such as '32K'")
    text = str(value)
    if _LENGTH.match(text) is None:
        raise ValueError(f"{text!r} is not a length: write 4096, '4096' or '32K'")
    return text


Length = Annotated[str, BeforeValidator(_check_length, json_schema_input_type=int | str)]
"""A number of tokens: `4096` is taken as it is, `4K` is 4 times the campaign's `tokens_per_k`."""


def tokens(length: str, tokens_per_k: int) -> int:
    """Return a length in tokens, `K` counted as `tokens_per_k`; at least 1."""
    match = _LENGTH.match(length)
    if match is None:
        raise ValueError(f"{length!r} is not a length")
    number = float(match["number"])
    return max(1, round(number * tokens_per_k if match["unit"] else number))
