"""Ending what loads started on their nodes, also where nobody was told that it was started."""

from contextlib import suppress
from typing import Any

from servemap.measure.record import Attempt
from servemap.model.attempts import read_json
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.model.files import parse_json
from servemap.nodes.base import Node, ProcessId
from servemap.nodes.parallel import each
from servemap.onnode import end_loads
from servemap.parsers.values import mapping, sequence, text
from servemap.server.context import Context
from servemap.server.events import append_event

STOP_S = 5.0
ASK_S = 30.0

Processes = list[dict[str, Any]]


def stop_load(context: Context, attempt: Attempt) -> list[str]:
    """End what an attempt's load started on all nodes at once, as noted or by its mark.

    A node that is away keeps no other from being ended. What may go on there is returned in words;
    it is ended before anything is measured on that node again.
    """
    opening = attempt.opening()
    load_id = text(opening.get("load_id"))
    noted = _noted(context, opening)
    nodes = [str(name) for name in sequence(opening.get("nodes")) if name in context.nodes]

    def end(name: str) -> list[str]:
        node = context.nodes[name]
        left = []
        for what, process in noted.get(name, []):
            reason = _stop(node, process)
            if reason is not None:
                pid = process.pid
                append_event(
                    context.run_dir,
                    "not_ended",
                    node=name,
                    what=what,
                    pid=pid,
                    reason=reason,
                    attempt=str(attempt.folder),
                )
                left.append(f"{what} (pid {pid}) may still run on node {name}")
        if not left and load_id is not None:
            # A start whose answer was lost is noted nowhere.
            try:
                stuck = _end_marked(context, name, "--load", load_id)
            except NodeError as error:
                left.append(f"something of the load may still run on node {name} ({error.what})")
            else:
                left += [
                    f"a process of the load (pid {one.get('pid')}) still runs on node {name}"
                    for one in map(mapping, stuck)
                ]
        return left

    said = each(dict.fromkeys([*noted, *nodes]), end)
    ends = "; what a load started ends by itself within its case's time limit"
    return [one + ends for left in said.values() for one in left]


def end_others(context: Context, name: str, load_id: str) -> None:
    """End what other loads of this run left on a node; nothing is measured beside it.

    Raises:
        NodeError: something does not end, or the node cannot be asked.
    """
    left = _end_marked(context, name, "--but", load_id)
    if left:
        pids = ", ".join(str(process.get("pid")) for process in left)
        raise NodeError(
            f"processes of earlier loads do not end: {pids}",
            f"node {name}",
            "end them by hand, then start the campaign again",
        )


def still_running(context: Context) -> Processes:
    """Return what runs on the nodes for attempts that nobody closed, as {node, what, attempt, pid}.

    A node that gives no answer says nothing.
    """
    found = []
    for path in sorted(context.run_dir.glob("cases/*/*/r*/attempts/*/open.json")):
        label = str(path.parent.relative_to(context.run_dir / "cases"))
        for name, started in _noted(context, read_json(path) or {}).items():
            for what, process in started:
                with suppress(NodeError):
                    if context.nodes[name].alive(process):
                        one = {"node": name, "what": what, "attempt": label, "pid": process.pid}
                        found.append(one)
    return found


def noted_process(value: Any) -> ProcessId | None:
    """Return the process that a record names; None where it names none."""
    try:
        return ProcessId(**value)
    except TypeError:
        return None


def _noted(context: Context, opening: dict[str, Any]) -> dict[str, list[tuple[str, ProcessId]]]:
    """Return the client and the collectors of an opening by node, the client first."""
    client_node = text(opening.get("load_node")) or context.plan.load_node
    values = [(client_node, "the load client", opening.get("client"))]
    values += [(n, "the collectors", one) for n, one in mapping(opening.get("collectors")).items()]
    found: dict[str, list[tuple[str, ProcessId]]] = {}
    for name, what, value in values:
        process = noted_process(value)
        if process is not None and name in context.nodes:
            found.setdefault(name, []).append((what, process))
    return found


def _stop(node: Node, process: ProcessId) -> str | None:
    """End a process; return in words why it may still run."""
    try:
        return None if node.stop(process, STOP_S) else "it does not end"
    except NodeError as error:
        return error.what if isinstance(error, ConnectionLostError) else str(error)


def _end_marked(context: Context, name: str, which: str, load_id: str) -> Processes:
    """End what carries the mark of one load of this run, or of all but one; return what is left.

    Raises:
        NodeError: the node cannot be asked.
    """
    node, workdir = context.nodes[name], context.workdir(name)
    if node.here:
        only, but = (load_id, None) if which == "--load" else (None, load_id)
        said: dict[str, Any] = end_loads.answer(workdir, only, but, end_loads.GRACE_S)
    else:
        argv = node.agent_argv("end-loads", "--workdir", workdir, which, load_id)
        done = node.run(argv, timeout_s=ASK_S)
        try:
            said = mapping(parse_json(done.stdout))
        except ValueError:
            said = {}
        if "left" not in said:
            words = (done.stderr.strip() or done.stdout.strip())[-300:]
            raise NodeError(
                f"the loads on node {name} cannot be ended: {words or 'no answer'}",
                f"node {name}: {' '.join(argv)[:500]}",
                "run that command by hand and see what it says",
            )
    if said.get("met"):
        append_event(context.run_dir, "load_ended", node=name, processes=said["met"])
    return list(map(mapping, sequence(said["left"])))
