"""What a campaign wants to reach: `FIGURE COMPARISON NUMBER`, and which figures there are."""

import difflib
import re
from functools import cache
from importlib import resources
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import AfterValidator, BeforeValidator, Field

from servemap.model.base import Model, Slug

_TARGET = re.compile(
    r"(?P<figure>[a-z][a-z0-9_]*)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
_CALLED_NEAR = 3


class Figure(NamedTuple):
    """A figure by its name: dotted path in a segment's figures, unit, and title in tables."""

    name: str
    path: str
    unit: str
    title: str


class Wanted(NamedTuple):
    """A parsed target: the figure, one of <= >= < >, and the limit in the figure's unit."""

    figure: Figure
    sign: str
    limit: float

    def met_by(self, value: float) -> bool:
        """Say whether a value of the figure reaches the target."""
        if self.sign.startswith("<"):
            return value < self.limit or (self.sign == "<=" and value == self.limit)
        return value > self.limit or (self.sign == ">=" and value == self.limit)


@cache
def figures() -> dict[str, Figure]:
    """Return the figures of target_figures.yaml by name."""
    file = resources.files("servemap.model").joinpath("target_figures.yaml")
    table: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    found = {
        name: Figure(name, row["path"], row["unit"], row["title"])
        for name, row in table["figures"].items()
    }
    for series, row in table["series"].items():
        for point in table["points"]:
            unit = row["unit"]
            name = f"{series}_{point}_{unit}" if unit else f"{series}_{point}"
            title = f"{row['title']} {point if point in ('max', 'mean') else point.upper()}"
            found[name] = Figure(name, f"{row['path']}.{point}", unit, title)
    return found


def parse_target(text: str) -> Wanted:
    """Return a target of its text; ValueError says what is wrong and which figures are near."""
    found = _TARGET.fullmatch(text.strip())
    if found is None:
        raise ValueError("must be FIGURE, one of <= >= < >, and a number, as in ttft_p90_s <= 5")
    figure = figures().get(found["figure"])
    if figure is None:
        near = difflib.get_close_matches(found["figure"], figures(), n=_CALLED_NEAR, cutoff=0.5)
        said = f"; near it are {', '.join(near)}" if near else ""
        raise ValueError(f"there is no figure {found['figure']}{said}")
    limit = float(found["limit"])
    if figure.unit == "share" and limit > 1:
        raise ValueError(f"{figure.name} is a share of one: 0.99, not 99")
    return Wanted(figure, found["sign"], limit)


def _checked(text: str) -> str:
    parse_target(text)
    return text.strip()


class Target(Model):
    """What a figure of some cases has to reach."""

    target: Annotated[str, AfterValidator(_checked)] = Field(
        description="FIGURE, one of <= >= < >, and a number in the figure's unit."
    )
    cases: list[Slug] = Field([], description="Cases that it is for; all if absent.")
    gate: bool = Field(False, description="Whether missing it also fails the gate.")


def _of_text(value: Any) -> Any:
    return {"target": value} if isinstance(value, str) else value


GivenTarget = Annotated[Target, BeforeValidator(_of_text, json_schema_input_type=str | Target)]
"""A target as a campaign gives it: its keys, or its text alone."""
