"""Rules for baselines that join them with the nodes and the run."""

from servemap.model.baselines import BaselineSpec, CollectiveBaseline, size_bytes
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
    least = sum(ranks.values()) * VALUE_BYTES
    small = [size for size in baseline.sizes if size_bytes(size) < least]
    if small:
        raise ConfigError(
            f"a message of {small[0]} bytes has no value for each of {sum(ranks.values())} ranks",
            f"{where}.sizes",
            f"give at least {least} bytes",
        )
