"""Starting and ending the server: patches in place, supervised process, gates, records."""

import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from servemap.engines.base import Effective
from servemap.engines.failures import explain
from servemap.engines.registry import get_adapter, get_engine
from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic
from servemap.model.errors import LaunchError, NodeError, PatchError, ServemapError
from servemap.model.protocol import SCHEMA
from servemap.model.server_spec import ServerSpec
from servemap.server import boots, patches, process
from servemap.server.context import Context, resolve_secrets
from servemap.server.events import append_event
from servemap.server.gate_ports import read_local_view
from servemap.server.gate_ready import log_reader, probe_marks, wait_ready
from servemap.server.gates import Check, Started, check_completion, check_port_free, run_gates

LOG_TAIL_LINES = 30
PROBE_TIMEOUT_S = 10.0


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
    record: dict[str, Any] = patches.apply_patches(
        context.nodes[node_id], wanted, context.workdir(node_id)
    )
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
    context: Context, variant: str, server: ServerSpec, fingerprint: str, found_drift: list[str]
) -> Served:
    """Put the variant's patches in place, start its server and gate it.

    Raises:
        NotRunError: the port is taken, a patch does not apply, the server did not become ready or
            failed a gate; it is stopped then and its boot is recorded as failed.
    """
    node = context.head
    engine = get_engine(server.engine)
    here = str(Path.cwd())
    _patch_nodes(context, variant)
    free = check_port_free(read_local_view(), server.port, server.bind)
    if not free.ok:
        raise NotRunError("launch", free.evidence, f"{node.name}, port {server.port}", free.remedy)
    argv = engine.argv(
        server,
        context.plan.campaign.model,
        node=node.name,
        port=server.port,
        python=sys.executable,
        workdir=here,
    )
    plain, secrets = resolve_secrets(engine.env(server, workdir=here))
    started = time.time_ns()
    running = process.start(
        node,
        context.workdir(context.plan.head),
        variant=variant,
        fingerprint=fingerprint,
        port=server.port,
        argv=argv,
        env={**_node_env(context), **plain},
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


def _patch_nodes(context: Context, variant: str) -> None:
    try:
        for node_id in context.plan.nodes_of(variant):
            swap_patches(context, variant, node_id)
    except PatchError as error:
        raise NotRunError("launch", error.what, error.where, error.remedy) from error


def _node_env(context: Context) -> dict[str, str]:
    head = next(node for node in context.plan.campaign.nodes if node.role == "head")
    return dict(head.env)


def _gate(
    context: Context,
    server: ServerSpec,
    running: process.Running,
    boot: boots.Boot,
    found_drift: list[str],
) -> Served:
    """Wait for readiness, run the gates, record both; a server that fails is stopped."""
    node, workdir = context.head, context.workdir(context.plan.head)
    adapter = get_adapter(server)
    url = server_url(context, server)
    model = context.plan.campaign.model
    endpoints = adapter.endpoints(url)
    log = log_reader(Path(process.log_path(workdir, boot.boot_id)), from_start=True)
    ready = wait_ready(
        lambda: check_completion(endpoints, model, PROBE_TIMEOUT_S),
        lambda: process.alive(node, workdir, running),
        log,
        start_timeout_s=context.policy.start_timeout_s,
        own_lines=probe_marks(endpoints),
    )
    checks = [Check("ready", ready.ok, ready.reason or f"after {ready.waited_s:.2f} s")]
    effective = Effective()
    if ready.ok:
        result = run_gates(adapter, url, model, _started(context, server, running, boot))
        checks += result.checks
        effective = result.effective
    folder = boots.boot_dir(context.run_dir, boot.variant, boot.boot_id)
    write_json_atomic(
        folder / "gate.json",
        {"schema": SCHEMA, "checks": [c.record() for c in checks], "effective": asdict(effective)},
    )
    failed = [check for check in checks if check.ok is False]
    if failed:
        reason = _why_failed(context, running, boot, failed)
        finish(context, running, "failed", reason)
        raise NotRunError("launch", reason, str(folder), failed[0].remedy or "read the log there")
    boots.write_boot(
        context.run_dir,
        replace(
            boot,
            status="ready",
            ready_ns=time.time_ns(),
            engine_version=effective.engine_version,
        ),
    )
    keep_log(context, boot.variant, boot.boot_id)
    return Served(
        url,
        running.fingerprint,
        boot.boot_id,
        server.engine,
        effective.engine_version,
        server_pids(context, boot.boot_id),
        False,
        found_drift,
        boot.argv,
        [check.record() for check in checks],
    )


def _why_failed(
    context: Context, running: process.Running, boot: boots.Boot, failed: list[Check]
) -> str:
    """Return what a failed start comes down to: what its log is known to mean, else the checks."""
    node, workdir = context.head, context.workdir(context.plan.head)
    text = node.read_text(process.log_path(workdir, boot.boot_id)) or ""
    found = explain(text)
    said = "; ".join(f"{check.name}: {check.evidence}" for check in failed)
    if found:
        said = f"{found[0].means} ({found[0].remedy}); {said}"
    state = process.supervisor_state(node, workdir, running.boot_id)
    return f"{said}; {process.say_exit(state)}" if state.get("exit") else said


def _started(
    context: Context, server: ServerSpec, running: process.Running, boot: boots.Boot
) -> Started:
    node, workdir = context.head, context.workdir(context.plan.head)
    identity = process.server_process(process.supervisor_state(node, workdir, running.boot_id))
    if identity is None:
        raise LaunchError("the server's process is gone", node.name, "read its log")
    return Started(
        identity.pid,
        identity.start,
        server.bind,
        server.port,
        str(Path(server.package.root).resolve()) if server.package else None,
        node.read_text(process.log_path(workdir, boot.boot_id)) or "",
        read_local_view(),
    )


def server_url(context: Context, server: ServerSpec) -> str:
    """Return the URL that clients on the head use."""
    if server.attach:
        return server.attach.rstrip("/")
    head = next(node for node in context.plan.campaign.nodes if node.role == "head")
    host = head.address if server.bind in ("0.0.0.0", "::") else server.bind
    return f"http://{host}:{server.port}"


def server_pids(context: Context, boot_id: str) -> list[int]:
    """Return the pid of the server's own process, the root of its tree."""
    state = process.supervisor_state(context.head, context.workdir(context.plan.head), boot_id)
    identity = process.server_process(state)
    return [identity.pid] if identity else []


def finish(context: Context, running: process.Running, status: boots.Status, reason: str) -> None:
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
