"""The campaign file: the models are the truth, the JSON Schema is generated from them."""

from typing import Any

from pydantic import Field

from servemap.model.base import Model, Slug
from servemap.model.cases import (
    BaselineSpec,
    CaseSpec,
    CollectorSetting,
    Freeze,
    PhaseSpec,
    Policy,
    Scale,
)
from servemap.model.server_spec import ModelSpec, NodeSpec, ServerSpec


class Variable(Model):
    """What one experiment changes: a named bundle of keys of the server spec."""

    id: Slug
    keys: list[str] = Field(min_length=1, description="Dotted keys below `server`.")
    why: str = ""


class Variant(Model):
    """The server spec with one variable changed; `baseline` changes none."""

    id: Slug
    variable: Slug | None = None
    set: dict[str, Any] = Field(
        {}, description="Dotted keys below `server` and their values; null removes an argument."
    )


class Weights(Model):
    """Weights of the weighted token throughput."""

    uncached_input: float
    cached_input: float
    output: float


class Campaign(Model):
    """One configuration file: a run on one cluster."""

    run: Slug = Field(description="Name of the run and of its folder under `results/`.")
    title: str = ""
    extends: str | None = Field(None, description="Campaign file that this one overlays.")
    inventory: str | None = Field(None, description="File that holds `nodes`.")
    nodes: list[NodeSpec] = Field(min_length=1)
    model: ModelSpec
    server: ServerSpec
    variables: list[Variable] = []
    variants: list[Variant] = Field([Variant(id="baseline")], min_length=1)
    cases: list[CaseSpec] = Field(min_length=1)
    baselines: list[BaselineSpec] = []
    phases: list[PhaseSpec] = Field(min_length=1)
    collectors: dict[Slug, CollectorSetting] = {}
    scale: Scale = Scale()
    policy: Policy = Policy()
    freeze: Freeze = Freeze()
    slo: dict[str, float] = Field(
        {}, description="Limits of goodput: ttft_s, tpot_s, e2e_s, itl_p99_s."
    )
    weights: Weights | None = None
    limits: dict[str, float] = Field({}, description="Limits of the verdict's checks.")
