"""A search: bounded probes in one job, each a load of its own; collectors run through.

What is judged between the probes comes from a function that the caller brings along, since
formulas live in `analysis`. A killed search starts again: its load is never adopted.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servemap.engines.registry import get_adapter
from servemap.measure.cards import look_at_cards
from servemap.measure.client import MARGIN_S, error_classes, start_client, wait_client
from servemap.measure.clocks import clock_records
from servemap.measure.collect import (
    collector_records,
    simulated_mark,
)
from servemap.measure.folders import bring, raw_on
from servemap.measure.idle import await_idle
from servemap.measure.job import Job
from servemap.measure.load import flush_path, load_spec
from servemap.measure.load_run import (
    Collecting,
    collectors_by_node,
    end_collectors,
    look_at,
    start_collecting,
)
from servemap.measure.loads import Load
from servemap.measure.own_record import on_head, own_record
from servemap.measure.reasons import (
    NO_SUCCESS,
    Disturbed,
    client_reasons,
    full_disks,
    server_reasons,
    undisturbed,
)
from servemap.measure.record import Attempt
from servemap.model.attempts import DISTURBED
from servemap.model.curves import arrivals_at, whole_waves
from servemap.model.search import (
    Bounds,
    Judge,
    Judgement,
    Probed,
    Step,
    bounds_of,
    next_step,
)
from servemap.nodes.base import ProcessId
from servemap.onnode.end_loads import mark
from servemap.onnode.load_loop import CASE_TIMEOUT
from servemap.server.context import Context
from servemap.server.launch.served import Served
from servemap.server.locks import controller_alive
from servemap.server.patience import Patience

COUNTS = ("planned", "sent", "ok", "failed", "timed_out", "retried")


@dataclass(frozen=True)
class ProbeFiles(Attempt):
    """The part of an attempt that one probe left: `raw/probe-NN`."""

    name: str

    @property
    def raw(self) -> Path:
        """Where the probe's raw files go."""
        return self.folder / "raw" / self.name


@dataclass(frozen=True)
class Probe:
    """One probe that ended.

    Attributes:
        name: of its segment and of its folder below the raw files.
        level: what was probed.
        record: the client's own record.
        judgement: what it says; None where it is no measurement.
        reasons: why the search cannot go on.
        cut: whether the search's time ended it.
    """

    name: str
    level: float
    record: dict[str, Any] | None
    judgement: Judgement | None
    reasons: list[str]
    cut: bool = False


def probe_case(case: dict[str, Any], level: float, first: bool, limit_s: float) -> dict[str, Any]:
    """Return a probe as a resolved case of kind `fixed` or `rate`.

    Args:
        case: the resolved search.
        level: the concurrency, or the rate in requests per second.
        first: the warm-up goes before the first probe only.
        limit_s: what is left of the search's time.
    """
    common = {
        **case,
        "warmup": case["warmup"] if first else "none",
        "case_timeout_s": min(case["case_timeout_s"], limit_s),
    }
    if case["over"] == "concurrency":
        prompts = whole_waves(case["num_prompts"], int(level))
        return {**common, "kind": "fixed", "concurrency": int(level), "num_prompts": prompts}
    prompts = arrivals_at(level, case["num_prompts"], case["min_window_s"])
    return {**common, "kind": "rate", "rate_rps": level, "num_prompts": prompts, "min_window_s": 0}


def run_search(
    context: Context,
    job: Job,
    attempt: Attempt,
    served: Served,
    case: dict[str, Any],
    patience: Patience,
    judge: Judge,
    disturbed: Disturbed = undisturbed,
) -> dict[str, Any]:
    """Probe until the search has ended and return its outcome for the attempt's record.

    A level that was invalid twice because a probe was `disturbed` fails it with that cause.

    Raises:
        OrphanedError: the controller died; the attempt stays open, and is closed by the next one.
        NodeError: a collector or a client does not start, or a node is away for too long.
    """
    # Its collectors end with the search: no file says that it is done before it is.
    limit_s = case["max_s"] + case["case_timeout_s"] + 2 * MARGIN_S
    collecting = start_collecting(context, job, attempt, served, limit_s, patience, until=None)
    searching = _Searching(context, job, attempt, served, case, patience, collecting)
    bounds, begun = bounds_of(case), time.monotonic()
    probes: list[Probe] = []
    step = next_step(bounds, [], 0.0)
    while (level := step.level) is not None:
        left_s = case["max_s"] - (time.monotonic() - begun)
        if left_s <= 0:  # it ran out while the server got idle
            step = Step(ended="time")
            break
        probes.append(searching.probe(len(probes) + 1, level, left_s, judge))
        if probes[-1].reasons:
            break
        step = _next(bounds, probes, time.monotonic() - begun)
        busy = searching.await_idle() if step.level is not None else None
        if busy is not None:
            probes[-1].reasons.append(f"{busy} of {probes[-1].name}")
            break
    return searching.end(probes, step, time.monotonic() - begun, disturbed)


def _next(bounds: Bounds, probes: Sequence[Probe], elapsed_s: float) -> Step:
    if probes[-1].cut:
        return Step(ended="time")
    judged = [Probed(p.level, p.judgement.outcome) for p in probes if p.judgement is not None]
    return next_step(bounds, judged, elapsed_s)


@dataclass(frozen=True)
class _Searching:
    """What all probes of a search share."""

    context: Context
    job: Job
    attempt: Attempt
    served: Served
    case: dict[str, Any]
    patience: Patience
    collecting: Collecting

    @property
    def load_node(self) -> str:
        return self.context.plan.load_node

    @property
    def metrics_url(self) -> str | None:
        server = self.context.server(self.job.variant)
        return get_adapter(server).endpoints(self.served.url).metrics

    def load(self, client: ProcessId) -> Load:
        known = self.collecting
        return Load(known.load_id, self.served, client, known.started, known.clocks)

    def await_idle(self) -> str | None:
        """Wait until the server is idle; return in words why it is not."""
        head = self.context.nodes[self.context.plan.head]
        return await_idle(head, self.metrics_url, self.case["request_timeout_s"], self.patience)

    def probe(self, number: int, level: float, left_s: float, judge: Judge) -> Probe:
        context, name = self.context, f"probe-{number:02d}"
        case = probe_case(self.case, level, number == 1, left_s)
        node, load_id = context.nodes[self.load_node], self.collecting.load_id
        folder = f"{raw_on(context, self.load_node, self.attempt, load_id)}/{name}"
        env = mark(load_id, context.workdir(self.load_node))
        client = start_client(node, self._load_spec(case, name), folder, env)
        self.attempt.note({"probe": name, "client": asdict(client)})
        load, chosen = self.load(client), self._chosen()
        early = wait_client(
            node,
            client,
            time.monotonic() + case["case_timeout_s"] + MARGIN_S,
            lambda: look_at(context, self.job.variant, self.attempt, load, chosen, self.patience),
            lambda: controller_alive(context.run_dir),
            self.patience,
        )
        files = ProbeFiles(self.attempt.folder, self.attempt.number, name)
        if not node.here:
            limit = context.policy.max_fetch_bytes
            self.patience.insist(node, lambda: node.fetch(folder, files.raw, max_bytes=limit))
        offset_ns = self.collecting.clocks[self.load_node]["offset_ns"]
        record, foreign = own_record(files, load_id, [offset_ns])
        if (record or {}).get("reasons") == [CASE_TIMEOUT] and left_s <= case["case_timeout_s"]:
            return Probe(name, level, record, None, [], cut=True)
        reasons = [early] if early else []
        reasons += self._server_reasons(files, record)
        reasons += [
            reason
            for reason in client_reasons(files, record, foreign)
            if not reason.startswith(NO_SUCCESS)
        ]
        reasons = [f"{name} ({self.case['over']} {level:g}): {reason}" for reason in reasons]
        judgement = None if reasons else judge(files.raw, case)
        return Probe(name, level, record, judgement, reasons)

    def _load_spec(self, case: dict[str, Any], name: str) -> dict[str, Any]:
        context, load_id = self.context, self.collecting.load_id
        server = context.server(self.job.variant)
        endpoints = get_adapter(server).endpoints(self.served.url)
        spec = load_spec(
            case,
            url=self.served.url,
            endpoint=endpoints.completions.removeprefix(self.served.url),
            model=context.plan.campaign.model.model_dump(mode="json"),
            request=dict(server.request),
            seed=f"{context.run}/{self.job.label}/{load_id}/{name}",
            load_id=load_id,
            flush_path=flush_path(endpoints.cache_flush),
        )
        return {**spec, "segments": [{**spec["segments"][0], "name": name}]}

    def _chosen(self) -> dict[str, Any]:
        nodes = list(self.collecting.started)
        return collectors_by_node(self.context, self.job, self.served, nodes)

    def _server_reasons(self, files: ProbeFiles, record: dict[str, Any] | None) -> list[str]:
        clock = self._clock(self.collecting.clocks)
        result = None if record is None else on_head(self.attempt, record, self.load_node, clock)
        variant = self.job.variant
        said = server_reasons(self.context, variant, files, self.served, result, self.patience)
        if not said and self.served.boot_id is not None and error_classes(files.raw).get("oom"):
            return ["the server ran out of memory and was ended"]
        return said

    def _clock(self, ends: dict[str, dict[str, int]]) -> dict[str, dict[str, Any]]:
        telemetry = self.attempt.raw / "telemetry"
        return clock_records(self.collecting.clocks, ends, self.context.plan.head, telemetry)

    def end(
        self, probes: list[Probe], step: Step, seconds: float, disturbed: Disturbed
    ) -> dict[str, Any]:
        """End the collectors and return what the attempt's record says of the search."""
        context, load_id = self.context, self.collecting.load_id
        begun = time.monotonic()
        names = list(self.collecting.started)
        ends = end_collectors(context, self.load(ProcessId(0, 0, "")), self.patience)
        stopped = time.monotonic()
        reasons = [reason for probe in probes for reason in probe.reasons]
        reasons += bring(context, self.attempt, names, load_id, self.patience)
        brought = time.monotonic()
        records = {
            key: record
            for name, collectors in self._chosen().items()
            for key, record in collector_records(
                self.attempt.raw / "telemetry", collectors, name, load_id
            ).items()
        }
        clock = self._clock(ends)
        counts = _counts(probes)
        if not reasons and not counts["ok"]:
            reasons.append(f"{NO_SUCCESS} in any probe")
        reasons += [
            f"required collector {name} failed: {record['error'] or 'no reason given'}"
            for name, record in records.items()
            if record["required"] and record["status"] != "ok"
        ]
        if reasons:
            reasons += full_disks(context, names)
        disturbances = []
        if not reasons and step.ended == "invalid":
            files = ProbeFiles(self.attempt.folder, self.attempt.number, probes[-1].name)
            facts = {
                "segments": self._segments(probes[-1:], clock),
                "clock": clock,
                "collectors": records,
            }
            disturbances = disturbed(files.raw, facts)
        return {
            "status": "failed" if reasons or disturbances else "ok",
            **({"cause": DISTURBED} if disturbances else {}),
            "reasons": reasons or disturbances,
            "segments": self._segments(probes, clock),
            "counts": counts,
            "search": {
                "over": self.case["over"],
                "ended": None if reasons else step.ended,
                "probes": [_noted(probe) for probe in probes],
            },
            "clock": clock,
            "collectors": records,
            **simulated_mark(records),
            "cards": {
                "before": self.collecting.cards,
                "after": look_at_cards(context, self.job.variant, self.served),
            },
            "away_s": dict(self.patience.away_s),
            "overhead": {
                "collectors_start_s": self.collecting.seconds,
                "probes_s": seconds,
                "collectors_stop_s": stopped - begun,
                "fetch_s": brought - stopped,
            },
        }

    def _segments(
        self, probes: list[Probe], clock: dict[str, dict[str, Any]]
    ) -> list[dict[str, Any]]:
        whole = self.case["over"] == "concurrency"
        key = "concurrency" if whole else "rate_rps"
        return [
            {**segment, key: int(probe.level) if whole else probe.level}
            for probe in probes
            if probe.record is not None and probe.judgement is not None
            for segment in on_head(self.attempt, probe.record, self.load_node, clock)["segments"]
        ]


def _counts(probes: list[Probe]) -> dict[str, int]:
    records = [(probe.record or {}).get("counts") or {} for probe in probes]
    return {name: sum(record.get(name) or 0 for record in records) for name in COUNTS}


def _noted(probe: Probe) -> dict[str, Any]:
    found = probe.judgement
    return {
        "name": probe.name,
        "level": probe.level,
        "outcome": "cut" if probe.cut else found.outcome if found else "failed",
        "slo_share": found.share if found else None,
        "reasons": found.reasons if found else probe.reasons,
    }
