"""Collective baselines: each value of the sweep, on each node or across all of them."""

from itertools import product
from pathlib import Path
from typing import Any

from servemap.measure.baselines.attend import attend, clear, folder_on
from servemap.measure.baselines.perf_tool import PERF
from servemap.measure.baselines.tool import Part, Place, Tool
from servemap.measure.baselines.torch_tool import TORCH
from servemap.model.baselines import CollectiveBaseline
from servemap.model.errors import (
    ConnectionLostError,
    ServemapError,
    UnreachableError,
)
from servemap.model.resolve import plain_env, ranks_on
from servemap.onnode.redact import redact_text, redact_variable
from servemap.server.context import Context
from servemap.server.engine_facts import baseline_python
from servemap.server.launch.node_gates import require_empty
from servemap.server.not_run import NotRunError

TOOLS: dict[str, Tool] = {"torch": TORCH, "nccl-tests": PERF, "rccl-tests": PERF}


def parts_of(context: Context, spec: CollectiveBaseline) -> list[Part]:
    """Return the parts of a baseline in the order in which they are measured."""
    nodes = [place_on(context, spec, node_id) for node_id in context.plan.all_nodes()]
    groups = [(place,) for place in nodes] if spec.nodes == "each" else [tuple(nodes)]
    values = [[(name, str(value)) for value in given] for name, given in spec.sweep.items()]
    server = context.plan.campaign.server
    names = {*plain_env(server), *(n for node in context.plan.campaign.nodes for n in node.env)}
    return [
        Part(spec, group, dict(settings), server.master_port, tuple(sorted(names)))
        for settings in product(*values)
        for group in groups
    ]


def place_on(context: Context, spec: CollectiveBaseline, node_id: str) -> Place:
    """Return where the ranks of a baseline run on a node."""
    node = context.node_spec(node_id)
    return Place(
        node_id,
        node.address,
        ranks_on(spec, node),
        baseline_python(context, spec, node_id, context.paths_from(node_id)),
        folder_on(context, node_id),
    )


def collective_results(
    context: Context, spec: CollectiveBaseline, raw: Path
) -> list[dict[str, Any]]:
    """Measure all parts; return the record of each, `status` failed and `error` why.

    Args:
        context: the campaign.
        spec: the baseline.
        raw: folder here for what the commands print.

    Raises:
        LaunchError: something that is not ours holds a card, or the port at which ranks meet.
        NodeError: a node does not answer.
        NotRunError: the campaign was asked to stop.
    """
    parts = parts_of(context, spec)
    for node_id in context.plan.all_nodes():
        clear(context, node_id)
    meetings = {part.places[0].node: [(part.port, part.places[0].address)] for part in parts}
    require_empty(context, {n: [folder_on(context, n)] for n in context.nodes}, meetings)
    return [_result(context, part, raw, f"{number:02d}") for number, part in enumerate(parts, 1)]


def _result(context: Context, part: Part, raw: Path, number: str) -> dict[str, Any]:
    spec = part.spec
    nodes = [place.node for place in part.places]
    logs = {node: raw / f"{number}-{node}.log" for node in nodes}
    about: dict[str, Any] = {
        "nodes": nodes,
        "world": part.world,
        "tool": spec.tool,
        "launch": spec.launcher,
        "settings": dict(part.settings),
    }
    nothing: dict[str, Any] = {
        "commands": [],
        "backend": None,
        "versions": {},
        "ranks": [],
        "rows": [],
    }
    try:
        tool = TOOLS[spec.tool]
        commands = tool.commands(part)
        env = {node: _environment(context, part, node) for node in nodes}
        bare = spec.python is not None
        container = None if bare else context.plan.campaign.server.container
        ended = attend(context, spec.id, commands, env, spec.timeout_s, logs, container)
        measured = tool.read(part, ended)
    except NotRunError:
        raise
    except ServemapError as error:
        # A node that went away while it was measured may have been taken down by that: it counts.
        lost = isinstance(error, UnreachableError)
        away = isinstance(error, ConnectionLostError) and not lost
        failed = {"status": "failed", "error": redact_text(str(error)), "away": away}
        return {**about, **failed, **nothing, "simulated": False, "files": []}
    return {
        **about,
        "status": "failed" if measured.problems else "ok",
        "error": redact_text("\n".join(measured.problems)) or None,
        "away": False,
        "commands": [
            {
                "node": command.node,
                "argv": command.argv,
                "env": {
                    name: redact_variable(name, value)
                    for name, value in {**command.env, **env[command.node]}.items()
                },
            }
            for command in commands
        ],
        "backend": measured.backend,
        "versions": measured.versions,
        "ranks": measured.ranks,
        "rows": measured.rows,
        "simulated": measured.simulated,
        "files": [f"raw/{path.name}" for path in logs.values() if path.exists()],
        **measured.extra,
    }


def _environment(context: Context, part: Part, node: str) -> dict[str, str]:
    """Return the variables of a node's ranks: the server's own, then the baseline's."""
    return {
        **context.node_spec(node).env,
        **plain_env(context.plan.campaign.server),
        **part.spec.env,
        **part.settings,
    }
