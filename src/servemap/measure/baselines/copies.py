"""Copies between all pairs of cards within each node."""

from pathlib import Path
from typing import Any

from servemap.measure.baselines.attend import attend, clear, folder_on
from servemap.measure.baselines.copy_pairs import NoPairsError, copy_pairs, matrices_of
from servemap.measure.baselines.perf_commands import COPY_PROGRAMS, copies_argv
from servemap.measure.baselines.tool import NodeCommand
from servemap.model.baselines import CopiesBaseline
from servemap.model.errors import (
    ConnectionLostError,
    NodeError,
    ParseError,
    ServemapError,
    UnreachableError,
)
from servemap.nodes.agent_json import agent_json
from servemap.onnode.redact import redact_text
from servemap.parsers.kinds import parse
from servemap.parsers.values import mapping
from servemap.server.context import Context
from servemap.server.launch.node_gates import require_empty
from servemap.server.not_run import NotRunError

LOOK_S = 30.0
KINDS = {"nvbandwidth": "nvbandwidth", "p2pBandwidthLatencyTest": "p2p-bandwidth"}
"""Kinds of `servemap parse` by the name of the program."""
WAIVED = "the cards of this node cannot reach each other: no copies between them were possible"


def copies_results(context: Context, spec: CopiesBaseline, raw: Path) -> list[dict[str, Any]]:
    """Return what was measured on each node, one after the other, or why nothing was.

    Each is {nodes, settings, status, error, away}, and where it was measured `program`, `argv`,
    `matrices` (as of `servemap parse`), `pairs` (see `copy_pairs`), `simulated` and `files`.

    Args:
        context: the campaign.
        spec: the baseline.
        raw: folder here for what the programs print.

    Raises:
        NotRunError: the campaign was asked to stop.
        LaunchError: something that is not ours holds a card.
        NodeError: a node does not answer.
    """
    nodes = context.plan.all_nodes()
    for name in nodes:
        clear(context, name)
    require_empty(context, {name: [folder_on(context, name)] for name in nodes}, {})
    return [_on_node(context, name, spec, raw) for name in nodes]


def _on_node(context: Context, name: str, spec: CopiesBaseline, raw: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"nodes": [name], "settings": {}}
    log = raw / f"{name}.log"
    try:
        measured = _measure(context, name, spec, log)
    except NotRunError:
        raise
    except ServemapError as error:
        # A node that went away while it was measured may have been taken down by that: it counts.
        lost = isinstance(error, UnreachableError)
        return {
            **about,
            "status": "failed",
            "error": redact_text(str(error)),
            "away": isinstance(error, ConnectionLostError) and not lost,
        }
    return {**about, "status": "ok", "error": None, "away": False, **measured}


def _measure(context: Context, name: str, spec: CopiesBaseline, log: Path) -> dict[str, Any]:
    node = context.nodes[name]
    folder = f"{spec.programs.rstrip('/')}/" if spec.programs else ""
    looked_for = [folder + program for program in COPY_PROGRAMS]
    there = mapping(agent_json(node, "programs", *looked_for, timeout_s=LOOK_S))
    program = next((one for one in COPY_PROGRAMS if there.get(folder + one)), None)
    if program is None:
        raise NodeError(
            f"neither {' nor '.join(looked_for)} is there",
            f"node {name}",
            f"build nvbandwidth there, and give its folder as baselines.{spec.id}.programs, or put "
            "it on the PATH",
        )
    found = mapping(there[folder + program])
    argv = copies_argv(program, str(found["path"]))
    env = {name: {**context.node_spec(name).env, "LC_ALL": "C"}}
    command = NodeCommand(name, argv)
    ended = attend(context, spec.id, [command], env, spec.timeout_s, {name: log})[name]
    if ended.code != 0:
        how = ended.reason or f"exited with {ended.code}"
        raise NodeError(
            f"{program} {how}: {ended.log.strip()[-300:] or 'no message'}",
            f"node {name}",
            "run it there by hand; nothing else may be on the cards",
        )
    try:
        data = parse(KINDS[program], ended.log.encode()).data
    except ParseError as error:
        raise NodeError(
            f"{program} printed no matrix: {error.what}", f"node {name}", "run it there by hand"
        ) from error
    if not matrices_of(data):
        raise NodeError(WAIVED, f"node {name}", "see nvidia-smi topo -p2p r")
    try:
        pairs = copy_pairs(data)
    except NoPairsError as error:
        raise NodeError(f"{program}: {error}", f"node {name}", "run it there by hand") from error
    return {
        "program": program,
        "argv": argv,
        "matrices": matrices_of(data),
        "pairs": pairs,
        "simulated": found.get("simulated") is True,
        "files": [f"raw/{log.name}"],
    }
