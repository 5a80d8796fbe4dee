"""Whether the baselines that a server's `transport` requires are there to be measured."""

from servemap.model.baselines import CollectiveBaseline, size_bytes
from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec


def check_required(campaign: Campaign, server: ServerSpec, prefix: str) -> None:
    """Refuse requirements of baselines that nothing measures, or of figures that they do not have.

    Raises:
        ConfigError: names the key below `prefix`.
    """
    baselines = {one.id: one for one in campaign.baselines}
    for required in server.transport.baselines if server.transport else []:
        where = f"{prefix}.transport.baselines.{required.id}"
        spec = baselines.get(required.id)
        if spec is None:
            raise ConfigError(
                f"there is no baseline {required.id!r}",
                where,
                f"name one of: {', '.join(baselines) or 'none, so add it to `baselines`'}",
            )
        collective = isinstance(spec, CollectiveBaseline)
        if required.floor_gb_s is not None and collective and required.operation is None:
            raise ConfigError(
                "the floor of a collective is of one operation and size",
                where,
                "add operation and size, such as all_reduce and 64M",
            )
        if required.operation is None or required.size is None:
            continue
        if not isinstance(spec, CollectiveBaseline):
            raise ConfigError(
                f"{spec.id} is of kind {spec.kind}, which has no operations",
                where,
                "remove operation and size",
            )
        sizes = {size_bytes(size) for size in spec.sizes}
        if required.operation not in spec.operations or size_bytes(required.size) not in sizes:
            raise ConfigError(
                f"{spec.id} does not measure {required.operation} at {required.size}",
                where,
                "name an operation and a size of that baseline, or add them to it",
            )
