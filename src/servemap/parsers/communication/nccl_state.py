"""What is known of a log of NCCL while it is read."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from servemap.parsers.communication.nccl_paths import Link

T = TypeVar("T")
# Values in the order in which they came, each once.
Seen = dict[T, None]
Names = dict[tuple[str, int], set[str]]
"""Names of network devices, by network and index."""
Owner = tuple[str | None, int | None]
"""Host and pid of a process; each numbers the network devices that it may use by itself."""


class Algorithm(NamedTuple):
    """What NCCL chose for a collective of one size; `channels` is null in older logs."""

    collective: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    channels: int | None


@dataclass
class Process:
    """A process with one of its cards.

    `ranks` are (size of a communicator, rank in it), the size 0 where a connection says the rank;
    `members` are (id of a communicator, its size, rank in it), the id None in old logs;
    `network_devices` are (network, index).
    """

    bus_id: str | None = None
    ranks: set[tuple[int, int]] = field(default_factory=set)
    members: set[tuple[str | None, int, int]] = field(default_factory=set)
    network_devices: set[tuple[str, int]] = field(default_factory=set)


@dataclass
class Log:
    """Everything gathered so far."""

    messages: int = 0
    library: str | None = None
    versions: Seen[str] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    labels: Seen[str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Lines that tell of a connection and cannot be read."""
    rank_hosts: dict[int, set[str]] = field(default_factory=dict)
    ranks: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    processes: dict[tuple[str, int | None, int | None], "Process"] = field(default_factory=dict)
    communicators: dict[tuple[str | None, int], dict[str, Any]] = field(default_factory=dict)
    pointers: dict[tuple[int | None, str], tuple[str | None, int]] = field(default_factory=dict)
    networks_used: Seen[str] = field(default_factory=dict)
    networks_seen: Seen[str] = field(default_factory=dict)
    devices: dict[tuple[str, int, str], dict[str, Any]] = field(default_factory=dict)
    named: dict[Owner, Names] = field(default_factory=dict)
    virtual: dict[Owner, Names] = field(default_factory=dict)
    out_of_band: Seen[tuple[str, str]] = field(default_factory=dict)
    gpu_direct: dict[str, bool] = field(default_factory=dict)
    plugins: Seen[str] = field(default_factory=dict)
    channels: Seen[tuple[int | None, ...]] = field(default_factory=dict)
    ring_flags: Seen[tuple[int, int]] = field(default_factory=dict)
    ring_orders: dict[str, list[int]] = field(default_factory=dict)
    rings: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    trees: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    algorithms: dict[Algorithm, int] = field(default_factory=dict)
    environment: dict[str, Seen[str]] = field(default_factory=dict)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    error_codes: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def rank(self, rank: int, host: str) -> dict[str, Any]:
        """Return the entry of a rank on a host."""
        self.rank_hosts.setdefault(rank, set()).add(host)
        fresh = {"rank": rank, "host": host, "pid": None, "device": None, "bus_id": None}
        return self.ranks.setdefault((rank, host), {**fresh, "net_devices": set()})

    def process(self, host: str, pid: int | None, device: int | None) -> Process:
        """Return the entry of a process and the index of its card."""
        return self.processes.setdefault((host, pid, device), Process())

    def communicator(self, key: tuple[str | None, int]) -> dict[str, Any]:
        """Return the entry of a communicator, by its id (None in old logs) and its size."""
        fresh = {"id": key[0], "ranks": key[1], "nodes": None, "completed": 0}
        return self.communicators.setdefault(key, fresh)

    def known_hosts(self) -> dict[int, set[str]]:
        """Return the hosts of each rank, without names that more than one node has.

        Where one card of a name has several ranks, several nodes are called so (containers, names
        that were made unreadable), and the name says nothing.
        """
        cards: dict[tuple[str, Any], int] = {}
        shared: set[str] = set()
        for row in self.ranks.values():
            card = (row["host"], row["bus_id"] or row["device"])
            if cards.setdefault(card, row["rank"]) != row["rank"]:
                shared.add(row["host"])
        return {rank: names - shared for rank, names in self.rank_hosts.items()}

    def device_name(self, owner: Owner, network: str, index: int) -> str | None:
        """Return what a process calls the network device of an index; None if not known.

        One that names no device has the names of the others on its host, where they agree.
        """
        owners = {*self.named, *self.virtual}
        names = self._names(owner, network) if owner in owners else {}
        if names:
            found = names.get(index, set())
        else:
            near = [other for other in owners if other[0] == owner[0] or owner[0] is None]
            found = {
                name for other in near for name in self._names(other, network).get(index, set())
            }
        return next(iter(found)) if len(found) == 1 else None

    def link_device_name(self, link: Link) -> str | None:
        """Return the name of the network device of a connection; None without one."""
        if link.device is None:
            return None
        return self.device_name((link.host, link.pid), link.path.partition("/")[2], link.device)

    def _names(self, owner: Owner, network: str) -> dict[int, set[str]]:
        """Return the names that a process gives, the virtual ones where it has any."""
        names = self.virtual.get(owner) or self.named.get(owner, {})
        return {index: said for (name, index), said in names.items() if name == network}

    def rank_table(self) -> list[dict[str, Any]]:
        """Return the ranks in their order."""
        rows = (self.ranks[key] for key in sorted(self.ranks))
        return [{**row, "net_devices": sorted(row["net_devices"])} for row in rows]
