"""One load against a gated server: collectors and client started, awaited, ended, judged."""

import threading
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from servemap.engines.registry import get_adapter
from servemap.measure.cards import look_at_cards
from servemap.measure.client import MARGIN_S, Look, start_client, wait_client
from servemap.measure.clients.outcome import FOLDER, completed
from servemap.measure.clients.start import client_spec
from servemap.measure.clocks import Measured, clock_records, read_clock
from servemap.measure.collect import (
    await_collectors,
    chosen_collectors,
    collector_records,
    collector_spec,
    ended_early,
    runnable,
    server_log,
    simulated_mark,
    start_collectors,
    stop_collectors,
    watching_case,
)
from servemap.measure.ending import end_others, stop_load
from servemap.measure.folders import bring, know_folders, raw_on
from servemap.measure.job import Job, resolved
from servemap.measure.load import flush_path, load_spec
from servemap.measure.loads import Load
from servemap.measure.own_record import on_head, own_record
from servemap.measure.reasons import (
    Disturbed,
    client_reasons,
    full_disks,
    server_down,
    server_reasons,
    undisturbed,
)
from servemap.measure.record import Attempt
from servemap.model.attempts import DISTURBED
from servemap.model.errors import OrphanedError
from servemap.model.replay import replayed
from servemap.nodes.base import ProcessId
from servemap.nodes.parallel import each
from servemap.onnode.end_loads import mark
from servemap.server.context import Context
from servemap.server.launch import process
from servemap.server.launch.served import Served
from servemap.server.locks import controller_alive
from servemap.server.patience import Patience
from servemap.telemetry.collectors import Collector


def nodes_of(context: Context, variant: str) -> list[str]:
    """Return the nodes that matter to a case: the head, the server's and the load's."""
    plan = context.plan
    return list(dict.fromkeys([plan.head, *plan.nodes_of(variant), plan.load_node]))


@dataclass(frozen=True)
class Collecting:
    """Collectors that sample on all nodes of a load, and the clocks as they began."""

    load_id: str
    started: dict[str, ProcessId]
    clocks: dict[str, Measured]
    seconds: float
    cards: dict[str, dict[str, Any]]


def start_collecting(
    context: Context,
    job: Job,
    attempt: Attempt,
    served: Served,
    max_s: float,
    patience: Patience,
    until: str | None = "client.json",
) -> Collecting:
    """Start the collectors of all nodes; each is noted at once, so that it can be ended.

    Args:
        context: the campaign.
        job: the repeat.
        attempt: the try at it.
        served: the server.
        max_s: after which they end in any case.
        patience: waits for nodes that are away.
        until: the raw file of the load's node whose appearance ends the collectors there.

    Raises:
        NodeError: one of them does not start, or a node is away.
    """
    begun = time.monotonic()
    load_node = context.plan.load_node
    know_folders(context, nodes_of(context, job.variant), patience)
    load_id = uuid.uuid4().hex
    nodes = nodes_of(context, job.variant)
    about = {"load_id": load_id, "load_node": load_node, "nodes": nodes}
    cards = look_at_cards(context, job.variant, served)
    attempt.note({**about, "served": asdict(served), "cards": cards})
    endpoints = get_adapter(context.server(job.variant)).endpoints(served.url)
    collectors_of = collectors_for(context, job)
    log = server_log(collectors_of, context.workdir(context.plan.head), served.boot_id)
    started: dict[str, ProcessId] = {}
    noting = threading.Lock()
    interrupted = threading.Event()

    def start(name: str) -> Measured:
        node, raw = context.nodes[name], raw_on(context, name, attempt, load_id)
        spec = collector_spec(
            collectors_of,
            node=name,
            raw=raw,
            pids=served.pids.get(name, []),
            metrics_url=endpoints.metrics if name == context.plan.head else None,
            log=log if name == context.plan.head else None,
            heartbeat=process.heartbeat_path(context.workdir(name)),
            until=f"{raw}/{until}" if until and name == load_node else None,
            gone_s=context.policy.lease_ttl_s,
            max_s=max_s,
            load_id=load_id,
        )
        collectors = start_collectors(node, spec, mark(load_id, context.workdir(name)))
        with noting:
            if interrupted.is_set():
                # Nobody will look for what was not noted.
                stop_collectors(node, collectors)
                raise OrphanedError
            started[name] = collectors
            attempt.note({"collectors": {key: asdict(value) for key, value in started.items()}})
        # They need a moment to begin, which is enough for the clock.
        clock = patience.insist(node, lambda: read_clock(node))
        await_collectors(node, spec, collectors, patience)
        return clock

    # Nobody may know of a load that was started while its node or its controller was lost.
    def do(task: tuple[str, str]) -> Measured | None:
        what, name = task
        if what == "start":
            return start(name)
        patience.insist(context.nodes[name], lambda: end_others(context, name, load_id))
        return None

    try:
        done = each([(what, name) for what in ("start", "end") for name in nodes], do)
    except BaseException:
        with noting:
            interrupted.set()
        raise
    clocks = {name: found for (_, name), found in done.items() if found is not None}
    return Collecting(load_id, started, clocks, time.monotonic() - begun, cards)


def collectors_for(context: Context, job: Job) -> list[Collector]:
    """Return the collectors of a job's case."""
    return watching_case(chosen_collectors(context.plan.campaign), context.plan.cases[job.case])


def collectors_by_node(
    context: Context, job: Job, served: Served, nodes: list[str]
) -> dict[str, list[Collector]]:
    """Return the collectors that have something to read on each node."""
    head = context.plan.head
    chosen = collectors_for(context, job)
    metrics_url = get_adapter(context.server(job.variant)).endpoints(served.url).metrics
    log = server_log(chosen, context.workdir(head), served.boot_id)
    return {
        name: runnable(chosen, metrics_url, log) if name == head else runnable(chosen, None, None)
        for name in nodes
    }


def start_load(
    context: Context,
    job: Job,
    attempt: Attempt,
    served: Served,
    case: dict[str, Any],
    patience: Patience,
    fallback: dict[str, Any] | None = None,
) -> Load:
    """Start collectors, then the client; each is noted at once, so that it can be ended.

    Raises:
        NodeError: one of them does not start, or a node is away.
    """
    max_s = case["case_timeout_s"] + 2 * MARGIN_S
    collecting = start_collecting(context, job, attempt, served, max_s, patience)
    load_id, clocks = collecting.load_id, collecting.clocks
    load_node = context.plan.load_node
    endpoints = get_adapter(context.server(job.variant)).endpoints(served.url)
    spec = load_spec(
        case,
        url=served.url,
        endpoint=endpoints.completions.removeprefix(served.url),
        model=context.plan.campaign.model.model_dump(mode="json"),
        request=dict(context.server(job.variant).request),
        seed=f"{context.run}/{job.label}/{load_id}",
        load_id=load_id,
        replay=replayed(context.plan.campaign, job.case),
        flush_path=flush_path(endpoints.cache_flush),
    )
    folder = raw_on(context, load_node, attempt, load_id)
    if "client" in case:
        spec["client"] = client_spec(
            case,
            spec,
            engine=context.server(job.variant).engine,
            model_path=context.plan.campaign.model.path,
            folder=f"{folder}/{FOLDER}",
            workdir=context.paths_from(load_node),
        )
    env = mark(load_id, context.workdir(load_node))
    client = start_client(context.nodes[load_node], spec, folder, env)
    attempt.note({"client": asdict(client), "clocks": clocks, "fallback": fallback})
    overhead = {"collectors_start_s": collecting.seconds}
    return Load(
        load_id,
        served,
        client,
        collecting.started,
        clocks,
        fallback,
        overhead,
        collecting.cards,
    )


def finish_load(
    context: Context,
    job: Job,
    attempt: Attempt,
    load: Load,
    patience: Patience,
    disturbed: Disturbed = undisturbed,
) -> dict[str, Any]:
    """Wait for a load's end and return its outcome for the attempt's record.

    A load that did its job and was `disturbed` fails with that cause.

    Raises:
        OrphanedError: the controller died; the load goes on.
        UnreachableError: a node was away for too long.
    """
    plan, served = context.plan, load.served
    begun = time.monotonic()
    chosen = collectors_by_node(context, job, served, list(load.collectors))
    early = wait_client(
        context.nodes[plan.load_node],
        load.client,
        begun + plan.cases[job.case].case_timeout_s + MARGIN_S,
        lambda: look_at(context, job.variant, attempt, load, chosen, patience),
        lambda: controller_alive(context.run_dir),
        patience,
    )
    loaded = time.monotonic()
    clocks = end_collectors(context, load, patience)
    case = resolved(context, job)
    # Below a runner that was killed its client goes on, and would be measured with what follows.
    killed = "client" in case and not _client_done(context, attempt, load, patience)
    left = stop_load(context, attempt) if killed else []
    stopped = time.monotonic()
    cards = look_at_cards(context, job.variant, served)
    lost = bring(context, attempt, list(load.collectors), load.id, patience)
    brought = time.monotonic()
    telemetry = attempt.raw / "telemetry"
    records = {
        key: record
        for name, collectors in chosen.items()
        for key, record in collector_records(telemetry, collectors, name, load.id).items()
    }
    clock = clock_records(load.clocks, clocks, plan.head, telemetry)
    offsets = [measured[plan.load_node]["offset_ns"] for measured in (load.clocks, clocks)]
    own, foreign = own_record(attempt, load.id, offsets)
    if own is not None and "client" in own:
        own = completed(own, attempt.raw, case["num_prompts"])
    result = on_head(attempt, own, plan.load_node, clock) if own is not None else None
    reasons = [*([early] if early else []), *left, *lost]
    reasons += server_reasons(context, job.variant, attempt, served, result, patience)
    reasons += client_reasons(attempt, result, foreign)
    reasons += [
        f"required collector {name} failed: {record['error'] or 'no reason given'}"
        for name, record in records.items()
        if record["required"] and record["status"] != "ok"
    ]
    if reasons:
        reasons += full_disks(context, list(load.collectors))
    facts = {
        "segments": (result or {}).get("segments", []),
        "counts": (result or {}).get("counts"),
        **_client_facts(result or {}),
        "clock": clock,
        "collectors": records,
        **simulated_mark(records),
        "cards": {"before": load.cards, "after": cards},
    }
    disturbances = [] if reasons else disturbed(attempt.raw, facts)
    return {
        "status": "failed" if reasons or disturbances else "ok",
        **({"cause": DISTURBED} if disturbances else {}),
        "reasons": reasons or disturbances,
        **facts,
        "away_s": dict(patience.away_s),
        "overhead": {
            **load.overhead,
            "client_s": loaded - begun,
            "collectors_stop_s": stopped - loaded,
            "fetch_s": brought - stopped,
        },
    }


def _client_facts(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the attempt's record says of a client of others; nothing of servemap's own."""
    if "client" not in result:
        return {}
    return {"client": {**result["client"], "window_cpu": result.get("window_cpu")}}


def look_at(
    context: Context,
    variant: str,
    attempt: Attempt,
    load: Load,
    chosen: dict[str, list[Collector]],
    patience: Patience,
) -> Look:
    """See whether the server lives and every required collector goes on."""
    if server_down(context, variant, load.served, patience) is not None:
        return Look(server_died=True)

    def ended(name: str) -> dict[str, str]:
        required = [collector.name for collector in chosen[name] if collector.required]
        raw = raw_on(context, name, attempt, load.id)
        return ended_early(context.nodes[name], raw, load.collectors[name], required, patience)

    gone = {
        key: reason
        for found in each(list(load.collectors), ended).values()
        for key, reason in found.items()
    }
    if not gone or _client_done(context, attempt, load, patience):
        return Look()
    named = "; ".join(f"{key}: {reason}" for key, reason in gone.items())
    return Look(failed=f"the load was ended because a required collector ended early: {named}")


def _client_done(context: Context, attempt: Attempt, load: Load, patience: Patience) -> bool:
    """Whether the client has written its record, after which its node's collectors end."""
    node = context.nodes[context.plan.load_node]
    folder = raw_on(context, node.name, attempt, load.id)
    return patience.insist(node, lambda: node.read_text(f"{folder}/client.json")) is not None


def end_collectors(context: Context, load: Load, patience: Patience) -> dict[str, Measured]:
    """End the collectors of all nodes and read their clocks meanwhile; return the clocks."""
    clocks: dict[str, Measured] = {}

    def do(task: tuple[str, str]) -> None:
        what, name = task
        node = context.nodes[name]
        if what == "clock":
            clocks[name] = patience.insist(node, lambda: read_clock(node))
        else:
            patience.insist(node, lambda: stop_collectors(node, load.collectors[name]))

    each([(what, name) for what in ("stop", "clock") for name in load.collectors], do)
    return clocks
