"""Why a part of a collective baseline failed, in words: from what ranks and their starter said."""

import re
from collections.abc import Mapping

from servemap.measure.baselines.tool import Ended, Part
from servemap.parsers.communication.torch_ranks import RankLines

_NO_TORCH = re.compile(r"No module named '?(torch[\w.]*)|has no torch: ")
_PORT = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_NO_FILE = re.compile(r"supervise: cannot start the server: (.{1,300})")
# torchrun's table of failures: exit code and pid of the rank that ended first.
_RANK = re.compile(r"failed \(exitcode: (-?\d{1,6})\) local_rank: (\d{1,4})")
# What a rank or a starter says when another one has gone: it names no cause.
_CONSEQUENCE = re.compile(
    r"[Cc]onnection closed by peer|Connection reset|Broken pipe|timed out|Timed out|[Tt]imeout"
    r"|Connection refused|failed to (?:recv|connect)|DistNetworkError|DistStoreError"
)
_ERROR = re.compile(r"\b\w{0,60}(?:Error|ERROR|Exception)\b.{0,300}")
LONGEST = 300


def why_failed(part: Part, ended: Mapping[str, Ended], lines: RankLines) -> list[str]:
    """Return why the part is no measurement, causes before what followed from them; [] if it is.

    Args:
        part: what was measured.
        ended: how the command of each node ended.
        lines: what the ranks said, of all nodes.
    """
    causes: list[str] = []
    followed: list[str] = []
    nodes = [place.node for place in part.places for _ in range(place.ranks)]
    for place in part.places:
        one = ended.get(place.node)
        if one is None or (one.code == 0 and one.reason is None):
            continue
        said = _cause(part, place.node, place.python, one)
        if said is not None:
            causes.append(said)
    for rank, error in lines.errors.items():
        node = nodes[rank] if rank < len(nodes) else "?"
        text = f"rank {rank} on {node}: {error[:LONGEST]}"
        (followed if _CONSEQUENCE.search(error) else causes).append(text)
    for node, one in ended.items():
        if one.reason is not None:
            followed.append(f"node {node}: {one.reason}")
        elif one.code != 0 and not causes and not followed:
            followed.append(f"node {node}: exit code {one.code}: {_last_error(one.log)}")
    silent = [str(rank) for rank in range(len(nodes)) if rank not in lines.done]
    if not causes and not followed and silent:
        followed.append(f"rank {', '.join(silent)} did not come to its end")
    return list(dict.fromkeys([*causes, *followed]))


def _cause(part: Part, node: str, python: str, one: Ended) -> str | None:
    """Return a cause that the log of a node names; None where it names none."""
    if found := _NO_FILE.search(one.log):
        return (
            f"node {node}: {python} cannot be started: {found[1]}\n"
            f"  where: baselines.{part.spec.id}.python\n"
            "  remedy: name the interpreter on the nodes that has torch"
        )
    if _NO_TORCH.search(one.log):
        return (
            f"node {node}: {python} has no torch\n"
            f"  where: baselines.{part.spec.id}.python\n"
            "  remedy: name the interpreter on the nodes that has torch, or install it there"
        )
    if _PORT.search(one.log):
        return (
            f"node {node}: port {part.port} is in use\n"
            "  where: server.master_port\n"
            "  remedy: end what listens there, or give another port"
        )
    if (found := _RANK.search(one.log)) and int(found[1]) < 0 and one.reason is None:
        return f"node {node}: local rank {found[2]} was ended by signal {-int(found[1])}"
    return None


def _last_error(log: str) -> str:
    found = _ERROR.findall(log)
    lines = log.strip().splitlines()
    return (found[-1] if found else lines[-1] if lines else "no word")[:LONGEST]
