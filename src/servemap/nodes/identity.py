"""Identities of processes on this machine, as the node agent records them."""

import json
from typing import Any

from servemap.model.errors import NodeError
from servemap.nodes.base import ProcessId
from servemap.onnode.ident import machine_boot_id, read_stat

__all__ = ["from_record", "identify", "machine_boot_id"]


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a process on this machine, None when there is none with this pid."""
    stat = read_stat(pid)
    return ProcessId(pid, stat.start, machine_boot_id()) if stat else None


def from_record(record: dict[str, Any], boot_id: str) -> ProcessId:
    """Return the identity in a `{"pid", "start"}` record, such as a supervisor's state holds.

    Raises:
        NodeError: the record holds no pid and start time.
    """
    pid, start = record.get("pid"), record.get("start")
    if not isinstance(pid, int) or not isinstance(start, int):
        raise NodeError(
            f"no process identity in {json.dumps(record)[:200]}",
            "a supervisor's state file",
            "delete the file if no server of it runs on the node any more",
        )
    return ProcessId(pid, start, boot_id)
