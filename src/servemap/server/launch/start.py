"""Starting the server: patches in place, a supervised process on each node, gates, records."""

import time
import uuid
from dataclasses import replace
from typing import Any

from servemap.engines.registry import get_engine
from servemap.model.errors import PatchError, ServemapError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.container.image import Image
from servemap.server.container.images import image_check, present_images
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch import boots, process
from servemap.server.launch.admit import admit
from servemap.server.launch.commands import RankCommand, boxed, rank_commands
from servemap.server.launch.ending import finish
from servemap.server.launch.node_gates import agreement, marks, require_clean
from servemap.server.launch.patch_hook import hooked
from servemap.server.launch.patch_stage import swap_patches
from servemap.server.launch.profiles import with_traces
from servemap.server.launch.ranks import standing
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError


def start_server(
    context: Context, variant: str, server: ServerSpec, found_drift: list[str]
) -> Served:
    """Put the variant's patches in place, start its ranks and gate the server.

    Raises:
        NotRunError: a card or a port is taken, nodes differ, a patch does not apply, a rank did not
            start, the server did not become ready or failed a gate; it is stopped then and its
            boot is recorded as failed.
    """
    commands = rank_commands(context, variant, server, get_engine(server.engine))
    boot_id = str(uuid.uuid4())
    patched = _patch_nodes(context, variant)
    agreed = agreement(context, variant, patched)
    marked = marks(agreed)
    require_clean(context, variant, server)
    images: dict[str, Image] = {}
    if server.container is not None:
        images = present_images(context, variant, server.container)
        agreed += image_check(context, images)
    commands = [
        hooked(context, server, boot_id, one, patched[one.placement.node], images)
        for one in commands
    ]
    if server.container is not None:
        if variant == context.profiled:
            commands = [with_traces(context, server, one) for one in commands]
        commands = [
            boxed(context, variant, boot_id, one, server.container, images[one.placement.node].id)
            for one in commands
        ]
    boot = boots.Boot(
        variant,
        boot_id,
        context.session,
        context.plan.spec_sha256("launch", variant),
        next(command.argv for command in commands if command.placement.rank == 0),
        server.port,
        time.time_ns(),
        drift=[*found_drift, *marked],
        ranks=[command.record() for command in commands],
        images={node_id: image.record() for node_id, image in images.items()},
    )
    boots.write_boot(context.run_dir, boot)
    append_event(context.run_dir, "launch", variant=variant, boot_id=boot.boot_id)
    return admit(context, server, _start_ranks(context, boot, commands), boot, agreed, patched)


def _patch_nodes(context: Context, variant: str) -> dict[str, dict[str, Any]]:
    """Put the variant's patches in place; return the record of each node."""
    try:
        return each(
            context.plan.nodes_of(variant), lambda node_id: swap_patches(context, variant, node_id)
        )
    except PatchError as error:
        raise NotRunError("launch", error.what, error.where, error.remedy) from error


def _start_ranks(
    context: Context, boot: boots.Boot, commands: list[RankCommand]
) -> dict[str, process.Running]:
    """Start all ranks, in order; where one cannot be, the others are stopped again."""
    ranks: dict[str, process.Running] = {}
    try:
        for command in commands:
            ranks[command.placement.node] = _start_rank(context, boot, command)
    except ServemapError as error:
        boots.write_boot(
            context.run_dir,
            replace(boot, status="failed", reason=redact_text(error.what), ended_ns=time.time_ns()),
        )
        begun = {
            n: rank for n, rank in standing(context, ()).items() if rank.boot_id == boot.boot_id
        }
        finish(context, begun, "failed", error.what)
        raise
    return ranks


def _start_rank(context: Context, boot: boots.Boot, command: RankCommand) -> process.Running:
    node_id = command.placement.node
    return process.start(
        context.nodes[node_id],
        context.workdir(node_id),
        boot_id=boot.boot_id,
        variant=boot.variant,
        fingerprint=boot.fingerprint,
        port=boot.port,
        argv=command.argv,
        env=command.env,
        secrets=command.secrets,
        cwd=command.cwd,
        ttl_s=context.policy.lease_ttl_s,
        grace_s=context.policy.stop_grace_s,
        container=command.container,
        hook=None if command.container else command.hook,
    )
