"""A profile of a few engine steps, bound to one case and never mixed with measured results."""

import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from servemap.engines.profiling import PROFILERS
from servemap.engines.registry import get_adapter
from servemap.measure import capture_files as files
from servemap.measure.capture_load import capture_spec
from servemap.measure.client import END_S, MARGIN_S, Look, start_client, wait_client
from servemap.measure.clocks import Measured, clock_records, read_clock
from servemap.measure.ending import end_others
from servemap.measure.nsight.capture import take_nsys
from servemap.measure.profiled import profiled_context, profiled_name, why_unavailable
from servemap.measure.reasons import server_down, server_down_for_sure
from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError, ServemapError
from servemap.model.protocol import SCHEMA
from servemap.model.replay import replayed
from servemap.nodes.base import ProcessId
from servemap.nodes.parallel import each
from servemap.onnode.end_loads import mark
from servemap.onnode.load_profile import ENOUGH_FILE
from servemap.onnode.redact import redact_text
from servemap.parsers.values import integer, mapping, sequence
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from servemap.server.locks import controller_alive, server_lock
from servemap.server.not_run import NotRunError
from servemap.server.patience import Patience
from servemap.telemetry.clock import load_times

SETTLE_S = 120.0
"""How long traces are waited for after the load: those of many steps take a while to write."""

PAUSE_S = 1.0
LOAD = "load"
"""The folder of the load's own files in that of the capture."""


def run_capture(context: Context, variant: str, case: str, output: Path) -> dict[str, Any]:
    """Take a capture and write its record, also when it failed or cannot be taken; return it.

    The traces of every rank lie beside the record, in a folder a node.
    """
    key = ("capture", variant, case)
    spec = context.plan.spec_data(*key)
    begun_ns = time.time_ns()
    facts = _unavailable(context, variant, spec)
    if facts is None:
        with server_lock(context.run_dir, f"capture {variant}/{case}"):
            append_event(context.run_dir, "capture_start", variant=variant, case=case)
            facts = _recorded(context, variant, case, output.parent)
    record = {
        "schema": SCHEMA,
        "run": context.run,
        "variant": variant,
        "case": case,
        "kind": spec["capture"]["kind"],
        "profiled": True,
        "spec": spec,
        "spec_sha256": context.plan.spec_sha256(*key),
        **facts,
        "reasons": [redact_text(reason) for reason in facts["reasons"]],
        "started_ns": begun_ns,
        "ended_ns": time.time_ns(),
    }
    write_json_atomic(output, record)
    append_event(
        context.run_dir,
        "capture_end",
        variant=variant,
        case=case,
        status=record["status"],
        reasons=record["reasons"],
    )
    return record


def _unavailable(context: Context, variant: str, spec: dict[str, Any]) -> dict[str, Any] | None:
    try:
        reason = why_unavailable(context, variant, spec["capture"]["kind"])
    except ConfigError as error:
        reason = error.what
    if reason is None and spec["case"]["kind"] == "search":
        reason = "a search has no load of its own; name a case at the load that it found"
    return None if reason is None else {"status": "not_available", "reasons": [reason]}


def _recorded(context: Context, variant: str, case: str, folder: Path) -> dict[str, Any]:
    for old in folder.glob("*/"):
        shutil.rmtree(old)
    try:
        if context.plan.spec_data("capture", variant, case)["capture"]["kind"] == "nsys":
            return take_nsys(context, variant, case, folder)
        return _Capture(context, variant, case, folder).take()
    except NotRunError as error:
        return {"status": "not_run", "cause": error.cause, "reasons": [str(error)]}
    except ServemapError as error:
        return {
            "status": "failed",
            "reasons": [str(error)],
            "files": files.kept_files(folder),
        }


@dataclass(frozen=True)
class _Capture:
    """One capture: the campaign with the start for it, and where its files go here."""

    plain: Context
    variant: str
    case: str
    folder: Path

    @cached_property
    def spec(self) -> dict[str, Any]:
        return self.plain.plan.spec_data("capture", self.variant, self.case)

    @cached_property
    def steps(self) -> int:
        return int(self.spec["capture"]["num_steps"])

    @cached_property
    def context(self) -> Context:
        return profiled_context(self.plain, self.variant, self.steps)

    @cached_property
    def name(self) -> str:
        return profiled_name(self.variant)

    @cached_property
    def nodes(self) -> list[str]:
        return self.context.plan.nodes_of(self.name)

    @cached_property
    def patience(self) -> Patience:
        return Patience(self.context.run_dir, self.context.policy.lost_node_s)

    @cached_property
    def all_nodes(self) -> list[str]:
        plan = self.context.plan
        return list(dict.fromkeys([plan.head, *self.nodes, plan.load_node]))

    @cached_property
    def ranks(self) -> int:
        """How many processes write a trace."""
        sizes = self.context.server(self.name).topology
        # SGLang's sizes are of one group of processes, which data parallelism divides.
        copies = sizes.dp if self.context.server(self.name).engine == "vllm" else 1
        return sizes.tp * sizes.pp * copies

    def take(self) -> dict[str, Any]:
        served = ensure_server(self.context, self.name)
        load_id = uuid.uuid4().hex
        each(self.all_nodes, lambda node: end_others(self.context, node, load_id))
        each(self.nodes, self._clear)
        before = self._clocks()
        early = self._load(served, load_id)
        after = self._clocks()
        came = self._settled()
        limit = self.context.policy.max_fetch_bytes
        each(self.nodes, lambda node: self._bring(node, self._traces_on(node), node, limit))
        self._bring(self.context.plan.load_node, self._load_on(load_id), LOAD, limit)
        each(self.nodes, self._clear)
        clock = clock_records(before, after, self.context.plan.head, self.folder / LOAD)
        client = read_json(self.folder / LOAD / "client.json") or {}
        down = server_down_for_sure(self.context, self.name, served, self.patience)
        reasons = self._reasons(early, down, client, came)
        return {
            "status": "failed" if reasons else "ok",
            "reasons": reasons,
            "steps_asked": self.steps,
            "ranks": self.ranks,
            "window": self._window(client, clock),
            "server": {"variant": self.name, **served.record()},
            "load": {
                "id": load_id,
                "counts": client.get("counts"),
                "warmup": client.get("warmup"),
                "collectors": [],
            },
            "clock": clock,
            "away_s": dict(self.patience.away_s),
            "files": files.kept_files(self.folder),
        }

    def _traces_on(self, node_id: str) -> str:
        return files.trace_folder(self.context, self.context.server(self.name), node_id)

    def _load_on(self, load_id: str) -> str:
        node = self.context.plan.load_node
        own = self.folder / (LOAD if self.context.nodes[node].here else f"{LOAD}-{load_id}")
        return self.context.on_node(node, own)

    def _clear(self, node_id: str) -> None:
        node = self.context.nodes[node_id]
        self.patience.insist(node, lambda: files.remove(node, self._traces_on(node_id)))

    def _clocks(self) -> dict[str, Measured]:
        def read(name: str) -> Measured:
            node = self.context.nodes[name]
            return self.patience.insist(node, lambda: read_clock(node))

        return each(self.all_nodes, read)

    def _load(self, served: Served, load_id: str) -> str | None:
        """Run the load; return why it was ended early, None where it ended by itself."""
        context, plan = self.context, self.context.plan
        node, folder = context.nodes[plan.load_node], self._load_on(load_id)
        server, case = context.server(self.name), self.spec["case"]
        spec = capture_spec(
            case,
            endpoints=get_adapter(server).endpoints(served.url),
            url=served.url,
            model=plan.campaign.model.model_dump(mode="json"),
            request=dict(server.request),
            load_id=load_id,
            seed=f"{context.run}/capture/{self.variant}/{self.case}/{load_id}",
            profiler=PROFILERS[server.engine],
            steps=self.steps,
            replay=replayed(plan.campaign, self.case),
        )
        client = start_client(node, spec, folder, mark(load_id, context.workdir(node.name)))
        deadline = time.monotonic() + case["case_timeout_s"] + MARGIN_S
        try:
            return wait_client(
                node,
                client,
                deadline,
                self._looker(served, f"{folder}/{ENOUGH_FILE}"),
                lambda: controller_alive(context.run_dir),
                self.patience,
            )
        finally:
            self._end(client)

    def _end(self, client: ProcessId) -> None:
        node = self.context.nodes[self.context.plan.load_node]
        if node.alive(client):
            node.stop(client, END_S)

    def _looker(self, served: Served, enough: str) -> Callable[[], Look]:
        """Return what watches the server, and tells the client once the traces are whole."""
        node = self.context.nodes[self.context.plan.load_node]
        last: list[files.Sizes] = [{}]

        def look() -> Look:
            if server_down(self.context, self.name, served, self.patience) is not None:
                return Look(server_died=True)
            now = self._sizes()
            if now == last[0] and len(files.traces(now)) >= self.ranks:
                self.patience.ask(node, lambda: node.write_text(enough, "whole\n"))
            last[0] = now
            return Look()

        return look

    def _sizes(self) -> files.Sizes:
        """Return the files on all nodes; those of one that is away for the moment are left out."""

        def look(name: str) -> files.Sizes:
            node = self.context.nodes[name]
            found = self.patience.ask(node, lambda: files.listed(node, self._traces_on(name)))
            return {f"{name}:{path}": size for path, size in (found or {}).items()}

        return {path: size for one in each(self.nodes, look).values() for path, size in one.items()}

    def _settled(self) -> int:
        """Wait until the traces do not grow any more; return how many there are."""
        deadline = time.monotonic() + SETTLE_S
        sizes, still = self._sizes(), 0
        while time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            now = self._sizes()
            still = still + 1 if now == sizes else 0
            sizes = now
            # What is not there by then will not come: a stop answers when all is written.
            if still >= (2 if len(files.traces(now)) >= self.ranks else 5):
                break
        return len(files.traces(sizes))

    def _bring(self, node_id: str, folder: str, name: str, limit: int) -> None:
        node, local = self.context.nodes[node_id], self.folder / name
        if node.here and Path(folder) == local.resolve():
            return
        if name == LOAD or self.patience.insist(node, lambda: files.listed(node, folder)):
            self.patience.insist(node, lambda: files.bring(node, folder, local, limit))
        if name == LOAD:
            self.patience.insist(node, lambda: files.remove(node, folder))

    def _reasons(
        self, early: str | None, down: str | None, client: dict[str, Any], came: int
    ) -> list[str]:
        profile = mapping(client.get("profile"))
        found = [early, f"{down} during the capture" if down else None, profile.get("problem")]
        if not client:
            found.append("the load client left no record")
        found += sequence(client.get("reasons"))
        if came < self.ranks and not profile.get("problem"):
            found.append(f"{came} of {self.ranks} ranks left a trace")
            found.append(profile.get("stop_error"))
        return [str(reason) for reason in found if reason]

    def _window(self, client: dict[str, Any], clock: dict[str, Any]) -> dict[str, Any] | None:
        """Return when the profiler was asked to start and was seen to have ended, head's clock.

        `ended_by`: `steps` where the asked steps ran, `stop` where the load ended before them.
        """
        profile = mapping(client.get("profile"))
        if not profile:
            return None
        load_node = self.context.plan.load_node
        to_head = load_times(self.folder / LOAD, client, load_node, clock)

        def moved(key: str) -> int | None:
            t_ns = integer(profile.get(key))
            return None if t_ns is None else to_head(t_ns)

        whole, stopped = moved("whole_ns"), moved("stopped_ns")
        return {
            "segment": profile.get("segment"),
            "start_ns": moved("start_ns"),
            "started_ns": moved("started_ns"),
            "end_ns": whole if whole is not None else stopped,
            "ended_by": "steps" if whole is not None else "stop",
            "source": "client",
            "error_ns": mapping(clock.get(load_node)).get("error_ns"),
        }
