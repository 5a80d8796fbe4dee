"""How a campaign behaves: policy, scale, and what is frozen."""

from typing import Annotated, Literal

from pydantic import Field

from servemap.model.base import Model
from servemap.model.cases import WEEK_S, Repeats, Seconds, Tries
from servemap.model.order import Order


class Policy(Model):
    """How the campaign behaves when something is not as planned."""

    repeats: Repeats = 1
    order: Order = Field(
        "interleaved",
        description="Of repeats: a round of all cases after the other; case by case; or rounds of "
        "all variants, each on a start of the server of its own.",
    )
    max_attempts: Tries = 2
    retry_foreign_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.5,
        description="Share of a node's cores used by others above which a case is measured again.",
    )
    calibrate: bool = Field(
        True,
        description="Before the first case, measure the load client's own error on its node.",
    )
    on_unhealthy: Literal["relaunch", "abort"] = Field(
        "abort", description="A server that lost its health between cases, not for want of memory."
    )
    on_drift: Literal["refuse", "mark"] = Field(
        "refuse", description="Frozen facts that no longer hold."
    )
    on_unpatched: Literal["reapply", "refuse"] = Field(
        "reapply", description="Patches that were taken back by `unpatch`."
    )
    start_timeout_s: Seconds = Field(60, description="Longest silence of a starting server's log.")
    max_deaths: Tries = Field(
        3, description="Starts of one variant that may fail or die before it is given up."
    )
    stop_grace_s: Seconds = 10
    lost_node_s: Seconds = Field(
        60, description="A node that cannot be reached for so long is given up by the job at hand."
    )
    max_fetch_bytes: Annotated[int, Field(ge=1_000_000)] = Field(
        20_000_000_000, description="Most that is fetched from a node for one case or capture."
    )
    lease_ttl_s: Annotated[float, Field(ge=5, le=WEEK_S)] = Field(
        60, description="A server that nobody renewed for so long stops itself."
    )


class Scale(Model):
    """What `K` means in a length: 1024 on real hardware, less for a scaled-down campaign."""

    tokens_per_k: Annotated[int, Field(ge=1, le=1_000_000)] = 1024


class Freeze(Model):
    """What is frozen beside the fixed list of facts."""

    env_prefixes: list[str] = [
        "CUDA_", "NCCL_", "GLOO_", "VLLM_", "SGLANG_", "SGL_", "OMP_", "HF_", "TORCH_", "UCX_",
    ]  # fmt: skip
    files: list[str] = Field([], description="More files whose checksums are recorded.")
