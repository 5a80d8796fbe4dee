"""What every model of the campaign file shares."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
PhaseName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]

EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]

Program = Annotated[str, StringConstraints(pattern=r"\S")]
"""Name or path of a program, an interpreter or their folder on the nodes; it says something."""

_LENGTH = re.compile(r"^(?P<number>\d{1,12}(?:\.\d{1,12})?)(?P<unit>[Kk]?)$")


class Model(BaseModel):
    """A strict, immutable part of a campaign: an unknown key is an error, not a silence.

    Every number is finite, and no value stands for one of another type: `true` is not 1, `"no"` is
    not false.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


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
