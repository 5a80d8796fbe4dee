"""A capture by Nsight Systems: reports of all nodes over one window, with their databases."""

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from servemap.engines import nsys
from servemap.engines.nsys import MARK, Launch, Version
from servemap.measure import capture_files as files
from servemap.measure.capture_run import LOAD, load_folder, read_clocks, run_load, server_ended
from servemap.measure.client import Look
from servemap.measure.clocks import Measured, clock_records
from servemap.measure.ending import end_others
from servemap.measure.nsight import session as steps
from servemap.measure.nsight.installed import ASK_S, WORDS, NsysError, check
from servemap.measure.nsight.load import nsys_load
from servemap.measure.nsight.session import RankSession
from servemap.measure.nsight.window import (
    GRAPHS,
    SECONDS,
    each_session,
    nothing_common,
    take_window,
    window_record,
)
from servemap.measure.profiled import profiled_name, start_for_captures
from servemap.measure.reasons import server_down
from servemap.model.attempts import read_json
from servemap.model.canon import digest
from servemap.model.errors import NodeError, ServemapError
from servemap.nodes.parallel import each
from servemap.onnode.load_profile import BEGUN_FILE, ENOUGH_FILE
from servemap.onnode.sources import SIMULATED
from servemap.parsers.values import mapping, sequence
from servemap.server.container.command import container_name, runtime_argv
from servemap.server.context import Context
from servemap.server.launch.commands import placements
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from servemap.server.patience import Patience

FOLDER = "servemap-nsys"
INSIDE = f"/tmp/{FOLDER}"
COPY_S = 600.0


def take_nsys(plain: Context, variant: str, case: str, folder: Path) -> dict[str, Any]:
    """Take a capture by Nsight Systems; return its facts for capture.json.

    Raises:
        NotRunError: the server cannot be started.
        ServemapError: a step failed before anything was collected.
    """
    return _Taking(plain, variant, case, folder).take()


class _Taking:
    """One capture: the campaign with the start for it, and the session of each node."""

    def __init__(self, plain: Context, variant: str, case: str, folder: Path) -> None:
        self.spec = plain.plan.spec_data("capture", variant, case)
        asked = self.spec["capture"]
        self.program = str(asked.get("program", "nsys"))
        self.seconds = float(asked.get("seconds", SECONDS))
        self.variant, self.case, self.folder = variant, case, folder
        self.container = plain.server(variant).container
        self.versions = _versions(plain, variant, self.program)
        inside = [one["tool"] for one in self.versions.values()]
        launch = Launch(
            self.program,
            f"servemap-{plain.run}-{variant}-{digest(str(plain.run_dir.resolve()))[:8]}",
            nsys.traced(inside),
            asked.get("graphs", GRAPHS),
        )
        self.launch = launch
        self.context = start_for_captures(plain, variant, {f"env.{MARK}": launch.mark()})
        self.name = profiled_name(variant)
        self.nodes = self.context.plan.nodes_of(self.name)
        self.patience = Patience(self.context.run_dir, self.context.policy.lost_node_s)

    def take(self) -> dict[str, Any]:
        """Take the capture; whatever happens, nothing goes on collecting."""
        served = ensure_server(self.context, self.name)
        sessions = self._sessions(served.boot_id)
        for name, one in sessions.items():
            one.reach("checked")
            for pid in [] if one.inside else served.pids.get(name, []):
                steps.look_where(one, pid)
        left: list[str] = []
        try:
            found = self._taken(served, sessions)
        finally:
            ends = each(self.nodes, lambda name: steps.abandon(sessions[name]))
            left += [said for said in ends.values() if said]
        reasons = [*found["reasons"], *left]
        return {**found, "status": "failed" if reasons else "ok", "reasons": reasons}

    def _taken(self, served: Served, sessions: dict[str, RankSession]) -> dict[str, Any]:
        problems = each_session(sessions, steps.see_launched)
        if problems:
            first = problems[0]
            ended = server_ended(self.context, self.name, served, self.patience)
            what = "; ".join([*ended, first.what])
            raise NsysError(first.state, what, first.where, first.remedy)
        plan, load_id = self.context.plan, uuid.uuid4().hex
        everywhere = list(dict.fromkeys([plan.head, *self.nodes, plan.load_node]))
        each(everywhere, lambda node: end_others(self.context, node, load_id))
        before = read_clocks(self.context, everywhere, self.patience)
        early = self._load(served, load_id, sessions, before)
        after = read_clocks(self.context, everywhere, self.patience)
        if all("stopped" in one.reached for one in sessions.values()):
            problems = each_session(sessions, _finish)
        each(self.nodes, lambda name: self._bring(name, sessions[name]))
        node, limit = self.context.nodes[plan.load_node], self.context.policy.max_fetch_bytes
        there, local = load_folder(self.context, self.folder, load_id), self.folder / LOAD
        if not node.here:
            self.patience.insist(node, lambda: files.bring(node, there, local, limit))
            self.patience.insist(node, lambda: files.remove(node, [there]))
        client = read_json(local / "client.json") or {}
        reasons = [early, *server_ended(self.context, self.name, served, self.patience)]
        reasons += [] if client else ["the load client left no record"]
        reasons += [mapping(client.get("profile")).get("problem")]
        reasons += sequence(client.get("reasons"))
        reasons += [
            f"node {name}: {one.problem['what']}" for name, one in sessions.items() if one.problem
        ]
        if not early and any("stopped" not in one.reached for one in sessions.values()):
            reasons.append("not all nodes collected")
        window = window_record(sessions, before, plan.head)
        reasons.append(nothing_common(window))
        return {
            "reasons": list(dict.fromkeys(str(reason) for reason in reasons if reason)),
            "seconds_asked": self.seconds,
            "ranks": len(self.nodes),
            "window": window,
            "nsys": {name: {**self._tool(name), **steps.record(sessions[name])}
                     for name in self.nodes},
            "traced": list(self.launch.traces),
            "graphs": self.launch.graphs,
            "server": {"variant": self.name, **served.record()},
            "load": {
                "id": load_id,
                "counts": client.get("counts"),
                "warmup": client.get("warmup"),
                "collectors": [],
            },
            "clock": clock_records(before, after, plan.head, local),
            "away_s": dict(self.patience.away_s),
            "files": files.kept_files(self.folder),
            **({"simulated": True} if self._simulated() else {}),
        }  # fmt: skip

    def _tool(self, node_id: str) -> dict[str, Any]:
        """Return the versions on a node, in its container and outside, for the record."""
        known = self.versions[node_id]
        outside = known["outside"]
        return {
            "version": known["tool"].text,
            "version_outside": outside.text if outside else None,
        }

    def _simulated(self) -> bool:
        """Whether the tool is one of our stand-ins, so that the capture says so."""

        def look(node_id: str) -> bool:
            node = self.context.nodes[node_id]
            which = ["sh", "-c", 'head -c 4096 "$(command -v -- "$0")"', self.program]
            return SIMULATED.decode() in node.run(which, timeout_s=ASK_S).stdout

        return self.container is None and any(each(self.nodes, look).values())

    def _sessions(self, boot_id: str | None) -> dict[str, RankSession]:
        """Return the session of each node; those of a container need the start's id."""
        found = {}
        for place in placements(self.context, self.name, self.context.server(self.name)):
            inside: list[str] = []
            folder = f"{self.context.workdir(place.node)}/{FOLDER}"
            if self.container is not None:
                become = self.context.node_spec(place.node).become
                call = runtime_argv(self.container, become=become)
                inside = [*call, "exec", container_name(self.name, str(boot_id))]
                folder = INSIDE
            found[place.node] = RankSession(
                self.context.nodes[place.node],
                place.rank,
                self.program,
                nsys.session_of(self.launch.session, place.rank),
                folder,
                inside,
            )
        return found

    def _load(
        self,
        served: Served,
        load_id: str,
        sessions: dict[str, RankSession],
        clocks: dict[str, Measured],
    ) -> str | None:
        """Run the load, and the window in it; return why it was ended early, or None."""
        context, plan = self.context, self.context.plan
        node, folder = context.nodes[plan.load_node], load_folder(context, self.folder, load_id)
        spec = nsys_load(
            context, self.spec["case"], self.name, self.case, served, load_id, self.seconds
        )
        taken: list[bool] = []

        def look() -> Look:
            if server_down(context, self.name, served, self.patience) is not None:
                return Look(server_died=True)
            begun = f"{folder}/{BEGUN_FILE}"
            if not taken and self.patience.ask(node, lambda: bool(node.read_text(begun))):
                taken.append(True)
                with suppress(NsysError):  # it is noted at its session
                    take_window(sessions, clocks, self.seconds)
                node.write_text(f"{folder}/{ENOUGH_FILE}", "whole\n")
            return Look()

        timeout_s = self.spec["case"]["case_timeout_s"]
        return run_load(context, spec, folder, timeout_s, look, self.patience)

    def _bring(self, node_id: str, one: RankSession) -> None:
        """Bring a node's report and database here, and leave nothing there."""
        node, folder = one.node, f"{self.context.workdir(node_id)}/{FOLDER}"
        local, limit = self.folder / node_id, self.context.policy.max_fetch_bytes
        if one.inside and "collected" in one.reached:
            copy = [*one.inside[:-2], "cp", f"{one.inside[-1]}:{INSIDE}/.", folder]
            node.run(["mkdir", "-p", folder], timeout_s=ASK_S)
            done = node.run(copy, timeout_s=COPY_S)
            if done.code:
                words = done.stderr.strip()[-WORDS:]
                one.problem = one.problem or {
                    "state": "collected",
                    "what": f"the report does not come out of the container: {words}",
                }
            one.run(["rm", "-rf", INSIDE])
        if self.patience.insist(node, lambda: files.listed(node, folder)):
            self.patience.insist(node, lambda: files.bring(node, folder, local, limit))
        self.patience.insist(node, lambda: files.remove(node, [folder]))


def _finish(one: RankSession) -> None:
    steps.collect(one)
    steps.export(one)


def _versions(context: Context, variant: str, program: str) -> dict[str, dict[str, Any]]:
    """Return by node the `tool` that will launch the server, and the one `outside` its container.

    Raises:
        NsysError: the tool is missing or too old on a node.
    """
    container = context.server(variant).container

    def look(node_id: str) -> dict[str, Any]:
        node = context.nodes[node_id]
        if container is None:
            return {"tool": check(node, [program], f"node {node_id}"), "outside": None}
        call = runtime_argv(container, become=context.node_spec(node_id).become)
        call += ["run", "--rm", "--pull=never", "--network=none", f"--entrypoint={program}"]
        tool = check(node, [*call, container.image], f"node {node_id}, image {container.image}")
        outside: Version | None = None
        with suppress(ServemapError):
            outside = check(node, [program], f"node {node_id}")
        return {"tool": tool, "outside": outside}

    try:
        return each(context.plan.nodes_of(variant), look)
    except NodeError as error:
        raise NsysError("checked", error.what, error.where, error.remedy) from error
