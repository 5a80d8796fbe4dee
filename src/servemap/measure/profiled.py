"""The start of a server for captures: a variant of its own, of which no case is measured."""

from typing import Any

from servemap.engines.profiling import PROFILERS
from servemap.engines.registry import get_adapter
from servemap.model.campaign import Variant
from servemap.model.plan import Plan
from servemap.server.context import Context
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError

SUFFIX = ".profiled"
"""Ends the name under which starts for captures are recorded; no variant of a file can have it."""


def why_unavailable(context: Context, variant: str, kind: str = "torch") -> str | None:
    """Return in words why no capture of a variant can be taken, None where one can."""
    server = context.server(variant)
    if kind == "nsys":
        attached = "the server is only attached to, and nsys has to launch it"
        return attached if server.attach else None
    capability = get_adapter(server).capabilities.torch_profile
    if not capability.available:
        return capability.reason
    if server.container is not None:
        return "captures of servers in containers are not there yet"
    return None


def profiled_name(variant: str) -> str:
    """Return the name of a variant's start for captures."""
    return f"{variant}{SUFFIX}"


def profiled_context(context: Context, variant: str, steps: int) -> Context:
    """Return the campaign with one more variant, `profiled_name`: the server with its profiler.

    Its fingerprint differs from that of every variant, so no job takes one for the other: whoever
    needs the other server has this one stopped first.
    """
    changes = PROFILERS[context.server(variant).engine].start_with(steps)
    return start_for_captures(context, variant, changes)


def start_for_captures(context: Context, variant: str, changes: dict[str, Any]) -> Context:
    """Return the same, the server changed by these keys of a variant's `set`."""
    campaign, original = context.plan.campaign, context.plan.variants[variant]
    added = Variant.model_construct(
        id=profiled_name(variant), variable=None, set={**original.set, **changes}
    )
    changed = campaign.model_copy(update={"variants": [*campaign.variants, added]})
    found = Context(Plan(changed))
    # The same connections: a capture is one job.
    found.__dict__["nodes"] = context.nodes
    return found


def refuse_profiled(context: Context, variant: str, served: Served) -> None:
    """Refuse to measure a case of a variant on a server that was started for captures.

    Raises:
        NotRunError: it was.
    """
    starts = context.run_dir.glob(f"server/*{SUFFIX}/boots/{served.boot_id}")
    if served.boot_id is None or not any(starts):
        return
    raise NotRunError(
        "launch",
        f"the server that runs was started for captures, and gives no results of {variant}",
        str(context.run_dir / "server"),
        "stop it with `snakemake teardown`, then start the campaign again",
    )
