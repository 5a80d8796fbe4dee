"""The collectors of a campaign: changes to those of the catalogue, and its own."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from servemap.model.base import Model

Seconds = Annotated[float, Field(ge=0.01, le=60)]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Heading = Annotated[str, Field(max_length=80, pattern=r"^\S(.*\S)?$")]
_NAMED = re.compile(r"[^{}]*\{([^{}]+)\}[^{}]*")


class CollectorColumn(Model):
    """One column of a table, and the metric that it becomes."""

    column: Heading
    metric: Word
    unit: Word
    scale: Annotated[float, Field(gt=0)] = Field(1.0, description="Multiplies the value.")
    counter: bool = Field(False, description="A total, of which the rate is kept.")

    @model_validator(mode="after")
    def _rate(self) -> "CollectorColumn":
        if self.counter and not self.unit.endswith(("per_s", "percent")):
            raise ValueError(
                f"a counter becomes a rate, so its unit ends in per_s (or is percent): {self.unit}"
            )
        return self


def _names_a_column(entity: str) -> str:
    if _NAMED.fullmatch(entity) is None:
        raise ValueError(f"{entity!r} does not name one column in braces, as in 'gpu{{index}}'")
    return entity


class CollectorTable(Model):
    """A table with a line of headings, as a tool prints it."""

    entity: Annotated[str, AfterValidator(_names_a_column)] = Field(
        description="What a row is of: text with the heading of one column in braces."
    )
    columns: Annotated[list[CollectorColumn], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _distinct(self) -> "CollectorTable":
        names = [column.metric for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two columns make the metric {', '.join(twice)}")
        return self

    def entity_parts(self) -> tuple[str, str, str]:
        """Return what stands before the column's heading in `entity`, the heading, and the rest."""
        before, _, rest = self.entity.partition("{")
        heading, _, after = rest.partition("}")
        return before, heading, after


def _names_a_program(argv: list[str]) -> list[str]:
    if not argv[0].strip():
        raise ValueError("its first word is blank: name the program that is run")
    return argv


class CollectorSetting(Model):
    """How a collector of the catalogue runs in this campaign, or one of the campaign's own."""

    interval_s: Seconds | None = None
    required: bool | None = None
    enabled: bool = True
    argv: Annotated[list[str], Field(min_length=1), AfterValidator(_names_a_program)] | None = (
        Field(
            None, description="Command of a collector of the campaign's own, run for each sample."
        )
    )
    table: CollectorTable | None = Field(None, description="How what it prints is read.")
    path: Annotated[str, Field(pattern="^/")] | None = Field(
        None, description="File on the head of a collector that follows a log."
    )

    @model_validator(mode="after")
    def _together(self) -> "CollectorSetting":
        if (self.argv is None) != (self.table is None):
            raise ValueError("argv and table belong together: what is run, and how it is read")
        return self

    def identity(self) -> dict[str, Any]:
        """Return what identifies a measurement; later keys are there only where they are set."""
        always = ("interval_s", "required", "enabled")
        dumped = self.model_dump(mode="json")
        return {key: one for key, one in dumped.items() if key in always or one is not None}
