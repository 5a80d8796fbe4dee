"""One load against a gated server: collectors and client started, awaited, ended, judged."""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from servemap.engines.registry import get_adapter
from servemap.measure.client import (
    MARGIN_S,
    client_result,
    error_classes,
    last_words,
    start_client,
    wait_client,
)
from servemap.measure.collect import (
    chosen_collectors,
    collector_records,
    collector_spec,
    runnable,
    start_collectors,
    stop_collectors,
)
from servemap.measure.job import Job
from servemap.measure.load import load_spec
from servemap.measure.record import Attempt
from servemap.nodes.base import ProcessId
from servemap.server import process
from servemap.server.context import Context
from servemap.server.ending import finish
from servemap.server.locks import controller_alive
from servemap.server.served import Served

STOP_S = 5.0


@dataclass(frozen=True)
class Load:
    """A load that was started; `fallback` says why its lengths are not the planned ones."""

    served: Served
    client: ProcessId
    collectors: ProcessId
    fallback: dict[str, Any] | None = None
    overhead: dict[str, float] = field(default_factory=dict)


def start_load(
    context: Context,
    job: Job,
    attempt: Attempt,
    served: Served,
    case: dict[str, Any],
    fallback: dict[str, Any] | None = None,
) -> Load:
    """Start collectors, then the client; each is noted at once, so that it can be ended.

    Raises:
        NodeError: one of them does not start.
    """
    campaign, node = context.plan.campaign, context.head
    begun = time.monotonic()
    attempt.note({"served": asdict(served)})
    endpoints = get_adapter(context.server(job.variant)).endpoints(served.url)
    collectors = start_collectors(
        node,
        collector_spec(
            chosen_collectors(campaign),
            node=node.name,
            out=attempt.raw / "telemetry" / node.name,
            pids=served.pids,
            metrics_url=endpoints.metrics,
            heartbeat=process.heartbeat_path(context.head_workdir),
            until=attempt.raw / "client.json",
            max_s=case["case_timeout_s"] + 2 * MARGIN_S,
        ),
        attempt.raw / "collect.log",
    )
    attempt.note({"collectors": asdict(collectors)})
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
    attempt.note({"client": asdict(client), "fallback": fallback})
    return Load(served, client, collectors, fallback, {"collectors_start_s": ready - begun})


def noted_load(opening: dict[str, Any]) -> Load | None:
    """Return the load that an attempt's opening names; None where it names no whole one."""
    try:
        return Load(
            Served(**opening["served"]),
            ProcessId(**opening["client"]),
            ProcessId(**opening["collectors"]),
            opening["fallback"],
        )
    except (KeyError, TypeError):
        return None


def stop_load(context: Context, attempt: Attempt) -> None:
    """End what an attempt's opening names, whether it still runs or not."""
    opening = attempt.opening()
    for name in ("client", "collectors"):
        if name in opening:
            context.head.stop(ProcessId(**opening[name]), STOP_S)


def finish_load(context: Context, job: Job, attempt: Attempt, load: Load) -> dict[str, Any]:
    """Wait for a load's end and return its outcome for the attempt's record.

    Raises:
        OrphanedError: the controller died; the load goes on.
    """
    node, served = context.head, load.served
    begun = time.monotonic()
    early = wait_client(
        node,
        load.client,
        begun + context.plan.cases[job.case].case_timeout_s + MARGIN_S,
        alive_check(context, served),
        lambda: controller_alive(context.run_dir),
    )
    loaded = time.monotonic()
    stop_collectors(node, load.collectors)
    stopped = time.monotonic()
    metrics_url = get_adapter(context.server(job.variant)).endpoints(served.url).metrics
    records = collector_records(
        attempt.raw / "telemetry",
        runnable(chosen_collectors(context.plan.campaign), metrics_url),
        node.name,
    )
    result = client_result(attempt.raw)
    reasons = [early] if early else []
    reasons += _server_reasons(context, attempt, served, result)
    reasons += _client_reasons(attempt, result)
    reasons += [
        f"required collector {name} failed: {record['error'] or 'no reason given'}"
        for name, record in records.items()
        if record["required"] and record["status"] != "ok"
    ]
    return {
        "status": "failed" if reasons else "ok",
        "reasons": reasons,
        "segments": (result or {}).get("segments", []),
        "counts": (result or {}).get("counts"),
        "clock": {node.name: {"offset_ns": 0, "error_ns": 0}},
        "collectors": records,
        "overhead": {
            **load.overhead,
            "client_s": loaded - begun,
            "collectors_stop_s": stopped - loaded,
        },
    }


def alive_check(context: Context, served: Served) -> Callable[[], bool]:
    """Return a function that says whether the served server runs; always yes if attached to."""
    if served.boot_id is None:
        return lambda: True
    node, workdir = context.head, context.head_workdir

    def check() -> bool:
        running = process.read_running(node, workdir)
        return (
            running is not None
            and running.boot_id == served.boot_id
            and process.alive(node, workdir, running)
        )

    return check


def _client_reasons(attempt: Attempt, result: dict[str, Any] | None) -> list[str]:
    if result is None:
        said = last_words(attempt.raw)
        words = f": {said}" if said else ""
        return [f"the load client left no record{words}; see {attempt.raw / 'client.log'}"]
    reasons = list(result.get("reasons", [])) if result.get("status") != "ok" else []
    if not (result.get("counts") or {}).get("ok"):
        classes = error_classes(attempt.raw)
        named = ", ".join(f"{count} x {name}" for name, count in sorted(classes.items()))
        reasons.append(f"no request succeeded ({named or 'none was answered'})")
    return reasons


def _server_reasons(
    context: Context, attempt: Attempt, served: Served, result: dict[str, Any] | None
) -> list[str]:
    """Return how the server failed the load; it is ended after an out-of-memory error."""
    if not alive_check(context, served)():
        return [] if _outlived(context, served, result) else [_bury(context, served)]
    running = process.read_running(context.head, context.head_workdir)
    if served.boot_id and running is not None and error_classes(attempt.raw).get("oom"):
        finish(context, running, "stopped", "it ran out of memory; a new one serves what follows")
    return []


def _outlived(context: Context, served: Served, result: dict[str, Any] | None) -> bool:
    """Whether the server ended only after the client was done, as after a controller's death.

    The times alone do not tell: a client that is refused by a dead server is done sooner than the
    supervisor has noted the death. A request that failed is taken as a sign of it.
    """
    counts = (result or {}).get("counts") or {}
    if served.boot_id is None or result is None or not result.get("ended_ns"):
        return False
    if not counts.get("sent") or counts.get("ok") != counts["sent"]:
        return False
    state = process.supervisor_state(context.head, context.head_workdir, served.boot_id)
    ended = state.get("ended_ns")
    return ended is not None and int(ended) > int(result["ended_ns"])


def _bury(context: Context, served: Served) -> str:
    """Record a server that died during a case, and return how it died in words."""
    node, workdir = context.head, context.head_workdir
    running = process.read_running(node, workdir)
    if running is None or running.boot_id != served.boot_id:
        return "the server that was measured was stopped or replaced during the case"
    state = process.supervisor_state(node, workdir, running.boot_id)
    reason = f"{process.say_exit(state)} during the case"
    finish(context, running, "died", reason)
    return reason
