"""Captures and phases of the campaign file."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from servemap.model.base import Model, PhaseName, Program, Slug

STEPS = 10
"""Engine steps of a capture by torch that does not say how many."""

LEAST_SECONDS = 0.5
"""Of nsys: two commands that each start a process, the start's answer between them.

On a busy node that takes some tenths of a second, and what is left is what all nodes collect.
"""


class CaptureSpec(Model):
    """A profile of a few engine steps, or of a short time, bound to one case."""

    case: Slug
    kind: Literal["torch", "nsys"] = "torch"
    num_steps: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description=f"Of torch: engine steps; {STEPS} if absent."
    )
    stage: Literal["prefill", "decode"] | None = Field(
        None, description="Only steps of this stage; both as they come if absent."
    )
    ranks: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = Field(
        None, description="Ranks whose traces are kept, where all are too big; all if absent."
    )
    seconds: Annotated[float, Field(ge=LEAST_SECONDS, le=60)] | None = Field(
        None, description="Of nsys: how long is collected; 2 if absent."
    )
    graphs: Literal["node", "graph"] | None = Field(
        None, description="Of nsys: CUDA graphs by node or as a whole; by node if absent."
    )
    program: Program | None = Field(None, description="Of nsys: its path on the nodes.")

    @model_validator(mode="before")
    @classmethod
    def _usual_steps(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("kind", "torch") != "torch":
            return data
        return {**data, "num_steps": STEPS} if data.get("num_steps") is None else data

    @model_validator(mode="after")
    def _of_its_kind(self) -> "CaptureSpec":
        for kind, keys in (
            ("nsys", ("seconds", "graphs", "program")),
            ("torch", ("num_steps", "stage", "ranks")),
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
