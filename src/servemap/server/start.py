"""Starting and ending the server: patches in place, supervised process, gates, records."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from servemap.engines.registry import get_engine
from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic
from servemap.model.errors import NodeError, PatchError, ServemapError
from servemap.model.protocol import SCHEMA
from servemap.model.server_spec import ServerSpec
from servemap.server import boots, gates, patches, process
from servemap.server.context import Context, resolve_secrets
from servemap.server.events import append_event

class NotRunError(ServemapError):
    """A job's work is not done, for a reason that is recorded and not the job's own failure.

    `cause`: stop, abort, launch, breaker, drift or patch.
    """

    def __init__(self, cause: str, what: str, where: str, remedy: str) -> None:
        super().__init__(what, where, remedy)
        self.cause = cause


@dataclass(frozen=True)
class Served:
    """A server that passed its gates and may be measured."""

    url: str
    fingerprint: str
    boot_id: str | None
    engine: str
    engine_version: str | None
    pids: list[int]
    reused: bool
    drift: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


def base_url(server: ServerSpec, address: str) -> str:
    """Return the URL that clients on the head use."""
    if server.attach:
        return server.attach.rstrip("/")
    host = address if server.bind in ("0.0.0.0", "::") else server.bind
    return f"http://{host}:{server.port}"


def swap_patches(context: Context, variant: str, node_id: str) -> dict[str, Any]:
    """Put the patches of a variant in place on a node, and those of another variant back.

    Returns the record that is stored in `server/VARIANT/patches/NODE.json`.

    Raises:
        NotRunError: `unpatch` took them back and `policy.on_unpatched` is `refuse`.
        PatchError: a patch does not lint, apply or verify.
    """
    wanted = context.server(variant).patches
    marker = context.run_dir / ".unpatched.json"
    if wanted and context.policy.on_unpatched == "refuse" and read_json(marker) is not None:
        raise NotRunError(
            "patch",
            f"the patches of variant {variant} were taken back by `unpatch`",
            str(marker),
            "apply them with -f on server/VARIANT/patches/NODE.json, or set "
            "policy.on_unpatched: reapply",
        )
    record = patches.apply_patches(context.nodes[node_id], wanted, context.workdir(node_id))
    if record["changed"]:
        append_event(context.run_dir, "patch", variant=variant, node=node_id)
    return record


def unpatch(context: Context) -> dict[str, Any]:
    """Stop the server, bring every original byte back, and return the proof per node.

    Raises:
        PatchError: an original could not be restored.
    """
    stop_server(context, "unpatch")
    proof = {
        node_id: patches.restore_all(node, context.workdir(node_id))
        for node_id, node in context.nodes.items()
    }
    write_json_atomic(context.run_dir / ".unpatched.json", {"t_ns": time.time_ns(), **proof})
    append_event(context.run_dir, "unpatch")
    return proof


def start_server(
    context: Context,
    variant: str,
    server: ServerSpec,
    fingerprint: str,
    found_drift: list[str],
) -> Served:
    node = context.head
    workdir = context.workdir(context.plan.head)
    engine = get_engine(server.engine)
    for node_id in context.plan.nodes_of(variant):
        swap_patches(context, variant, node_id)
    free = gates.port_free(node, server.port)
    if not free.ok:
        raise NotRunError("launch", free.evidence, f"port {server.port}", free.remedy)
    argv = engine.argv(server, context.plan.campaign.model, node=node.name, port=server.port)
    plain, secrets = resolve_secrets(engine.env(server))
    started = time.time_ns()
    running = process.start(
        node,
        workdir,
        variant=variant,
        fingerprint=fingerprint,
        port=server.port,
        argv=argv,
        env=plain,
        secrets=secrets,
        cwd=str(Path(server.cwd).resolve()) if server.cwd else None,
        ttl_s=context.policy.lease_ttl_s,
        grace_s=context.policy.stop_grace_s,
    )
    boot = boots.Boot(
        variant, running.boot_id, context.session, fingerprint, argv, server.port, started
    )
    boots.write_boot(context.run_dir, boot)
    append_event(context.run_dir, "launch", variant=variant, boot_id=boot.boot_id)
    return _gate(context, server, running, boot, found_drift)


def finish(
    context: Context, running: process.Running, status: boots.Status, reason: str
) -> None:
    """Stop a server that may still run, keep its log, record how it ended."""
    node = context.head
    workdir = context.workdir(context.plan.head)
    process.stop(node, workdir, running, context.policy.stop_grace_s)
    keep_log(context, running.variant, running.boot_id)
    boots.mark_ended(context.run_dir, running.variant, running.boot_id, status, reason)
    append_event(
        context.run_dir, "stop", variant=running.variant, boot_id=running.boot_id, reason=reason
    )


def stop_server(context: Context, reason: str) -> bool:
    """Stop the run's server, whichever variant it is; return whether there was one.

    Raises:
        LaunchError: it does not end.
    """
    running = process.read_running(context.head, context.workdir(context.plan.head))
    if running is None:
        return False
    finish(context, running, "stopped", reason)
    return True


def keep_log(context: Context, variant: str, boot_id: str) -> None:
    """Copy a start's log from its node into the results."""
    node = context.head
    source = process.log_path(context.workdir(context.plan.head), boot_id)
    target = boots.boot_dir(context.run_dir, variant, boot_id) / f"{node.name}.log"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        node.get(source, target)
    except NodeError as error:
        append_event(context.run_dir, "log_not_fetched", boot_id=boot_id, error=error.what)


