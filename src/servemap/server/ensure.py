"""`ensure_server`: the one way in which a job gets a server that it may measure."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servemap.engines.registry import get_engine
from servemap.model import results
from servemap.model.canon import write_json_atomic
from servemap.model.errors import LaunchError, NodeError, PatchError, ServemapError
from servemap.model.server_spec import ServerSpec
from servemap.server import boots, freeze, gates, patches, process
from servemap.server.context import Context, resolve_secrets
from servemap.server.events import append_event
from servemap.server.stop import request_stop, stop_request

LOG_TAIL_LINES = 30


def ensure_server(context: Context, variant: str) -> Served:
    """Return a running, gated server of a variant, reusing one of the same fingerprint.

    The caller holds the run's server lock for as long as it uses the server.

    Raises:
        NotRunError: the campaign was stopped or aborted, the frozen facts or the patches do not
            hold, the variant was given up, or the server did not start or pass its gates.
    """
    _refuse_stopped(context)
    server = context.server(variant)
    if server.attach:
        return _attach(context, server)
    found_drift = _check_drift(context, variant)
    node = context.head
    workdir = context.workdir(context.plan.head)
    fingerprint = context.plan.spec_sha256("launch", variant)
    running = process.read_running(node, workdir)
    if running is not None:
        lost = _why_not_reusable(context, variant, running, fingerprint)
        if lost is None:
            return _reuse(context, variant, server, running, found_drift)
        _let_go(context, variant, running, *lost)
    _check_breaker(context, variant)
    return _launch(context, variant, server, fingerprint, found_drift)


def _refuse_stopped(context: Context) -> None:
    request = stop_request(context.run_dir, context.session)
    if request is not None:
        raise NotRunError(
            request.cause, request.reason, str(context.run_dir), "start the campaign again"
        )


def _check_drift(context: Context, variant: str) -> list[str]:
    found = []
    for node_id in context.plan.nodes_of(variant):
        facts = freeze.frozen(context, node_id)
        if facts is not None:
            found += [
                f"{node_id}: {text}"
                for text in freeze.drift(facts, freeze.take_facts(context, node_id))
            ]
    if found and context.policy.on_drift == "refuse":
        raise NotRunError(
            "drift",
            f"the frozen facts no longer hold: {'; '.join(found)}",
            str(results.run_dir(context.run) / "freeze"),
            "restore the environment, freeze anew with -f on the freeze file, or set "
            "policy.on_drift: mark",
        )
    return found


def _why_not_reusable(
    context: Context, variant: str, running: process.Running, fingerprint: str
) -> tuple[boots.Status, str, bool] | None:
    """Return (how it ends, why, whether its health was lost), or None if it may be reused."""
    node = context.head
    workdir = context.workdir(context.plan.head)
    if not process.alive(node, workdir, running):
        state = process.supervisor_state(node, workdir, running.boot_id)
        expired = (state.get("exit") or {}).get("reason") in ("lease_expired", "stopped")
        return ("stopped" if expired else "died"), process.say_exit(state), not expired
    if running.fingerprint != fingerprint or running.variant != variant:
        return "stopped", f"variant {variant} is next", False
    try:
        patches.verify_patches(node, context.server(variant).patches, workdir)
    except PatchError as error:
        return "stopped", f"its patches are not in place: {error.what}", False
    server = context.server(variant)
    url = base_url(server, context.plan.campaign.nodes[0].address)
    check = gates.completion_check(url, get_engine(server.engine), context.plan.campaign.model.name)
    if not check.ok:
        return "died", f"it lost its health: {check.evidence}", True
    return None


def _reuse(
    context: Context,
    variant: str,
    server: ServerSpec,
    running: process.Running,
    found_drift: list[str],
) -> Served:
    boot = next(
        (b for b in boots.read_boots(context.run_dir, variant) if b.boot_id == running.boot_id),
        None,
    )
    return Served(
        base_url(server, context.plan.campaign.nodes[0].address),
        running.fingerprint,
        running.boot_id,
        server.engine,
        boot.engine_version if boot else None,
        _pids(context, running.boot_id),
        True,
        found_drift,
        boot.argv if boot else [],
    )


def _pids(context: Context, boot_id: str) -> list[int]:
    state = process.supervisor_state(
        context.head, context.workdir(context.plan.head), boot_id
    )
    server = process.server_process(state)
    return [server.pid] if server else []


def _let_go(
    context: Context,
    variant: str,
    running: process.Running,
    status: boots.Status,
    reason: str,
    health_lost: bool,
) -> None:
    """Stop what is left of a server, record how it ended, and apply `on_unhealthy`."""
    ours = any(
        boot.boot_id == running.boot_id and boot.session == context.session
        for boot in boots.read_boots(context.run_dir, running.variant)
    )
    finish(context, running, status, reason)
    if health_lost and ours and context.policy.on_unhealthy == "abort":
        text = f"the server of variant {running.variant} lost its health: {reason}"
        request_stop(context.run_dir, context.session, "abort", text)
        raise NotRunError(
            "abort", text, str(context.run_dir / "server" / running.variant), "see its log"
        )


def _check_breaker(context: Context, variant: str) -> None:
    lost = boots.deaths(context.run_dir, variant, context.session)
    if len(lost) >= context.policy.max_deaths:
        raise NotRunError(
            "breaker",
            f"variant {variant} was given up after {len(lost)} starts that failed or died; "
            f"the last: {lost[-1].reason}",
            str(boots.boot_dir(context.run_dir, variant, lost[-1].boot_id)),
            "read the log there, mend the cause, start the campaign again",
        )


