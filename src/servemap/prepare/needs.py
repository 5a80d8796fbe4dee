"""What collectors and baselines need on a node, as data: `needs.yaml` beside this file."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated

import yaml
from pydantic import Field

from servemap.model.base import Model, Slug


class Need(Model):
    """Tools on PATH."""

    tools: list[str]


class CollectorNeed(Need):
    """Tools of a collector, and what one of its samples takes in the raw file."""

    bytes_per_sample: Annotated[int, Field(ge=1)]


class EngineNeed(Model):
    """Modules of an engine."""

    modules: list[str]


class Needs(Model):
    """The whole table."""

    version: Annotated[int, Field(ge=1, le=1, alias="schema")]
    collectors: dict[Slug, CollectorNeed]
    baselines: dict[Slug, Need]
    facts: dict[Slug, Need]
    engines: dict[Slug, EngineNeed]
    install: dict[str, str]

    def named(self) -> Mapping[str, list[str]]:
        """Return {name: tools} of all collectors, baselines and facts."""
        return {
            name: need.tools
            for group in (self.collectors, self.baselines, self.facts)
            for name, need in group.items()
        }


def parse_needs(document: str) -> Needs:
    """Return a table; pydantic's ValidationError names the entry that is wrong."""
    return Needs.model_validate(yaml.safe_load(document))


@cache
def needs() -> Needs:
    """Return the table."""
    file = resources.files("servemap.prepare").joinpath("needs.yaml")
    return parse_needs(file.read_text(encoding="utf-8"))
