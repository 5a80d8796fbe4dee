"""Requests to end a campaign in good order: by a person, or by the policy for a lost server."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic

Cause = Literal["stop", "abort"]


@dataclass(frozen=True)
class StopRequest:
    """Why the rest of a session is not run."""

    cause: Cause
    reason: str


def request_stop(run_dir: Path, session: str, cause: Cause, reason: str) -> None:
    """Ask the running session to record everything that is left as not run."""
    write_json_atomic(
        run_dir / ".stop.json",
        {"session": session, "cause": cause, "reason": reason, "t_ns": time.time_ns()},
    )


def stop_request(run_dir: Path, session: str) -> StopRequest | None:
    """Return the request that holds for a session; one of an earlier session does not."""
    data = read_json(run_dir / ".stop.json")
    if data is None or data.get("session") != session:
        return None
    return StopRequest("abort" if data.get("cause") == "abort" else "stop", str(data["reason"]))
