"""Rules for baselines that join them with the nodes and the run."""

from servemap.model.baselines import ROUNDED_BYTES, BaselineSpec, CollectiveBaseline, size_bytes
from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError
from servemap.model.resolve import ranks_on

VALUE_BYTES = 4
"""Of a float32, which is what collectives are measured with."""


def check_baseline(campaign: Campaign, baseline: BaselineSpec) -> None:
    """Refuse a baseline that cannot be measured on the campaign's nodes.

    Raises:
        ConfigError: names the key.
    """
    where = f"baselines.{baseline.id}"
    if baseline.reuse_from == campaign.run:
        raise ConfigError(
            f"baseline {baseline.id!r} is to be taken from its own run",
            f"{where}.reuse_from",
            "name another run, or remove the key",
        )
    if not isinstance(baseline, CollectiveBaseline):
        return
    several = baseline.nodes == "all" and len(campaign.nodes) > 1
    boxed = campaign.server.container is not None and baseline.python is None
    if baseline.launcher == "mpirun" and several and boxed:
        raise ConfigError(
            "mpirun in the server's container cannot start ranks in those of other nodes",
            f"{where}.python",
            "name an interpreter of the nodes, so that mpirun and the programs run outside it; or "
            "measure with tool: torch",
        )
    ranks = {node.id: ranks_on(baseline, node) for node in campaign.nodes}
    alone = [node for node, count in ranks.items() if count < 2]
    if baseline.nodes == "each" and alone:
        raise ConfigError(
            f"one rank on node {alone[0]} has nobody to communicate with",
            f"{where}.ranks_per_node",
            "give at least 2, or the node's `accelerators`, or nodes: all",
        )
    if sum(ranks.values()) < 2:
        raise ConfigError(
            "one rank has nobody to communicate with",
            f"{where}.ranks_per_node",
            "give at least 2, or the node's `accelerators`, or a campaign of several nodes",
        )
    worlds = {*ranks.values()} if baseline.nodes == "each" else {sum(ranks.values())}
    for world in sorted(worlds):
        _check_sizes(baseline, world, where)


def _check_sizes(baseline: CollectiveBaseline, ranks: int, where: str) -> None:
    """Refuse sizes that are rounded down to nothing, or to one and the same.

    torch rounds to whole values of each rank; nccl-tests to 16 bytes a rank where each rank has its
    part (https://github.com/NVIDIA/nccl-tests/blob/master/src/all_gather.cu), which all-reduce has
    not.
    """
    torch = baseline.tool == "torch"
    parts = torch or any(operation != "all_reduce" for operation in baseline.operations)
    least = ranks * (VALUE_BYTES if torch or not parts else ROUNDED_BYTES)
    rounded: dict[int, int] = {}
    for size in map(size_bytes, baseline.sizes):
        if size < least:
            raise ConfigError(
                f"a message of {size} bytes has no value for each of {ranks} ranks",
                f"{where}.sizes",
                f"give at least {least} bytes",
            )
        other = rounded.setdefault(size // least if parts else size, size)
        if other != size:
            raise ConfigError(
                f"{other} and {size} bytes are one size, rounded down for {ranks} ranks",
                f"{where}.sizes",
                f"give multiples of {least} bytes",
            )
