"""Baselines, captures and phases of the campaign file."""

from typing import Annotated, Literal

from pydantic import Field

from servemap.model.base import Model, PhaseName, Slug


class BaselineSpec(Model):
    """A one-time communication micro-benchmark with no server on the cards."""

    id: Slug
    kind: Literal["tcp"]
    pings: Annotated[int, Field(ge=10, le=100_000)] = 500
    seconds: Annotated[float, Field(gt=0, le=60)] = 1.0


class CaptureSpec(Model):
    """A profile of a few engine steps, bound to one case."""

    case: Slug
    kind: Literal["torch"] = "torch"
    num_steps: Annotated[int, Field(ge=1, le=100_000)] = 10


class Milestone(Model):
    """What the repeats of a phase must show for its target to succeed."""

    repeats: Annotated[int, Field(ge=2, le=1000)] = Field(
        3, description="Valid repeats of each case; as many are planned."
    )
    cv: Annotated[float, Field(gt=0, le=1)] = Field(
        0.03, description="Largest coefficient of variation of the figure."
    )
    metric: Literal[
        "agg_output_tps",
        "input_tok_s",
        "total_tok_s",
        "request_s",
        "weighted_tok_s",
        "goodput_req_s",
    ] = "agg_output_tps"


class PhaseSpec(Model):
    """A named set of baselines, variants, cases and captures."""

    id: PhaseName
    title: str = ""
    requires: list[PhaseName] = []
    baselines: list[Slug] = []
    variants: list[Slug] = Field([], description="Variants and grids; all if absent.")
    cases: list[Slug] = Field(
        [], description="Cases; a curve or compared watching stands for its cases."
    )
    captures: list[CaptureSpec] = []
    milestone: bool | Milestone = Field(
        False, description="Whether the repeats of its cases must agree; true for the usual rule."
    )

    @property
    def rule(self) -> Milestone | None:
        """The rule of a milestone; None for other phases."""
        if isinstance(self.milestone, Milestone):
            return self.milestone
        return Milestone() if self.milestone else None
