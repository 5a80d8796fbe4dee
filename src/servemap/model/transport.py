"""What a campaign requires of the paths between a server's cards."""

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from servemap.model.base import Model, Slug
from servemap.model.baselines import Operation, Size, size_bytes

NetPath = Annotated[
    str, StringConstraints(pattern=r"^(NET/[A-Za-z0-9_-][A-Za-z0-9_ -]{0,39}|P2P/MNNVL)$")
]
CardPath = Annotated[
    str, StringConstraints(pattern=r"^(P2P|SHM|NET)(/[A-Za-z0-9_-][A-Za-z0-9_ -]{0,39})?$")
]
Device = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class RequiredBaseline(Model):
    """A baseline that has to bear the requirement out before a server is started."""

    id: Slug
    operation: Operation | None = Field(None, description="Of a collective: what the floor is of.")
    size: Size | None = Field(None, description="Of a collective: one of its sizes.")
    floor_gb_s: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Least bandwidth, 10^9 bytes/s: busbw, or that of the slowest pair.",
    )

    @model_validator(mode="after")
    def _whole(self) -> "RequiredBaseline":
        named = [self.operation is not None, self.size is not None]
        if any(named) and not (all(named) and self.floor_gb_s is not None):
            raise ValueError("operation, size and floor_gb_s belong together")
        return self


class Transport(Model):
    """The paths that NCCL's connections must have, by its own log; what is absent may be any."""

    inter: NetPath | None = Field(None, description="Between nodes, such as NET/IB.")
    intra: CardPath | None = Field(None, description="Within a node: P2P, SHM, P2P/CUMEM.")
    gdr: bool | None = Field(
        None, description="Whether all data between nodes go by GPUDirect RDMA, or none."
    )
    hcas: list[Device] | None = Field(
        None, min_length=1, description="The RDMA devices that each node uses, no other."
    )
    baselines: list[RequiredBaseline] = Field(
        [], description="Baselines that must have taken these paths, and reached their floors."
    )

    @property
    def asks_paths(self) -> bool:
        """Whether a path is required, which the engine's own log has to show."""
        return any(one is not None for one in (self.inter, self.intra, self.gdr, self.hcas))

    @model_validator(mode="after")
    def _some(self) -> "Transport":
        if not self.asks_paths and not self.baselines:
            raise ValueError("give at least one of inter, intra, gdr, hcas, baselines")
        figures = [
            (one.id, one.operation, one.size and size_bytes(one.size)) for one in self.baselines
        ]
        for figure in figures:
            if figures.count(figure) > 1:
                raise ValueError(f"baselines has {figure[0]} twice for the same figure")
        return self
