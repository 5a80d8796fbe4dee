"""The start of a server for captures: a variant of its own, of which no case is measured."""

from typing import Any

from servemap.engines.profiling import PROFILERS, folder_of
from servemap.engines.registry import get_adapter
from servemap.model.campaign import Variant
from servemap.model.errors import ConfigError
from servemap.model.phases import CaptureSpec
from servemap.model.plan import Plan
from servemap.model.server_spec import ServerSpec
from servemap.server.context import Context
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError

SUFFIX = ".profiled"
"""Ends the name under which starts for captures are recorded; no variant of a file can have it."""


def why_unavailable(context: Context, variant: str, kind: str = "torch") -> str | None:
    """Return in words why no capture of a variant can be taken, None where one can."""
    if kind == "nsys":
        return None
    capability = get_adapter(context.server(variant)).capabilities.torch_profile
    return None if capability.available else capability.reason


def check_captures(context: Context) -> None:
    """Refuse captures that no server of the campaign can give as they are asked for.

    Raises:
        ConfigError: names the key.
    """
    known: dict[str, CaptureSpec] = {}
    for phase in context.plan.phases.values():
        for capture in phase.captures:
            where = f"phases.{phase.id}.captures"
            if known.setdefault(capture.case, capture) != capture:
                raise ConfigError(
                    f"case {capture.case!r} is captured in two ways, and has one capture",
                    where,
                    "make them the same, or copy the case under another id for the second one",
                )
            for variant in context.plan.variants_of(phase):
                _check_capture(context.server(variant), capture, where)


def _check_capture(server: ServerSpec, capture: CaptureSpec, where: str) -> None:
    if server.attach:
        raise ConfigError(
            "the server is only attached to, and a capture needs a start with the profiler",
            where,
            "remove the captures, or have the campaign start the server",
        )
    profiler = PROFILERS.get(server.engine)
    if profiler is None or capture.kind == "nsys":
        return
    if capture.stage is not None and not profiler.stages:
        raise ConfigError(
            f"{server.engine} does not profile by stage",
            f"{where}.stage",
            "remove it: a case of one output token is all prefill, one of many is decoding",
        )
    ranks, wanted = profiler.ranks(server), capture.ranks or []
    outside = [rank for rank in wanted if rank >= ranks]
    if outside or len(set(wanted)) < len(wanted):
        wrong = f"rank {outside[0]} is none of its {ranks}" if outside else "a rank is named twice"
        raise ConfigError(
            f"capture of {capture.case!r}: {wrong}",
            f"{where}.ranks",
            f"name each rank once, from 0 to {ranks - 1}",
        )


def profiled_name(variant: str) -> str:
    """Return the name of a variant's start for captures."""
    return f"{variant}{SUFFIX}"


def profiled_context(context: Context, variant: str, steps: int) -> Context:
    """Return the campaign with one more variant, `profiled_name`: the server with its profiler.

    Its fingerprint differs from that of every variant, so no job takes one for the other: whoever
    needs the other server has this one stopped first.
    """
    server = context.server(variant)
    changes = PROFILERS[server.engine].start_with(steps, folder_of(server))
    return start_for_captures(context, variant, changes)


def start_for_captures(context: Context, variant: str, changes: dict[str, Any]) -> Context:
    """Return the same, the server changed by these keys of a variant's `set`."""
    campaign, original = context.plan.campaign, context.plan.variants[variant]
    name = profiled_name(variant)
    added = Variant.model_construct(id=name, variable=None, set={**original.set, **changes})
    changed = campaign.model_copy(update={"variants": [*campaign.variants, added]})
    found = Context(Plan(changed), profiled=name)
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
