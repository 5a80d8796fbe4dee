"""From a configuration to a context that may be driven or planned: every rule is checked here."""

from typing import Any

from servemap.engines.profiling import refuse_profiler
from servemap.engines.registry import get_adapter, get_engine
from servemap.measure.collect import chosen_collectors
from servemap.measure.profiled import check_captures
from servemap.model.check_reachable import check_reachable
from servemap.model.check_times import check_times
from servemap.model.checks import check, check_traces
from servemap.model.errors import ConfigError
from servemap.model.groups import cases_of
from servemap.model.load import assemble, parse_campaign
from servemap.model.plan import Plan
from servemap.server.context import Context
from servemap.server.launch.commands import check_commands


def load_context(config: dict[str, Any], *, traces: bool = True) -> Context:
    """Return the context of a configuration as Snakemake or a file gives it.

    Args:
        config: the configuration.
        traces: whether it is to be measured: the traces of replays must be here, each case must be
            able to end in its time and to meet its SLO, and captures must be possible. Earlier runs
            are read without.

    Raises:
        ConfigError: names the key, the value and the remedy of the first thing that is wrong.
    """
    campaign = parse_campaign(assemble(config))
    check(campaign)
    if traces:
        check_traces(campaign)
        check_reachable(campaign)
        for case in cases_of(campaign):
            check_times(case)
    chosen_collectors(campaign)
    context = Context(Plan(campaign))
    for variant in context.plan.variants:
        server = context.server(variant)
        if not server.attach:
            refuse_profiler(server)
            check_commands(context, variant, server, get_engine(server.engine))
    _check_caches(context)
    if traces:
        check_captures(context)
    return context


def _check_caches(context: Context) -> None:
    """Refuse `cache: flush` on servers whose prefix cache nothing empties."""
    plan = context.plan
    for variant, name in dict.fromkeys(key[:2] for key in plan.items().repeats):
        if plan.cases[name].cache != "flush":
            continue
        server = context.server(variant)
        env = {**context.node_spec(plan.nodes_of(variant)[0]).env, **server.env}
        can = get_adapter(server).cache_flush(env)
        if not can.available:
            raise ConfigError(
                f"the prefix cache of variant {variant!r} cannot be emptied: {can.reason}",
                f"cases.{name}.cache",
                "remove it: no two requests of a repeat have the same prompt, so hits are few, and "
                "unplanned ones make a measurement invalid",
            )
