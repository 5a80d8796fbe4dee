"""The log of NCCL by node, where all ranks write into one stream."""

from collections.abc import Sequence
from typing import NamedTuple

from servemap.parsers.communication.nccl_line import (
    NcclLine,
    nccl_lines,
    plain_line,
    separated,
    untag,
)
from servemap.parsers.communication.nccl_log import outside_messages, read_log
from servemap.parsers.communication.nccl_paths import tells_link
from servemap.parsers.lines import ended


class NodeLogs(NamedTuple):
    """The messages of each node's ranks, and lines of connections that may be of any node."""

    logs: dict[str, str]
    unplaced: list[str]


def logs_by_node(text: str, nodes: Sequence[str]) -> NodeLogs:
    """Return the messages of each node's ranks, a line each; only nodes that are told apart.

    A process is known by the rank that its log says it is, when it joins all others or connects,
    so that names of hosts need not be those of the campaign. Where one name and pid is of ranks on
    two nodes, neither is told.

    Args:
        text: what all ranks printed.
        nodes: the node of each rank.
    """
    if len(set(nodes)) == 1:
        return NodeLogs({nodes[0]: text} if text else {}, [])
    log = read_log(text, [])
    owners: dict[tuple[str | None, int | None], set[str]] = {}
    for (host, pid, _), process in log.processes.items():
        ranks = {
            rank for size, rank in process.ranks if size in (0, len(nodes)) and rank < len(nodes)
        }
        owners.setdefault((host, pid), set()).update(nodes[rank] for rank in ranks)
    known = {key: found.pop() for key, found in owners.items() if len(found) == 1}
    lines: dict[str, list[str]] = {}
    unplaced = [] if text.endswith("\n") else [text.rpartition("\n")[2]]
    for _, line in ended(text, []):
        plain, rest = plain_line(line), untag(line)[1]
        messages = [plain[1]] if plain else separated(nccl_lines(rest), log.hosts)
        unplaced.append(outside_messages(rest, messages))
        for message in messages:
            node = known.get((message.host, message.pid))
            if node is not None:
                lines.setdefault(node, []).append(_line(message))
            else:
                unplaced.append(message.message)
    return NodeLogs(
        {node: "".join(lines[node]) for node in dict.fromkeys(nodes) if node in lines},
        [line for line in unplaced if tells_link(line)],
    )


def _line(message: NcclLine) -> str:
    """Return a message as NCCL writes it, the thread's number left out."""
    device = "" if message.device is None else f" [{message.device}]"
    place = f" {message.place}" if message.place else ""
    head = f"{message.host}:{message.pid}:{message.pid}{device}{place}"
    return f"{head} NCCL {message.level} {message.message}\n"
