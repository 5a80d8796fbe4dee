"""What a service promises: upper limits of latencies, of which a campaign gives those it wants."""

from typing import Annotated

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from servemap.model.base import Model

NotNegative = Annotated[float, Field(ge=0)]


class Chosen(Model):
    """Numbers of which a campaign gives those that it wants; the others are not spelled."""

    @model_serializer(mode="wrap")
    def _without_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, float]:
        return {name: value for name, value in handler(self).items() if value is not None}


class Slo(Chosen):
    """Upper limits of goodput, in seconds."""

    ttft_s: NotNegative | None = None
    tpot_s: NotNegative | None = None
    e2e_s: NotNegative | None = None
    itl_p99_s: NotNegative | None = None
