"""One repeat of a case: a gated server, collectors, the load client, a record of what happened."""

import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servemap.engines.registry import get_adapter
from servemap.measure.client import (
    MARGIN_S,
    client_result,
    error_classes,
    start_client,
    wait_client,
)
from servemap.measure.collect import (
    chosen_collectors,
    collector_records,
    collector_spec,
    start_collectors,
    stop_collectors,
)
from servemap.measure.load import fallback_case, load_spec
from servemap.measure.record import Attempt, close_attempt, known_attempts, open_attempt
from servemap.model import results
from servemap.model.canon import write_json_atomic
from servemap.model.errors import NodeError, OrphanedError, ServemapError
from servemap.nodes.base import ProcessId
from servemap.server import process
from servemap.server.context import Context
from servemap.server.ensure import ensure_server
from servemap.server.events import append_event
from servemap.server.locks import controller_alive, server_lock
from servemap.server.start import NotRunError, Served, finish


@dataclass(frozen=True)
class Job:
    """What identifies one planned repetition."""

    variant: str
    case: str
    repeat: int
    token: int

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.variant}/{self.case} r{self.repeat}"


def run_case(context: Context, job: Job, output: Path) -> dict[str, Any]:
    """Measure one repeat and write its `meta.json`, also when it failed or was not run.

    Returns the meta record. Bad luck of the server, the network or the load is recorded, not
    raised; what is raised is a fault of the controller itself, such as a full disk.

    Raises:
        OrphanedError: the controller died while the load ran; the attempt stays open.
    """
    repeat_dir = results.repeat_dir(context.run, job.variant, job.case, job.repeat)
    with server_lock(context.run_dir, f"case {job.label}"):
        append_event(context.run_dir, "case_start", **asdict(job))
        meta = _adopt(context, job, repeat_dir) or _measure(context, job, repeat_dir)
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


def _identity(context: Context, job: Job) -> dict[str, Any]:
    key = ("case", job.variant, job.case)
    return {
        "run": context.run,
        "variant": job.variant,
        "case": job.case,
        "repeat": job.repeat,
        "token": job.token,
        "spec": context.plan.spec_data(*key),
        "spec_sha256": context.plan.spec_sha256(*key),
    }


def _measure(context: Context, job: Job, repeat_dir: Path) -> dict[str, Any]:
    identity = _identity(context, job)
    attempt = open_attempt(repeat_dir, {"identity": identity, "session": context.session})
    begun = time.monotonic()
    try:
        served = ensure_server(context, job.variant)
    except NotRunError as error:
        return close_attempt(
            attempt,
            {**identity, "status": "not_run", "cause": error.cause, "reasons": [str(error)]},
        )
    except ServemapError as error:
        return close_attempt(attempt, {**identity, "status": "failed", "reasons": [str(error)]})
    overhead = {"ensure_s": time.monotonic() - begun}
    case = identity["spec"]["case"]
    try:
        outcome = _load(context, job, attempt, served, case)
        second = fallback_case(case)
        used: dict[str, Any] | None = None
        classes = error_classes(attempt.raw)
        hit = sorted(set(classes) & set((case.get("fallback") or {}).get("on", [])))
        if second is not None and hit:
            used = {
                "reason": hit[0],
                "planned": {"isl": case["isl"], "osl": case["osl"]},
                "used": {"isl": second["isl"], "osl": second["osl"]},
            }
            attempt.raw.rename(attempt.folder / "raw-planned")
            attempt.raw.mkdir()
            served = ensure_server(context, job.variant)
            outcome = _load(context, job, attempt, served, second)
    except (NodeError, NotRunError) as error:
        return close_attempt(
            attempt,
            {**identity, "server": _server(served), "status": "failed", "reasons": [str(error)]},
        )
    except OrphanedError:
        raise
    except BaseException:
        _abandon(context, attempt, identity)
        raise
    overhead |= outcome.pop("overhead")
    return close_attempt(
        attempt,
        {**identity, "server": _server(served), "fallback": used, **outcome, "overhead": overhead},
    )


def _server(served: Served) -> dict[str, Any]:
    return {
        "fingerprint": served.fingerprint,
        "boot_id": served.boot_id,
        "engine": served.engine,
        "engine_version": served.engine_version,
        "reused": served.reused,
        "drift": served.drift,
    }


def _load(
    context: Context, job: Job, attempt: Attempt, served: Served, case: dict[str, Any]
) -> dict[str, Any]:
    """Run collectors and client once; return the outcome for the meta record."""
    campaign = context.plan.campaign
    node = context.head
    endpoints = get_adapter(context.server(job.variant)).endpoints(served.url)
    telemetry = attempt.raw / "telemetry"
    begun = time.monotonic()
    collectors = start_collectors(
        node,
        collector_spec(
            chosen_collectors(campaign),
            node=node.name,
            out=telemetry / node.name,
            pids=served.pids,
            metrics_url=endpoints.metrics,
            heartbeat=process.heartbeat_path(context.workdir(context.plan.head)),
            until=attempt.raw / "client.json",
            max_s=case["case_timeout_s"] + 2 * MARGIN_S,
        ),
        attempt.raw / "collect.log",
    )
    ready = time.monotonic()
    spec = load_spec(
        case,
        url=served.url,
        endpoint=endpoints.completions.removeprefix(served.url),
        model=campaign.model.model_dump(mode="json"),
        request=dict(context.server(job.variant).request),
        seed=f"{context.run}/{job.label}/{uuid.uuid4()}",
    )
    client = start_client(node, spec, attempt.raw)
    attempt.note(
        {"client": asdict(client), "collectors": asdict(collectors), "served": asdict(served)}
    )
    return _finish_load(context, job, attempt, served, client, collectors, begun, ready)


def _finish_load(
    context: Context,
    job: Job,
    attempt: Attempt,
    served: Served,
    client: ProcessId,
    collectors: ProcessId,
    begun: float,
    ready: float,
) -> dict[str, Any]:
    node = context.head
    timeout_s = context.plan.cases[job.case].case_timeout_s + MARGIN_S
    early = wait_client(
        node,
        client,
        time.monotonic() + timeout_s,
        _alive(context, served),
        lambda: controller_alive(context.run_dir),
    )
    loaded = time.monotonic()
    stop_collectors(node, collectors)
    stopped = time.monotonic()
    records = collector_records(
        attempt.raw / "telemetry",
        [
            collector
            for collector in chosen_collectors(context.plan.campaign)
            if collector.kind == "proc" or _metrics_url(context, job, served)
        ],
        node.name,
    )
    reasons = _reasons(context, attempt, served, early, records)
    result = client_result(attempt.raw) or {}
    return {
        "status": "failed" if reasons else "ok",
        "reasons": reasons,
        "segments": result.get("segments", []),
        "counts": result.get("counts"),
        "clock": {node.name: {"offset_ns": 0, "error_ns": 0}},
        "collectors": records,
        "overhead": {
            "collectors_start_s": ready - begun,
            "client_s": loaded - ready,
            "collectors_stop_s": stopped - loaded,
        },
    }


def _metrics_url(context: Context, job: Job, served: Served) -> str | None:
    return get_adapter(context.server(job.variant)).endpoints(served.url).metrics


def _alive(context: Context, served: Served) -> Callable[[], bool]:
    if served.boot_id is None:
        return lambda: True
    node, workdir = context.head, context.workdir(context.plan.head)

    def check() -> bool:
        running = process.read_running(node, workdir)
        return (
            running is not None
            and running.boot_id == served.boot_id
            and process.alive(node, workdir, running)
        )

    return check


def _reasons(
    context: Context,
    attempt: Attempt,
    served: Served,
    early: str | None,
    records: dict[str, dict[str, Any]],
) -> list[str]:
    """Return why an attempt failed; empty where it did not."""
    reasons = [early] if early else []
    result = client_result(attempt.raw)
    if not _alive(context, served)() and not _outlived(context, served, result):
        reasons.append(_bury(context, served))
    if result is None:
        reasons.append(f"the load client left no record; see {attempt.raw / 'client.log'}")
        return reasons
    reasons += result.get("reasons", []) if result.get("status") != "ok" else []
    counts = result.get("counts") or {}
    if not counts.get("ok"):
        classes = error_classes(attempt.raw)
        named = ", ".join(f"{count} x {name}" for name, count in sorted(classes.items()))
        reasons.append(f"no request succeeded ({named or 'none was answered'})")
    reasons += [
        f"required collector {name} failed: {record['error'] or 'no reason given'}"
        for name, record in records.items()
        if record["required"] and record["status"] != "ok"
    ]
    return reasons


def _outlived(context: Context, served: Served, result: dict[str, Any] | None) -> bool:
    """Whether the server ended only after the client was done, as after a controller's death."""
    if served.boot_id is None or result is None or not result.get("ended_ns"):
        return False
    workdir = context.workdir(context.plan.head)
    ended = process.supervisor_state(context.head, workdir, served.boot_id).get("ended_ns")
    return ended is not None and int(ended) > int(result["ended_ns"])


def _bury(context: Context, served: Served) -> str:
    """Record a server that died during a case, and return how it died in words."""
    node, workdir = context.head, context.workdir(context.plan.head)
    running = process.read_running(node, workdir)
    if running is None or running.boot_id != served.boot_id:
        return "another server took the place of the one that was measured"
    state = process.supervisor_state(node, workdir, running.boot_id)
    reason = f"{process.say_exit(state)} during the case"
    finish(context, running, "died", reason)
    return reason


def _abandon(context: Context, attempt: Attempt, identity: dict[str, Any]) -> None:
    """The controller itself is ended: stop the load, keep what was received, use up no try."""
    opening = attempt.opening()
    for name in ("client", "collectors"):
        if name in opening:
            context.head.stop(ProcessId(**opening[name]), 5)
    try:
        close_attempt(
            attempt,
            {
                **identity,
                "status": "failed",
                "cause": "interrupted",
                "reasons": ["the controller was interrupted or met an error of its own"],
            },
        )
    except OSError as error:
        shutil.rmtree(attempt.raw, ignore_errors=True)
        append_event(context.run_dir, "attempt_lost", attempt=str(attempt.folder), error=str(error))


def _adopt(context: Context, job: Job, repeat_dir: Path) -> dict[str, Any] | None:
    """Finish an attempt whose controller died while its client went on; None if there is none.

    An attempt that cannot be finished is closed as failed, so that its evidence stays.
    """
    for attempt in known_attempts(repeat_dir)[::-1]:
        if attempt.closed:
            return None
        opening = attempt.opening()
        identity = _identity(context, job)
        same_spec = opening.get("identity", {}).get("spec_sha256") == identity["spec_sha256"]
        if same_spec and "served" in opening:
            served = Served(**opening["served"])
            client = ProcessId(**opening["client"])
            collectors = ProcessId(**opening["collectors"])
            node = context.head
            whole = client_result(attempt.raw) is not None
            if whole or (node.alive(client) and _alive(context, served)()):
                append_event(context.run_dir, "adopt", **asdict(job), attempt=attempt.number)
                now = time.monotonic()
                outcome = _finish_load(context, job, attempt, served, client, collectors, now, now)
                return close_attempt(
                    attempt, {**identity, "server": _server(served), "adopted": True, **outcome}
                )
        _abandon(context, attempt, opening.get("identity") or identity)
    return None
