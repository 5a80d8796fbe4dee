"""What a job gets when it asks for a server: one that may be measured, or why there is none."""

from dataclasses import dataclass, field
from typing import Any

from servemap.model.server_spec import ServerSpec
from servemap.nodes.parallel import each
from servemap.server.context import Context
from servemap.server.launch import process
from servemap.server.launch.ranks import Standing


@dataclass(frozen=True)
class Served:
    """A server that passed its gates and may be measured.

    Attributes:
        pids: {node id: [pid]}, the root of the server's process tree on each node.
        argv: the head's command.
        ranks: [{node, rank, argv, env, secrets}] of all nodes.
    """

    url: str
    fingerprint: str
    boot_id: str | None
    engine: str
    engine_version: str | None
    pids: dict[str, list[int]]
    reused: bool
    drift: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return what the records of a measurement say of the server that gave it."""
        return {
            "fingerprint": self.fingerprint,
            "boot_id": self.boot_id,
            "engine": self.engine,
            "engine_version": self.engine_version,
            "reused": self.reused,
            "drift": self.drift,
        }


def server_url(context: Context, server: ServerSpec) -> str:
    """Return the URL that clients on the head use."""
    if server.attach:
        return server.attach.rstrip("/")
    host = context.head_spec.address if server.bind in ("0.0.0.0", "::") else server.bind
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def server_pids(context: Context, ranks: Standing) -> dict[str, list[int]]:
    """Return {node id: [pid]} of the ranks' own processes, the roots of their trees."""

    def look(node_id: str) -> list[int]:
        state = process.supervisor_state(
            context.nodes[node_id], context.workdir(node_id), ranks[node_id].boot_id
        )
        identity = process.server_process(state)
        return [identity.pid] if identity else []

    return each(list(ranks), look)
