"""Taking one capture: the start for it, the load, the profile in it, the traces of all nodes."""

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from servemap.engines.profiling import PROFILERS, Asked, folder_of
from servemap.engines.registry import get_adapter
from servemap.measure import capture_files as files
from servemap.measure import capture_said as said
from servemap.measure.capture_load import capture_spec
from servemap.measure.capture_run import LOAD, load_folder, read_clocks, run_load, server_ended
from servemap.measure.client import Look
from servemap.measure.clocks import clock_records
from servemap.measure.ending import end_others
from servemap.measure.profiled import profiled_context, profiled_name
from servemap.measure.reasons import full_disks, server_down
from servemap.model.attempts import read_json
from servemap.model.errors import NodeError
from servemap.model.replay import replayed
from servemap.model.server_spec import ServerSpec
from servemap.nodes.parallel import each
from servemap.onnode.load_profile import ENOUGH_FILE
from servemap.parsers.values import mapping
from servemap.server.context import Context
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.profiles import trace_folder
from servemap.server.launch.served import Served
from servemap.server.patience import Patience
from servemap.telemetry.clock import load_times

SETTLE_S = 120.0
"""How long traces are waited for after the load: those of many steps take a while to write."""

PAUSE_S = 1.0


def take_capture(context: Context, variant: str, case: str, folder: Path) -> dict[str, Any]:
    """Return the facts of a capture that was taken, well or not; nothing of it stays on the nodes.

    Args:
        context: the campaign.
        variant: whose server is started for it.
        case: whose load it is.
        folder: where its files go, a folder a node.

    Raises:
        NotRunError: its server did not start.
        ServemapError: a node could not do its part.
    """
    capture = _Capture(context, variant, case, folder)
    try:
        return capture.take(ensure_server(capture.context, capture.name))
    finally:
        each(capture.nodes, capture.clear_now)


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
    def asked(self) -> Asked:
        wanted = self.spec["capture"]
        folder = folder_of(self.plain.server(self.variant))
        return Asked(int(wanted["num_steps"]), folder, uuid.uuid4().hex, wanted.get("stage"))

    @cached_property
    def ranks(self) -> list[int] | None:
        """The ranks whose traces are kept; None for all."""
        kept: list[int] | None = self.spec["capture"].get("ranks")
        return kept

    @cached_property
    def context(self) -> Context:
        return profiled_context(self.plain, self.variant, self.asked.steps)

    @cached_property
    def name(self) -> str:
        return profiled_name(self.variant)

    @cached_property
    def server(self) -> ServerSpec:
        return self.context.server(self.name)

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
    def all_ranks(self) -> int:
        """How many traces there are."""
        return PROFILERS[self.server.engine].ranks(self.server)

    @cached_property
    def wanted(self) -> int:
        """How many of them there must be."""
        return len(self.ranks or range(self.all_ranks))

    def take(self, served: Served) -> dict[str, Any]:
        load_id = self.asked.name
        each(self.all_nodes, lambda node: end_others(self.context, node, load_id))
        each(self.nodes, self._clear)
        before = read_clocks(self.context, self.all_nodes, self.patience)
        early = self._load(served, load_id)
        after = read_clocks(self.context, self.all_nodes, self.patience)
        found = self._settled()
        trouble = server_ended(self.context, self.name, served, self.patience)
        trouble += self._bring(found)
        load_node = self.context.plan.load_node
        self._bring_load(load_node, load_folder(self.context, self.folder, load_id))
        clock = clock_records(before, after, self.context.plan.head, self.folder / LOAD)
        client = read_json(self.folder / LOAD / "client.json") or {}
        reasons = [
            *([early] if early else []),
            *trouble,
            *said.reasons(client, len(found), self.wanted, self.all_ranks, self.server.engine),
        ]
        if reasons:
            reasons += full_disks(self.context, self.nodes, self._above_traces)
        to_head = load_times(self.folder / LOAD, client, load_node, clock)
        return {
            "status": "failed" if reasons else "ok",
            "cause": said.cause(client) if reasons else None,
            "reasons": reasons,
            "steps_asked": self.asked.steps,
            "ranks": self.wanted,
            "window": said.window(client, to_head, mapping(clock.get(load_node)).get("error_ns")),
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
        return trace_folder(self.context, self.server, node_id)

    def _above_traces(self, node_id: str) -> str:
        return str(Path(self._traces_on(node_id)).parent)

    def _clear(self, node_id: str) -> None:
        node, folder = self.context.nodes[node_id], self._traces_on(node_id)
        clear = files.clear if self.server.container is None else files.empty
        self.patience.insist(node, lambda: clear(node, folder))

    def clear_now(self, node_id: str) -> None:
        """Remove the traces from a node that can be reached; the next capture does it otherwise."""
        clear = files.clear if self.server.container is None else files.empty
        with suppress(NodeError):
            clear(self.context.nodes[node_id], self._traces_on(node_id))

    def _load(self, served: Served, load_id: str) -> str | None:
        """Run the load; return why it was ended early, None where it ended by itself."""
        context, plan = self.context, self.context.plan
        folder = load_folder(context, self.folder, load_id)
        server, case = self.server, self.spec["case"]
        spec = capture_spec(
            case,
            endpoints=get_adapter(server).endpoints(served.url),
            url=served.url,
            model=plan.campaign.model.model_dump(mode="json"),
            request=dict(server.request),
            load_id=load_id,
            seed=f"{context.run}/capture/{self.variant}/{self.case}/{load_id}",
            profiler=PROFILERS[server.engine],
            asked=self.asked,
            replay=replayed(plan.campaign, self.case),
        )
        look = self._looker(served, f"{folder}/{ENOUGH_FILE}")
        return run_load(context, spec, folder, case["case_timeout_s"], look, self.patience)

    def _looker(self, served: Served, enough: str) -> Callable[[], Look]:
        """Return what watches the server, and tells the client once the traces are whole."""
        node = self.context.nodes[self.context.plan.load_node]
        last: list[files.Sizes] = [{}]

        def look() -> Look:
            if server_down(self.context, self.name, served, self.patience) is not None:
                return Look(server_died=True)
            now = self._sizes()
            if now == last[0] and len(self._chosen(now)) >= self.wanted:
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

    def _chosen(self, sizes: files.Sizes) -> list[str]:
        profiler = PROFILERS[self.server.engine]
        return files.chosen(sizes, profiler, self.server, self.asked, self.ranks)

    def _settled(self) -> list[str]:
        """Wait until the files do not grow any more; return the traces, as `NODE:PATH`."""
        deadline = time.monotonic() + SETTLE_S
        sizes, still = self._sizes(), 0
        while time.monotonic() < deadline:
            time.sleep(PAUSE_S)
            now = self._sizes()
            still = still + 1 if now == sizes else 0
            sizes = now
            # What is not there by then will not come: a stop answers when all is written.
            if still >= (2 if len(self._chosen(now)) >= self.wanted else 5):
                break
        return self._chosen(sizes)

    def _bring(self, found: list[str]) -> list[str]:
        """Bring the traces that were found; return in words what is wrong with them."""
        wrong = each(self.nodes, lambda node_id: self._bring_from(node_id, found))
        return [text for texts in wrong.values() for text in texts]

    def _bring_from(self, node_id: str, found: list[str]) -> list[str]:
        node, folder = self.context.nodes[node_id], self._traces_on(node_id)
        limit = self.context.policy.max_fetch_bytes
        sizes = self.patience.insist(node, lambda: files.listed(node, folder))
        others = [path for path in files.traces(sizes) if f"{node_id}:{path}" not in found]
        self.patience.insist(node, lambda: files.remove(node, others))
        kept = {path: size for path, size in sizes.items() if path not in others}
        too_big = said.too_big(node_id, kept, limit)
        if too_big is not None or not kept:
            return [too_big] if too_big else []
        local = self.folder / node_id
        self.patience.insist(node, lambda: files.bring(node, folder, local, limit))
        here = {path: local / Path(path).relative_to(folder) for path in files.traces(kept)}
        return [
            f"the trace {one.name} of node {node_id} is cut: its writer was ended, or had no room"
            for one in here.values()
            if not files.whole(one)
        ]

    def _bring_load(self, node_id: str, folder: str) -> None:
        node, local = self.context.nodes[node_id], self.folder / LOAD
        if node.here and Path(folder) == local.resolve():
            return
        limit = self.context.policy.max_fetch_bytes
        self.patience.insist(node, lambda: files.bring(node, folder, local, limit))
        self.patience.insist(node, lambda: files.clear(node, folder))
