"""The log of NCCL by node, where all ranks write into one stream."""

from collections.abc import Sequence

from servemap.parsers.communication.nccl_line import (
    NcclLine,
    nccl_lines,
    plain_line,
    separated,
    untag,
)
from servemap.parsers.communication.nccl_log import read_log


def logs_by_node(text: str, nodes: Sequence[str]) -> dict[str, str]:
    """Return the messages of each node's ranks, a line each; only nodes that are told apart.

    A process is known by the rank that its log says it is, so that names of hosts need not be those
    of the campaign. Where one name and pid is of ranks on two nodes, neither is told.

    Args:
        text: what all ranks printed.
        nodes: the node of each rank.
    """
    if len(set(nodes)) == 1:
        return {nodes[0]: text} if text else {}
    log = read_log(text, [])
    owners: dict[tuple[str | None, int | None], set[str]] = {}
    for (host, pid, _), process in log.processes.items():
        ranks = {rank for size, rank in process.ranks if size == len(nodes)}
        owners.setdefault((host, pid), set()).update(nodes[rank] for rank in ranks)
    known = {key: found.pop() for key, found in owners.items() if len(found) == 1}
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        plain = plain_line(line)
        messages = [plain[1]] if plain else separated(nccl_lines(untag(line)[1]), log.hosts)
        for message in messages:
            node = known.get((message.host, message.pid))
            if node is not None:
                lines.setdefault(node, []).append(_line(message))
    return {node: "".join(lines[node]) for node in dict.fromkeys(nodes) if node in lines}


def _line(message: NcclLine) -> str:
    """Return a message as NCCL writes it, the thread's number left out."""
    device = "" if message.device is None else f" [{message.device}]"
    place = f" {message.place}" if message.place else ""
    head = f"{message.host}:{message.pid}:{message.pid}{device}{place}"
    return f"{head} NCCL {message.level} {message.message}\n"
