"""The campaign file: the models are the truth, the JSON Schema is generated from them."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from servemap.model.base import Model, Slug
from servemap.model.baselines import BaselineSpec
from servemap.model.cases import CaseSpec
from servemap.model.clients import ClientName, ClientSpec
from servemap.model.collectors import CollectorSetting
from servemap.model.phases import PhaseSpec
from servemap.model.policy import Freeze, Policy, Scale
from servemap.model.server_spec import ModelSpec, NodeSpec, ServerSpec
from servemap.model.slo import Chosen, NotNegative, Slo
from servemap.model.targets import GivenTarget


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


Value = bool | int | float | str | list[str] | None


class Level(Model):
    """One value of a variable in a grid, where it sets several keys or needs a name."""

    id: Slug
    set: dict[str, Any] = Field(
        {}, description="As in a variant; empty for the server spec as it is."
    )


class Axis(Model):
    """A variable of a grid and the values that it takes; exactly one of the two lists."""

    variable: Slug
    values: list[Value] = Field(
        [], description="Values of the variable's only key; null takes the key away."
    )
    levels: list[Level] = Field([], description="Named values.")

    @model_validator(mode="after")
    def _one(self) -> "Axis":
        if bool(self.values) == bool(self.levels):
            raise ValueError("give either values or levels")
        return self


class Grid(Model):
    """Every combination of some variables' values, each a variant named by its values."""

    id: Slug
    axes: list[Axis] = Field(min_length=1)


class Weights(Model):
    """Weights of the weighted token throughput."""

    uncached_input: NotNegative
    cached_input: NotNegative
    output: NotNegative


class Limits(Chosen):
    """Limits of the verdict's checks; where one is absent, that of `analysis/limits.yaml`."""

    error_share: NotNegative | None = None
    latency_missing: NotNegative | None = None
    token_count_mismatch: NotNegative | None = None
    output_token_deviation: NotNegative | None = None
    input_token_mismatch: NotNegative | None = None
    input_token_tolerance: NotNegative | None = None
    cache_hit_rate: NotNegative | None = None
    prefix_share_miss: NotNegative | None = None
    replay_share_miss: NotNegative | None = None
    stalled_s: NotNegative | None = None
    collector_coverage: Annotated[float, Field(ge=0, le=1)] | None = None
    client_lag_ms: NotNegative | None = None
    client_lag_share: NotNegative | None = None
    client_cpu_share: NotNegative | None = None
    clock_drift_ms: NotNegative | None = None
    foreign_cpu_share: NotNegative | None = None
    littles_law_deviation: NotNegative | None = None
    concurrency_deviation: NotNegative | None = None
    ramp_up_share: NotNegative | None = None
    preempted_share: NotNegative | None = None
    drifted_facts: NotNegative | None = None
    clock_error_share: NotNegative | None = None
    slower_share: NotNegative | None = None


class Campaign(Model):
    """One configuration file: a run on one cluster."""

    run: Slug = Field(description="Name of the run and of its folder under `results/`.")
    title: str = ""
    extends: str | None = Field(None, description="Campaign file that this one overlays.")
    inventory: str | None = Field(None, description="File that holds `nodes`.")
    nodes: list[NodeSpec] = Field(min_length=1)
    load_node: Slug | None = Field(
        None, description="Node that the load client runs on; the head if absent."
    )
    time_zone: str | None = Field(
        None, description="Zone that reports show times in, such as Asia/Shanghai; yours if absent."
    )
    model: ModelSpec
    server: ServerSpec
    variables: list[Variable] = []
    variants: list[Variant] = Field([Variant(id="baseline")], min_length=1)
    grids: list[Grid] = []
    cases: list[CaseSpec] = Field(min_length=1)
    clients: dict[ClientName, ClientSpec] = Field(
        {}, description="Load clients of others that cases may name."
    )
    baselines: list[BaselineSpec] = []
    phases: list[PhaseSpec] = Field(min_length=1)
    collectors: dict[Slug, CollectorSetting] = {}
    scale: Scale = Scale()
    policy: Policy = Policy()
    freeze: Freeze = Freeze()
    slo: Slo = Slo()
    weights: Weights | None = None
    targets: list[GivenTarget] = Field([], description="What figures have to reach.")
    limits: Limits = Limits()
