"""`ensure_server`: the one way in which a job gets a server that it may measure."""

from dataclasses import dataclass

from servemap.engines.registry import get_adapter
from servemap.model import results
from servemap.model.attempts import read_json
from servemap.model.errors import ServemapError
from servemap.model.server_spec import ServerSpec
from servemap.onnode.redact import redact_text
from servemap.server import boots, freeze, patches, process
from servemap.server.context import Context
from servemap.server.ending import finish
from servemap.server.gates import check_completion, run_gates
from servemap.server.served import NotRunError, Served, server_pids, server_url
from servemap.server.start import PROBE_TIMEOUT_S, start_server
from servemap.server.stop import request_stop, stop_request


def ensure_server(context: Context, variant: str) -> Served:
    """Return a running, gated server of a variant, reusing one of the same fingerprint.

    The caller holds the run's server lock for as long as it uses the server.

    Raises:
        NotRunError: the campaign was stopped or aborted, the frozen facts or the patches do not
            hold, the variant was given up, or the server did not start or pass its gates.
    """
    _refuse_stopped(context)
    try:
        server = context.server(variant)
        if server.attach:
            return _attach(context, variant, server)
        return _own_server(context, variant, server)
    except NotRunError:
        raise
    except ServemapError as error:
        raise NotRunError("launch", error.what, error.where, error.remedy) from error


def _own_server(context: Context, variant: str, server: ServerSpec) -> Served:
    running = process.read_running(context.head, context.head_workdir)
    if running is not None:
        boot = _gated_boot(context, running)
        lost = _why_lost(context, variant, running, boot)
        if boot is not None and lost is None:
            return _reuse(context, variant, server, boot)
        if lost is not None:
            _let_go(context, running, lost)
    _check_breaker(context, variant)
    return start_server(context, variant, server, _check_drift(context, variant))


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
            "restore the environment; or freeze anew with -f on freeze/NODE.json, which makes "
            "every launch and case of that node run again; or set policy.on_drift: mark",
        )
    return found


@dataclass(frozen=True)
class _Lost:
    """Why a server that was started may not be used any more, and how its start is recorded."""

    status: boots.Status
    reason: str
    health: bool = False


def _gated_boot(context: Context, running: process.Running) -> boots.Boot | None:
    """Return the record of a running server's start; None where it did not pass its gates."""
    known = boots.read_boots(context.run_dir, running.variant)
    return next(
        (boot for boot in known if boot.boot_id == running.boot_id and boot.status == "ready"), None
    )


def _why_lost(
    context: Context, variant: str, running: process.Running, boot: boots.Boot | None
) -> _Lost | None:
    """Return why a server may not be reused for a variant, or None if it may."""
    node, workdir = context.head, context.head_workdir
    if not process.alive(node, workdir, running):
        state = process.supervisor_state(node, workdir, running.boot_id)
        asked = (state.get("exit") or {}).get("reason") in ("lease_expired", "stopped")
        return _Lost("stopped" if asked else "died", process.say_exit(state), health=not asked)
    fingerprint = context.plan.spec_sha256("launch", variant)
    if (running.variant, running.fingerprint) != (variant, fingerprint):
        return _Lost("stopped", f"variant {variant} is next")
    if boot is None:
        return _Lost("stopped", "there is no record that it passed its gates")
    if not node.alive(running.supervisor):
        return _Lost("stopped", "its supervisor is gone, so nothing would stop it if we died")
    server = context.server(variant)
    if server.patches:
        standing = patches.verify_patches(node, server.patches, workdir)
        if not standing["in_place"]:
            return _Lost("stopped", f"its patches are not in place ({standing['standing']})")
    endpoints = get_adapter(server).endpoints(server_url(context, server))
    check = check_completion(endpoints, context.plan.campaign.model, PROBE_TIMEOUT_S)
    if not check.ok:
        return _Lost("died", f"it lost its health: {check.evidence}", health=True)
    return None


def _reuse(context: Context, variant: str, server: ServerSpec, boot: boots.Boot) -> Served:
    # Facts cannot change under a server that this session itself started and gated.
    ours = boot.session == context.session
    folder = boots.boot_dir(context.run_dir, boot.variant, boot.boot_id)
    return Served(
        server_url(context, server),
        boot.fingerprint,
        boot.boot_id,
        server.engine,
        boot.engine_version,
        server_pids(context, boot.boot_id),
        True,
        boot.drift if ours else _check_drift(context, variant),
        boot.argv,
        list((read_json(folder / "gate.json") or {}).get("checks", [])),
    )


def _attach(context: Context, variant: str, server: ServerSpec) -> Served:
    url = server_url(context, server)
    result = run_gates(get_adapter(server), url, context.plan.campaign.model)
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
        context.plan.spec_sha256("launch", variant),
        None,
        server.engine,
        result.effective.engine_version,
        {},
        True,
        checks=[check.record() for check in result.checks],
    )


def _let_go(context: Context, running: process.Running, lost: _Lost) -> None:
    """Stop what is left of a server, record how it ended, and apply `on_unhealthy`."""
    ours = any(
        boot.boot_id == running.boot_id and boot.session == context.session
        for boot in boots.read_boots(context.run_dir, running.variant)
    )
    finish(context, running, lost.status, lost.reason)
    if lost.health and ours and context.policy.on_unhealthy == "abort":
        text = redact_text(
            f"the server of variant {running.variant} lost its health: {lost.reason}"
        )
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
