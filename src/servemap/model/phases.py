"""Captures and phases of the campaign file."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from servemap.model.base import Model, PhaseName, Slug


class CaptureSpec(Model):
    """A profile of a few engine steps, or of a short time, bound to one case."""

    case: Slug
    kind: Literal["torch", "nsys"] = "torch"
    num_steps: Annotated[int, Field(ge=1, le=100_000)] = 10
    stage: Literal["prefill", "decode"] | None = Field(
        None, description="Only steps of this stage; both as they come if absent."
    )
    ranks: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = Field(
        None, description="Ranks whose traces are kept, where all are too big; all if absent."
    )
    seconds: Annotated[float, Field(gt=0, le=60)] | None = Field(
        None, description="Of nsys: how long is collected; 2 if absent."
    )
    graphs: Literal["node", "graph"] | None = Field(
        None, description="Of nsys: CUDA graphs by node or as a whole; by node if absent."
    )
    program: str | None = Field(None, description="Of nsys: its path on the nodes.")

    @model_validator(mode="after")
    def _of_its_kind(self) -> "CaptureSpec":
        for kind, keys in (
            ("nsys", ("seconds", "graphs", "program")),
            ("torch", ("stage", "ranks")),
        ):
            given = [key for key in keys if getattr(self, key) is not None]
            if given and self.kind != kind:
                raise ValueError(f"{given[0]} needs kind: {kind}")
        return self


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
