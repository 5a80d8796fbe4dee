"""A profile of a few engine steps, bound to one case and never mixed with measured results."""

import time
from pathlib import Path

from servemap.engines.registry import get_adapter
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError
from servemap.model.protocol import SCHEMA
from servemap.server.context import Context


def run_capture(context: Context, variant: str, case: str, output: Path) -> None:
    """Write the record of a capture; an engine that cannot be profiled is recorded as such."""
    try:
        capability = get_adapter(context.server(variant)).capabilities.torch_profile
        reason = capability.reason or (
            "this version does not take captures from engines that offer them"
        )
    except ConfigError as error:
        reason = error.what
    write_json_atomic(
        output,
        {
            "schema": SCHEMA,
            "variant": variant,
            "case": case,
            "kind": context.plan.spec_data("capture", variant, case)["capture"]["kind"],
            "status": "not_available",
            "reasons": [reason],
            "spec_sha256": context.plan.spec_sha256("capture", variant, case),
            "ended_ns": time.time_ns(),
        },
    )
