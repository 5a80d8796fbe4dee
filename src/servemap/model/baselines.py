"""Communication baselines of the campaign file: micro-benchmarks with no server on the cards."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from servemap.model.base import EnvName, Model, Program, Slug
from servemap.model.cases import Seconds

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = tuple(str(8 << power) + "K" for power in range(7)) + tuple(
    str(1 << power) + "M" for power in range(7)
)
MAX_BYTES = 1 << 34

_SIZE = re.compile(r"^(?P<number>[1-9]\d{0,11})(?P<unit>[KMG]?)$")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


def size_bytes(size: str) -> int:
    """Return a message size in bytes: `8K` is 8 x 1024, `1G` is 1024^3.

    Raises:
        ValueError: it is no size.
    """
    match = _SIZE.match(size)
    if match is None:
        raise ValueError(f"{size!r} is not a size: write 8192, '8K', '64M' or '1G'")
    return int(match["number"]) << _UNITS[match["unit"]]


def _check_size(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size is a number of bytes or a string such as '64M'")
    if not 1024 <= size_bytes(str(value)) <= MAX_BYTES:
        raise ValueError(f"{value} is no size between 1K and {MAX_BYTES >> 30}G")
    return str(value)


Size = Annotated[str, BeforeValidator(_check_size, json_schema_input_type=int | str)]
"""Bytes of a message: `K`, `M` and `G` are powers of 1024."""


class BaselineBase(Model):
    """What every baseline has."""

    id: Slug
    reuse_from: Slug | None = Field(
        None, description="Run whose record of this baseline is taken, if the frozen facts match."
    )


class TcpBaseline(BaselineBase):
    """Round-trip time and bandwidth of TCP between every two nodes."""

    kind: Literal["tcp"]
    pings: Annotated[int, Field(ge=10, le=100_000)] = 500
    seconds: Annotated[float, Field(gt=0, le=60)] = 1.0


class CollectiveBaseline(BaselineBase):
    """Collectives of a sweep of sizes, on each node or across all of them."""

    kind: Literal["collective"]
    tool: Literal["torch", "nccl-tests", "rccl-tests"] = Field(
        "torch", description="torch.distributed of the server's own interpreter; or the binaries."
    )
    operations: list[Operation] = Field(list(OPERATIONS), min_length=1)
    sizes: list[Size] = Field(
        list(SIZES), min_length=1, max_length=64, description="Bytes; 8K to 64M by powers of 2."
    )
    nodes: Literal["each", "all"] = Field(
        "all", description="Across all nodes, or on each of them by itself."
    )
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, description="Ranks on a node; one for each of its accelerators if absent, at least 1."
    )
    sweep: dict[EnvName, list[str | int]] = Field(
        {}, description="Variables and the values each is measured with, such as NCCL_CROSS_NIC."
    )
    env: dict[EnvName, str] = Field({}, description="Variables beside those of `server.env`.")
    launch: Literal["torchrun", "mpirun", "process"] | None = Field(
        None, description="torchrun for torch, else mpirun; process: one for all cards of a node."
    )
    python: Program | None = Field(
        None, description="Interpreter on the nodes; the server's, in its container, if absent."
    )
    programs: Program | None = Field(
        None, description="Folder of the programs of nccl-tests on the nodes; PATH if absent."
    )
    mpirun_args: list[str] = Field([], description="Further options of mpirun.")
    iterations: Annotated[int, Field(ge=1, le=200)] = 20
    warmup: Annotated[int, Field(ge=0, le=200)] = 5
    timeout_s: Seconds = Field(600, description="Limit for all sizes of one value of the sweep.")

    @property
    def launcher(self) -> str:
        """How the ranks are started."""
        return self.launch or ("torchrun" if self.tool == "torch" else "mpirun")

    @model_validator(mode="after")
    def _fits(self) -> "CollectiveBaseline":
        if (self.tool == "torch") != (self.launcher == "torchrun"):
            raise ValueError(f"{self.tool} is not started by {self.launcher}")
        if self.tool == "torch" and self.programs is not None:
            raise ValueError("programs: torch has none; name its interpreter as python")
        if self.mpirun_args and self.launcher != "mpirun":
            raise ValueError(f"mpirun_args: {self.launcher} is not mpirun")
        if self.launcher == "process" and self.nodes == "all":
            raise ValueError("launch: process drives the cards of one node: give nodes: each")
        if any(not values for values in self.sweep.values()):
            raise ValueError("sweep: give at least one value of each variable")
        for name in ("operations", "sizes"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name}: one stands there twice")
        return self


class CopiesBaseline(BaselineBase):
    """Copies between all pairs of cards within each node."""

    kind: Literal["copies"]
    programs: Program | None = Field(
        None,
        description="Folder of nvbandwidth or p2pBandwidthLatencyTest; PATH if absent.",
    )
    timeout_s: Seconds = 600


BaselineSpec = Annotated[
    TcpBaseline | CollectiveBaseline | CopiesBaseline, Field(discriminator="kind")
]
"""A one-time communication micro-benchmark with no server on the cards."""
