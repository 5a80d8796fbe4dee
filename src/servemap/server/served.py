"""What a job gets when it asks for a server: one that may be measured, or why there is none."""

from dataclasses import dataclass, field
from typing import Any

from servemap.model.errors import ServemapError
from servemap.model.server_spec import ServerSpec
from servemap.onnode.redact import redact_text
from servemap.server import process
from servemap.server.context import Context


class NotRunError(ServemapError):
    """A job's work is not done, for a reason that is recorded and not the job's own failure.

    What it says is stored, so what looks like a credential is taken out of it.
    `cause`: stop, abort, launch, breaker, drift or patch.
    """

    def __init__(self, cause: str, what: str, where: str, remedy: str) -> None:
        super().__init__(redact_text(what), redact_text(where), redact_text(remedy))
        self.cause = cause


@dataclass(frozen=True)
class Served:
    """A server that passed its gates and may be measured; `pids` are its roots on each node."""

    url: str
    fingerprint: str
    boot_id: str | None
    engine: str
    engine_version: str | None
    pids: dict[str, list[int]]
    reused: bool
    drift: list[str] = field(default_factory=list)
    argv: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


def server_url(context: Context, server: ServerSpec) -> str:
    """Return the URL that clients on the head use."""
    if server.attach:
        return server.attach.rstrip("/")
    host = context.head_spec.address if server.bind in ("0.0.0.0", "::") else server.bind
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"


def server_pids(context: Context, boot_id: str) -> dict[str, list[int]]:
    """Return {node: pids of the server's own processes there}, the roots of their trees."""
    state = process.supervisor_state(context.head, context.head_workdir, boot_id)
    identity = process.server_process(state)
    return {context.plan.head: [identity.pid]} if identity else {}
