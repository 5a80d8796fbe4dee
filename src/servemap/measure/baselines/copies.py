"""Copies between all pairs of cards within each node."""

from typing import Any

from servemap.measure.baselines.perf_commands import COPY_PROGRAMS, copies_argv
from servemap.model.baselines import CopiesBaseline
from servemap.model.errors import ConnectionLostError, NodeError, ParseError, ServemapError
from servemap.nodes.agent_json import agent_json
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.parsers.kinds import parse
from servemap.parsers.values import mapping, sequence
from servemap.server.context import Context

LOOK_S = 30.0
KINDS = {"nvbandwidth": "nvbandwidth", "p2pBandwidthLatencyTest": "p2p-bandwidth"}
"""Kinds of `servemap parse` by the name of the program."""
WAIVED = "the cards of this node cannot reach each other: no copies between them were possible"


def copies_results(context: Context, spec: CopiesBaseline) -> list[dict[str, Any]]:
    """Return what was measured on each node, or why nothing was; nodes are measured side by side.

    Each is {nodes, settings, status, error, away}, and where it was measured `program`, `argv`,
    `matrices` (as of `servemap parse`), `pairs` ({row, column, bandwidth_bytes_per_s} of the first
    matrix with peer access, without its diagonal), `output` and `simulated`.
    """
    found = each(context.plan.all_nodes(), lambda name: _on_node(context, name, spec))
    return list(found.values())


def _on_node(context: Context, name: str, spec: CopiesBaseline) -> dict[str, Any]:
    about = {"nodes": [name], "settings": {}}
    try:
        measured = _measure(context, name, spec)
    except ServemapError as error:
        return {
            **about,
            "status": "failed",
            "error": redact_text(str(error)),
            "away": isinstance(error, ConnectionLostError),
        }
    return {**about, "status": "ok", "error": None, "away": False, **measured}


def _measure(context: Context, name: str, spec: CopiesBaseline) -> dict[str, Any]:
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
    env = {**context.node_spec(name).env, "LC_ALL": "C"}
    done = node.run(argv, timeout_s=spec.timeout_s, env=env)
    if done.code != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-300:] or "no message"
        raise NodeError(
            f"{program} exited with {done.code}: {said}",
            f"node {name}",
            "run it there by hand; nothing else may be on the cards",
        )
    try:
        data = parse(KINDS[program], done.stdout.encode()).data
    except ParseError as error:
        raise NodeError(
            f"{program} printed no matrix: {error.what}", f"node {name}", "run it there by hand"
        ) from error
    matrices = _matrices(data)
    pairs = _pairs(matrices)
    if not pairs:
        raise NodeError(WAIVED, f"node {name}", "see nvidia-smi topo -p2p r")
    return {
        "program": program,
        "argv": argv,
        "matrices": matrices,
        "pairs": pairs,
        "output": redact_text(done.stdout),
        "simulated": found.get("simulated") is True,
    }


def _matrices(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the matrices between cards, of whichever program."""
    tests = [mapping(test) for test in sequence(data.get("tests"))]
    of_tests = [
        {"test": test.get("name"), **mapping(one)}
        for test in tests
        for one in sequence(test.get("matrices"))
    ]
    return of_tests or [mapping(one) for one in sequence(data.get("matrices"))]


def _pairs(matrices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pairs of the first whole matrix that shows the cards' own way."""
    for matrix in matrices:
        rates = matrix.get("bandwidth_bytes_per_s")
        if rates is None or matrix.get("p2p") is False:
            continue
        labels = [str(one) for one in sequence(matrix.get("columns"))]
        return [
            {"row": str(row), "column": column, "bandwidth_bytes_per_s": rate}
            for row, values in zip(sequence(matrix.get("rows")), sequence(rates), strict=False)
            for column, rate in zip(labels, sequence(values), strict=False)
            if str(row) != column and rate is not None
        ]
    return []
