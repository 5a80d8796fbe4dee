"""From a configuration to a context that may be driven or planned: every rule is checked here."""

from typing import Any

from servemap.engines.registry import get_engine
from servemap.measure.collect import chosen_collectors
from servemap.model.checks import check, check_traces
from servemap.model.load import assemble, parse_campaign
from servemap.model.plan import Plan
from servemap.server.context import Context
from servemap.server.launch.commands import check_commands


def load_context(config: dict[str, Any], *, traces: bool = True) -> Context:
    """Return the context of a configuration as Snakemake or a file gives it.

    Args:
        config: the configuration.
        traces: whether the traces of replays must be here, as they must for measuring.

    Raises:
        ConfigError: names the key, the value and the remedy of the first thing that is wrong.
    """
    campaign = parse_campaign(assemble(config))
    check(campaign)
    if traces:
        check_traces(campaign)
    chosen_collectors(campaign)
    context = Context(Plan(campaign))
    for variant in context.plan.variants:
        server = context.server(variant)
        if not server.attach:
            check_commands(context, variant, server, get_engine(server.engine))
    return context
