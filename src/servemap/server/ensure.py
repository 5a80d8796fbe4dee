"""`ensure_server`: the one way in which a job gets a server that it may measure."""

from servemap.engines.registry import get_adapter
from servemap.model import results
from servemap.model.server_spec import ServerSpec
from servemap.server import boots, freeze, patches, process
from servemap.server.context import Context
from servemap.server.gates import check_completion, run_gates
from servemap.server.start import (
    PROBE_TIMEOUT_S,
    NotRunError,
    Served,
    finish,
    server_pids,
    server_url,
    start_server,
)
from servemap.server.stop import request_stop, stop_request


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
    node = context.head
    fingerprint = context.plan.spec_sha256("launch", variant)
    running = process.read_running(node, context.workdir(context.plan.head))
    if running is not None:
        lost = _why_not_reusable(context, variant, running, fingerprint)
        if lost is None:
            return _reuse(context, variant, server, running)
        _let_go(context, running, *lost)
    _check_breaker(context, variant)
    return start_server(context, variant, server, fingerprint, _check_drift(context, variant))


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
    server = context.server(variant)
    if server.patches:
        standing = patches.verify_patches(node, server.patches, workdir)
        if not standing["in_place"]:
            return "stopped", f"its patches are not in place ({standing['standing']})", False
    endpoints = get_adapter(server).endpoints(server_url(context, server))
    check = check_completion(endpoints, context.plan.campaign.model, PROBE_TIMEOUT_S)
    if not check.ok:
        return "died", f"it lost its health: {check.evidence}", True
    return None


def _reuse(context: Context, variant: str, server: ServerSpec, running: process.Running) -> Served:
    known = boots.read_boots(context.run_dir, variant)
    boot = next((item for item in known if item.boot_id == running.boot_id), None)
    ours = boot is not None and boot.session == context.session
    return Served(
        server_url(context, server),
        running.fingerprint,
        running.boot_id,
        server.engine,
        boot.engine_version if boot else None,
        server_pids(context, running.boot_id),
        True,
        # Facts cannot change under a server that this session itself started and gated.
        [] if ours else _check_drift(context, variant),
        boot.argv if boot else [],
    )


def _attach(context: Context, server: ServerSpec) -> Served:
    url = server_url(context, server)
    adapter = get_adapter(server)
    result = run_gates(adapter, url, context.plan.campaign.model)
    failed = [check for check in result.checks if check.ok is False]
    if failed:
        raise NotRunError(
            "launch",
            "; ".join(f"{check.name}: {check.evidence}" for check in failed),
            url,
            failed[0].remedy,
        )
    return Served(
        url,
        context.plan.spec_sha256("launch", "baseline"),
        None,
        server.engine,
        result.effective.engine_version,
        [],
        True,
        checks=[check.record() for check in result.checks],
    )


def _let_go(
    context: Context,
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
