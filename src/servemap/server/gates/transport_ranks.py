"""Whether the logs of a server's nodes show all of its ranks, each of them once."""

from collections.abc import Iterator, Mapping, Set
from itertools import islice

from servemap.parsers.communication.nccl_state import Log, Process

_SHOWN = 8


def ranks_connected(logs: Mapping[str, Log]) -> int:
    """Return how many ranks the logs show connected; a rank that two logs show counts once.

    One is connected that logs a connection, or to which another sends without a network: of P2P
    and SHM only the sender writes a line (`src/transport/{p2p,shm}.cc`).
    """
    found = set()
    for log in logs.values():
        received = {link.target for link in log.links if link.device is None}
        for key, process in log.processes.items():
            if _is_connected(process, received):
                ranks = frozenset(process.ranks)
                found.add((key, process.bus_id, ranks, frozenset(process.members)))
    return len(found)


def _is_connected(process: Process, received: set[int | None]) -> bool:
    return any(size == 0 or rank in received for size, rank in process.ranks)


def missing_ranks(logs: Mapping[str, Log]) -> Iterator[str]:
    """Yield in words what the logs lack of the ranks of the largest communicators.

    Each rank of a communicator is in one process, which says so when it joins it.
    """
    members = [(node, process) for node, log in logs.items() for process in log.processes.values()]
    largest = max((size for _, one in members for _, size, _ in one.members), default=0)
    places: dict[str | None, dict[int, list[str]]] = {}
    for node, process in members:
        for identity, size, rank in process.members:
            if size == largest:
                places.setdefault(identity, {}).setdefault(rank, []).append(node)
    # A process whose joining was not read still logs which rank it connects.
    joined = {rank for _, process in members if not process.members for _, rank in process.ranks}
    for identity, ranks in sorted(places.items(), key=str):
        name = f"communicator {identity}" if identity else f"communicators of {largest}"
        known = ranks.keys() | {rank for rank in joined if rank < largest}
        if len(known) < largest:
            lacking = _few(known, largest)
            yield f"no log says that rank {lacking} of the {largest} joined {name}"
        # Without ids, communicators of one size cannot be told apart.
        if identity is not None:
            for rank, nodes in sorted(ranks.items()):
                if len(nodes) > 1:
                    yield f"rank {rank} of {name} is in the logs of {' and '.join(nodes)}"


def _few(known: Set[int], size: int) -> str:
    """Return the first of the ranks that are not known, and how many more there are."""
    first = islice((rank for rank in range(size) if rank not in known), _SHOWN)
    more = size - len(known) - _SHOWN
    return ", ".join([*map(str, first), *([f"{more} more"] if more > 0 else [])])
