"""From a configuration to a context that may be driven or planned: every rule is checked here."""

from typing import Any

from servemap.measure.collect import chosen_collectors
from servemap.model.load import assemble
from servemap.server.context import Context


def load_context(config: dict[str, Any]) -> Context:
    """Return the context of a configuration as Snakemake or a file gives it.

    Raises:
        ConfigError: names the key, the value and the remedy of the first thing that is wrong.
    """
    context = Context.from_config(assemble(config))
    chosen_collectors(context.plan.campaign)
    return context
