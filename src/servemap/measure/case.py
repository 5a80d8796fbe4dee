"""One repeat of a case: a gated server, a load with collectors, a record of what happened."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from servemap.measure.adopt import abandon, find_adoptable
from servemap.measure.client import error_classes
from servemap.measure.ending import stop_load
from servemap.measure.folders import bring_rest, close
from servemap.measure.job import Job, identity, resolved
from servemap.measure.load import fallback_case, fallback_reason
from servemap.measure.load_run import finish_load, start_load
from servemap.measure.loads import Load
from servemap.measure.probe import require_collectors
from servemap.measure.profiled import refuse_profiled
from servemap.measure.reasons import Disturbed, undisturbed
from servemap.measure.record import Attempt, open_attempt
from servemap.measure.search import run_search
from servemap.model import results
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConnectionLostError, OrphanedError, ServemapError
from servemap.model.search import Judge
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from servemap.server.locks import server_lock
from servemap.server.not_run import NotRunError
from servemap.server.patience import Patience


def run_case(
    context: Context,
    job: Job,
    output: Path,
    disturbed: Disturbed = undisturbed,
    judge: Judge | None = None,
) -> dict[str, Any]:
    """Measure one repeat and write its `meta.json`, also when it failed or was not run.

    Returns the meta record. Bad luck of the server, the network or the load is recorded, not
    raised; what is raised is a fault of the controller itself, such as a full disk.

    Args:
        context: the campaign.
        job: the repeat.
        output: where its `meta.json` is declared.
        disturbed: says of a load that went well what makes it worth another try.
        judge: what says of a search's probe whether it met the SLO; other kinds need none.

    Raises:
        OrphanedError: the controller died while the load ran; the attempt stays open.
        UnreachableError: a node is away that holds an attempt of a dead controller; the attempt
            stays open, and the next controller finishes it.
    """
    repeat_dir = results.repeat_dir(context.run, job.variant, job.case, job.repeat)
    with server_lock(context.run_dir, f"case {job.label}"):
        append_event(context.run_dir, "case_start", **asdict(job))
        meta = _adopt(context, job, repeat_dir, disturbed)
        meta = meta or _measure(context, job, repeat_dir, disturbed, judge)
        write_json_atomic(output, meta)
        append_event(
            context.run_dir,
            "case_end",
            **asdict(job),
            attempt=meta["attempt"],
            status=meta["status"],
            reasons=meta["reasons"],
        )
    return meta


def _measure(
    context: Context, job: Job, repeat_dir: Path, disturbed: Disturbed, judge: Judge | None
) -> dict[str, Any]:
    attempt = open_attempt(
        repeat_dir, {"identity": identity(context, job), "session": context.session}
    )
    begun = time.monotonic()

    def measure() -> dict[str, Any]:
        require_collectors(context, job.variant)
        served = ensure_server(context, job.variant, _turn(context, job))
        refuse_profiled(context, job.variant, served)
        ensured = time.monotonic() - begun
        patience = _patience(context)
        case = resolved(context, job)
        if case["kind"] == "search":
            if judge is None:
                raise ValueError("a search needs a judge")
            found = run_search(context, job, attempt, served, case, patience, judge, disturbed)
            facts = {"server": served.record(), **found}
        else:
            load = start_load(context, job, attempt, served, case, patience)
            facts = _see_through(context, job, attempt, load, patience, disturbed)
        return {**facts, "overhead": {"ensure_s": ensured, **facts["overhead"]}}

    return _recorded(context, job, attempt, measure)


def _adopt(
    context: Context, job: Job, repeat_dir: Path, disturbed: Disturbed
) -> dict[str, Any] | None:
    """Finish an attempt whose controller died while its client went on; None if there is none."""
    patience = _patience(context)
    found = find_adoptable(context, job, repeat_dir, patience)
    if found is None:
        return None
    attempt, load = found
    append_event(context.run_dir, "adopt", **asdict(job), attempt=attempt.number)
    return _recorded(
        context,
        job,
        attempt,
        lambda: {"adopted": True, **_see_through(context, job, attempt, load, patience, disturbed)},
    )


def _turn(context: Context, job: Job) -> int | None:
    """Return the round that the server must have been started for; None where any start will do."""
    return job.repeat if context.policy.order == "relaunched" else None


def _patience(context: Context) -> Patience:
    return Patience(context.run_dir, context.policy.lost_node_s)


def _see_through(
    context: Context,
    job: Job,
    attempt: Attempt,
    load: Load,
    patience: Patience,
    disturbed: Disturbed,
) -> dict[str, Any]:
    """Finish a load, and the one at fall-back lengths where that is due; return the facts."""
    case = resolved(context, job)
    outcome = finish_load(context, job, attempt, load, patience, disturbed)
    shorter = fallback_case(case)
    hit = fallback_reason(case, error_classes(attempt.raw))
    if load.fallback is None and shorter is not None and hit is not None:
        used = {
            "reason": hit,
            "planned": {"isl": case["isl"], "osl": case["osl"]},
            "used": {"isl": shorter["isl"], "osl": shorter["osl"]},
        }
        # Whoever finds the attempt open from here on must not take the first load for this one.
        attempt.note({"load_id": None, "client": None, "collectors": {}})
        attempt.raw.rename(attempt.folder / "raw-planned")
        attempt.raw.mkdir()
        served = ensure_server(context, job.variant, _turn(context, job))
        refuse_profiled(context, job.variant, served)
        load = start_load(context, job, attempt, served, shorter, patience, used)
        outcome = finish_load(context, job, attempt, load, patience, disturbed)
    return {"server": load.served.record(), "fallback": load.fallback, **outcome}


def _recorded(
    context: Context, job: Job, attempt: Attempt, measure: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Close an attempt with the facts that `measure` returns, or with what went wrong."""
    facts: dict[str, Any]
    try:
        return close(context, attempt, {**identity(context, job), **measure()})
    except NotRunError as error:
        # Nothing was asked of a node that is away, so that uses up no try.
        lost = isinstance(error.__cause__, ConnectionLostError)
        cause = "unreachable" if lost else error.cause
        facts = {"status": "not_run", "cause": cause, "reasons": [str(error)]}
    except ServemapError as error:
        facts = {"status": "failed", "reasons": [str(error)]}
        if isinstance(error, ConnectionLostError):
            facts["cause"] = "unreachable"
    except OrphanedError:
        raise
    except BaseException as error:
        # An interrupt or a fault of the controller: it stays the reason, whatever else fails.
        with contextlib.suppress(ServemapError, OSError):
            abandon(context, attempt, identity(context, job), _say(error))
        raise
    opening = attempt.opening()
    facts["reasons"] += stop_load(context, attempt) + bring_rest(context, attempt)
    if "served" in opening:
        facts["server"] = Served(**opening["served"]).record()
    return close(context, attempt, {**identity(context, job), **facts})


def _say(error: BaseException) -> str:
    if isinstance(error, Exception):
        return f"the controller met an error of its own: {type(error).__name__}: {error}"
    return "the controller was interrupted"
