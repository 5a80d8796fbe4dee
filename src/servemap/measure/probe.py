"""Collectors that a campaign requires are tried on every node before a launch and before a case."""

from servemap.measure.collect import chosen_collectors
from servemap.model.errors import ConnectionLostError, NodeError, ParseError
from servemap.nodes.base import Node
from servemap.nodes.parallel import each
from servemap.onnode.sources import MORE_FOLDERS
from servemap.parsers.kinds import parse
from servemap.server.context import Context
from servemap.server.not_run import NotRunError
from servemap.telemetry.collectors import Collector, Probe

FOUND = f'export LC_ALL=C PATH="$PATH:{":".join(MORE_FOLDERS)}"; exec "$@"'
"""A tool is looked for where the collector finds it."""
PROBE_S = 60.0
"""A driver that is loaded by the first question takes many seconds for it."""


def require_collectors(context: Context, variant: str) -> None:
    """Try each required collector's probe on the nodes of a variant.

    Raises:
        NotRunError: a tool or a file is not there or has nothing to say, or a node does not answer.
    """
    wanted = [one for one in chosen_collectors(context.plan.campaign) if one.required and one.probe]
    if not wanted:
        return

    def look(node_id: str) -> list[tuple[Collector, str]]:
        found = []
        for collector in wanted:
            said = why_silent(context.nodes[node_id], collector.probe) if collector.probe else None
            if said is not None:
                found.append((collector, said))
        return found

    for node_id, silent in each(context.plan.nodes_of(variant), look).items():
        if silent:
            raise NotRunError(
                "collector",
                "; ".join(f"required collector {one.name}: {said}" for one, said in silent),
                f"node {node_id}",
                "; ".join(dict.fromkeys(one.probe.remedy for one, _ in silent if one.probe)),
            )


def why_silent(node: Node, probe: Probe) -> str | None:
    """Return why a collector would tell nothing on a node, None where its probe succeeds.

    Raises:
        NotRunError: the node does not answer.
    """
    asked = " ".join(probe.argv)
    try:
        done = node.run(["sh", "-c", FOUND, "sh", *probe.argv], timeout_s=PROBE_S)
    except ConnectionLostError as error:
        raise NotRunError("unreachable", error.what, error.where, error.remedy) from error
    except NodeError as error:
        return f"`{asked}`: {error.what}"
    said = (done.stderr.strip() or done.stdout.strip())[-300:]
    if done.code != 0:
        return f"`{asked}` ended with status {done.code}: {said}"
    if probe.kind is None:
        return None
    try:
        found = parse(probe.kind, done.stdout.encode()).data
    except ParseError as error:
        return f"`{asked}`: {error.what}"
    return None if found.get("status") == "ok" else f"`{asked}`: {found.get('message') or said}"
