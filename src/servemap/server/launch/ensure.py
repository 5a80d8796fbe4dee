"""`ensure_server`: the one way in which a job gets a server that it may measure."""

from dataclasses import dataclass

from servemap.engines.registry import get_adapter
from servemap.model import results
from servemap.model.attempts import read_json
from servemap.model.errors import ConnectionLostError, ServemapError
from servemap.model.server_spec import ServerSpec
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server import freeze, patches
from servemap.server.context import Context
from servemap.server.gates.checks import check_completion, run_gates
from servemap.server.gates.readback import read_back
from servemap.server.launch import boots
from servemap.server.launch.admit import PROBE_TIMEOUT_S
from servemap.server.launch.diagnosis import memory_errors, why_lost
from servemap.server.launch.ending import finish
from servemap.server.launch.ranks import Standing, asked_to_end, standing, why_down
from servemap.server.launch.required import require_baselines
from servemap.server.launch.served import Served, server_pids, server_url
from servemap.server.launch.start import start_server
from servemap.server.not_run import NotRunError
from servemap.server.reach import reach
from servemap.server.stop import request_stop, stop_request


def ensure_server(context: Context, variant: str, turn: int | None = None) -> Served:
    """Return a running, gated server of a variant, reusing one of the same fingerprint.

    The caller holds the run's server lock for as long as it uses the server. With a `turn`, a start
    serves that turn alone: one that served another is replaced (`policy.order: relaunched`).

    Raises:
        NotRunError: the campaign was stopped or aborted, the frozen facts or the patches do not
            hold, a baseline does not bear out what is required, the variant was given up, or the
            server did not start or pass its gates.
    """
    _refuse_stopped(context)
    try:
        server = context.server(variant)
        reach(context, context.plan.nodes_of(variant))
        if server.attach:
            return _attach(context, variant, server)
        served = _own_server(context, variant, server, turn)
        if turn is not None and served.boot_id is not None:
            boots.mark_turn(context.run_dir, variant, served.boot_id, turn)
        return served
    except NotRunError:
        raise
    except ConnectionLostError as error:
        raise NotRunError("unreachable", error.what, error.where, error.remedy) from error
    except ServemapError as error:
        raise NotRunError("launch", error.what, error.where, error.remedy) from error


def _own_server(context: Context, variant: str, server: ServerSpec, turn: int | None) -> Served:
    ranks = standing(context, context.plan.nodes_of(variant))
    if ranks:
        boot = _gated_boot(context, ranks)
        lost = _why_lost(context, variant, ranks, boot)
        if boot is not None and lost is None and turn is not None and boot.turn not in (None, turn):
            lost = _Lost("stopped", f"round {turn} of the repeats has a start of its own")
        if boot is not None and lost is None:
            return _reuse(context, variant, server, ranks, boot)
        if lost is not None:
            _let_go(context, ranks, lost)
    require_baselines(context, variant)
    _check_breaker(context, variant)
    return start_server(context, variant, server, _check_drift(context, variant))


def _refuse_stopped(context: Context) -> None:
    request = stop_request(context.run_dir, context.session)
    if request is not None:
        raise NotRunError(
            request.cause, request.reason, str(context.run_dir), "start the campaign again"
        )


def _check_drift(context: Context, variant: str) -> list[str]:
    def look(node_id: str) -> list[str]:
        facts = freeze.frozen(context, node_id)
        if facts is None:
            return []
        now = freeze.take_facts(context, node_id)
        return [f"{node_id}: {text}" for text in freeze.drift(facts, now)]

    said = each(context.plan.nodes_of(variant), look)
    found = [text for texts in said.values() for text in texts]
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


def _gated_boot(context: Context, ranks: Standing) -> boots.Boot | None:
    """Return the record of the start that all ranks are of; None where it did not pass its gates.

    Ranks of several starts, as a node leaves them that was away, are no server.
    """
    starts = {(rank.variant, rank.boot_id) for rank in ranks.values()}
    if len(starts) != 1:
        return None
    variant, boot_id = starts.pop()
    known = boots.read_boots(context.run_dir, variant)
    return next(
        (boot for boot in known if boot.boot_id == boot_id and boot.status == "ready"), None
    )


def _why_lost(
    context: Context, variant: str, ranks: Standing, boot: boots.Boot | None
) -> _Lost | None:
    """Return why a server may not be reused for a variant, or None if it may."""
    down = why_down(context, ranks)
    if down is not None:
        asked = asked_to_end(context, ranks)
        return _Lost("stopped" if asked else "died", down, health=not asked)
    fingerprint = context.plan.spec_sha256("launch", variant)
    if any((r.variant, r.fingerprint) != (variant, fingerprint) for r in ranks.values()):
        return _Lost("stopped", f"variant {variant} is next")
    if set(ranks) != set(context.plan.nodes_of(variant)):
        return _Lost("died", f"of its nodes only {', '.join(ranks)} run it", health=True)
    if boot is None:
        return _Lost("stopped", "there is no record that it passed its gates")
    unsafe = _why_unsafe(context, variant, ranks)
    if unsafe is not None:
        return _Lost("stopped", unsafe)
    endpoints = get_adapter(context.server(variant)).endpoints(
        server_url(context, context.server(variant))
    )
    check = check_completion(context.head, endpoints, context.plan.campaign.model, PROBE_TIMEOUT_S)
    if not check.ok:
        return _Lost("died", f"it lost its health: {check.evidence}", health=True)
    return None


def _why_unsafe(context: Context, variant: str, ranks: Standing) -> str | None:
    """Return why running ranks are not what they were when they were gated, or None."""
    wanted = context.server(variant).patches

    def look(node_id: str) -> str | None:
        node, workdir = context.nodes[node_id], context.workdir(node_id)
        if not node.alive(ranks[node_id].supervisor):
            return "its supervisor is gone, so nothing would stop it if we died"
        if not wanted:
            return None
        found = patches.verify_patches(node, wanted, workdir)
        if found["in_place"]:
            return None
        return f"its patches are not in place ({found['standing']})"

    return next((said for said in each(list(ranks), look).values() if said), None)


def _reuse(
    context: Context, variant: str, server: ServerSpec, ranks: Standing, boot: boots.Boot
) -> Served:
    # Facts cannot change under a server that this session itself started and gated, and what it
    # was started with stays.
    ours = boot.session == context.session
    drift = [] if ours else _check_drift(context, variant)
    folder = boots.boot_dir(context.run_dir, boot.variant, boot.boot_id)
    return Served(
        server_url(context, server),
        boot.fingerprint,
        boot.boot_id,
        server.engine,
        boot.engine_version,
        server_pids(context, ranks),
        True,
        list(dict.fromkeys([*boot.drift, *drift])),
        boot.argv,
        boot.ranks,
        list((read_json(folder / "gate.json") or {}).get("checks", [])),
    )


def _attach(context: Context, variant: str, server: ServerSpec) -> Served:
    url = server_url(context, server)
    adapter, model = get_adapter(server), context.plan.campaign.model
    result = run_gates(context.head, adapter, url, model)
    checks = [*result.checks, *read_back(adapter, server, model, result.effective)]
    failed = [check for check in checks if check.ok is False]
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
        checks=[check.record() for check in checks],
    )


def _let_go(context: Context, ranks: Standing, lost: _Lost) -> None:
    """Stop what is left of a server, record how it ended, and apply `on_unhealthy`.

    A server that ran out of memory is replaced whatever that policy says, and so is one that was
    started for captures, which fail nothing else.
    """
    variant = next(iter(ranks.values())).variant
    if variant not in context.plan.variants:
        finish(context, ranks, lost.status, lost.reason)
        return
    ours = any(
        boot.boot_id == rank.boot_id and boot.session == context.session
        for rank in ranks.values()
        for boot in boots.read_boots(context.run_dir, rank.variant)
    )
    abort = context.policy.on_unhealthy == "abort" and variant != context.profiled
    aborts = lost.health and ours and abort
    out_of_memory = memory_errors(context, variant, ranks) if aborts else []
    said = out_of_memory or (why_lost(context, variant, ranks) if lost.health else [])
    reason = "; ".join([lost.reason, *said])
    finish(context, ranks, lost.status, reason)
    if aborts and not out_of_memory:
        text = redact_text(f"the server of variant {variant} lost its health: {reason}")
        request_stop(context.run_dir, context.session, "abort", text)
        raise NotRunError("abort", text, str(context.run_dir / "server" / variant), "see its log")


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
