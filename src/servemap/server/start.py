"""Starting the server: patches in place, supervised process, gates, records."""

import sys
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path

from servemap.engines.base import Effective
from servemap.engines.failures import explain
from servemap.engines.registry import get_adapter, get_engine
from servemap.model.canon import write_json_atomic
from servemap.model.errors import PatchError
from servemap.model.protocol import SCHEMA
from servemap.model.server_spec import ServerSpec
from servemap.server import boots, process
from servemap.server.container import InContainer, in_container, runtime_argv
from servemap.server.container_image import ensure_image
from servemap.server.context import Context, resolve_secrets
from servemap.server.ending import finish, keep_log
from servemap.server.events import append_event
from servemap.server.gate_ports import read_local_view
from servemap.server.gate_ready import log_reader, probe_marks, wait_ready
from servemap.server.gates import Check, Started, check_completion, check_port_free, run_gates
from servemap.server.patch_stage import swap_patches
from servemap.server.served import NotRunError, Served, server_pids, server_url

PROBE_TIMEOUT_S = 10.0


def start_server(
    context: Context, variant: str, server: ServerSpec, found_drift: list[str]
) -> Served:
    """Put the variant's patches in place, start its server and gate it.

    Raises:
        NotRunError: the port is taken, a patch does not apply, the server did not become ready or
            failed a gate; it is stopped then and its boot is recorded as failed.
    """
    node, workdir = context.head, context.head_workdir
    engine = get_engine(server.engine)
    here = str(Path.cwd())
    fingerprint = context.plan.spec_sha256("launch", variant)
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
    env = {**context.head_spec.env, **plain}
    started = time.time_ns()
    boot_id = str(uuid.uuid4())
    plainly = {name: value for name, value in env.items() if name not in secrets}
    cwd = str(Path(server.cwd).resolve()) if server.cwd else None
    boxed: InContainer | None = None
    if server.container is not None:
        become = context.head_spec.become
        runtime = runtime_argv(server.container, become=become)
        boxed = in_container(
            server.container,
            become=become,
            variant=variant,
            boot_id=boot_id,
            image=ensure_image(node, server.container, runtime, workdir=workdir).id,
            argv=argv,
            env=plainly,
            secret_names=secrets.keys(),
            cwd=server.cwd,
        )
        argv, plainly, cwd = boxed.argv, {}, None
    running = process.start(
        node,
        workdir,
        variant=variant,
        fingerprint=fingerprint,
        port=server.port,
        argv=argv,
        env=plainly,
        secrets=secrets,
        cwd=cwd,
        ttl_s=context.policy.lease_ttl_s,
        grace_s=context.policy.stop_grace_s,
        boot_id=boot_id,
        container=boxed.container if boxed else None,
    )
    boot = boots.Boot(
        variant,
        running.boot_id,
        context.session,
        fingerprint,
        argv,
        server.port,
        started,
        drift=found_drift,
    )
    boots.write_boot(context.run_dir, boot)
    append_event(context.run_dir, "launch", variant=variant, boot_id=boot.boot_id)
    return _gate(context, server, running, boot)


def _patch_nodes(context: Context, variant: str) -> None:
    try:
        for node_id in context.plan.nodes_of(variant):
            swap_patches(context, variant, node_id)
    except PatchError as error:
        raise NotRunError("launch", error.what, error.where, error.remedy) from error


def _gate(
    context: Context,
    server: ServerSpec,
    running: process.Running,
    boot: boots.Boot,
) -> Served:
    """Wait for readiness, run the gates, record both; a server that fails is stopped."""
    node, workdir = context.head, context.head_workdir
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
    started = _started(context, server, running, boot) if ready.ok else None
    if ready.ok and started is None:
        checks.append(Check("process", False, "it was ready, then its process was gone"))
    if started is not None:
        result = run_gates(adapter, url, model, started)
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
        boot.drift,
        boot.argv,
        [check.record() for check in checks],
    )


def _why_failed(
    context: Context, running: process.Running, boot: boots.Boot, failed: list[Check]
) -> str:
    """Return what a failed start comes down to: what its log is known to mean, else the checks."""
    node, workdir = context.head, context.head_workdir
    text = node.read_text(process.log_path(workdir, boot.boot_id)) or ""
    found = explain(text)
    said = "; ".join(f"{check.name}: {check.evidence}" for check in failed)
    if found:
        said = f"{found[0].means} ({found[0].remedy}); {said}"
    state = process.supervisor_state(node, workdir, running.boot_id)
    return f"{said}; {process.say_exit(state)}" if state.get("exit") else said


def _started(
    context: Context, server: ServerSpec, running: process.Running, boot: boots.Boot
) -> Started | None:
    """Return the server as the gates need it; None where its process is not known any more."""
    node, workdir = context.head, context.head_workdir
    identity = process.server_process(process.supervisor_state(node, workdir, running.boot_id))
    if identity is None:
        return None
    root = server.package.root if server.package else None
    if root is not None and server.container is None:
        root = str(Path(root).resolve())
    return Started(
        identity.pid,
        identity.start,
        server.bind,
        server.port,
        root,
        node.read_text(process.log_path(workdir, boot.boot_id)) or "",
        read_local_view(),
    )
