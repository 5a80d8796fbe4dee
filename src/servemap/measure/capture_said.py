"""What a capture came to, in words: from the client's record, the traces that came, the nodes."""

from typing import Any

from servemap.measure.capture_files import Sizes
from servemap.parsers.values import integer, mapping, sequence
from servemap.telemetry.clock import LoadTimes

NO_SUCH_CALL = (404, 405)
"""HTTP statuses of a server that has no profiler's endpoint: the next try would meet them too."""


def cause(client: dict[str, Any]) -> str | None:
    """Return the cause of a failure that stays, `profiler`; None for others (see `attempts`)."""
    refused = mapping(client.get("profile")).get("refused_with")
    return "profiler" if refused in NO_SUCH_CALL else None


def reasons(client: dict[str, Any], came: int, wanted: int, ranks: int, engine: str) -> list[str]:
    """Return how the load and the profile failed, as far as the client and the files tell.

    Args:
        client: the client's record; empty where it left none.
        came: the traces that were found.
        wanted: how many there should be.
        ranks: how many ranks the server has: where their files do not name them, all are kept.
        engine: its name.
    """
    profile = mapping(client.get("profile"))
    problem = profile.get("problem")
    found = [] if client else ["the load client left no record"]
    if problem:
        found.append(str(problem))
    if cause(client) is not None:
        found[-1] += f"; this version of {engine} has no such call: take one that has"
    found += map(str, sequence(client.get("reasons")))
    if came < wanted and not problem:
        found.append(f"{came} of {wanted} ranks left a trace")
        if profile and not profile.get("whole"):
            found.append("the steps that were asked for did not end within the load")
        found += [str(said) for said in [profile.get("stop_error")] if said]
    elif came > ranks:
        found.append(f"{came} traces of {ranks} ranks: one is of another profile")
    return found


def too_big(node: str, sizes: Sizes, limit: int) -> str | None:
    """Return in words that the files of a node are more than is fetched; None where they are not.

    Args:
        node: its id.
        sizes: bytes by path.
        limit: `policy.max_fetch_bytes`.
    """
    total = sum(sizes.values())
    if total <= limit:
        return None
    return (
        f"the traces on node {node} are {_gb(total)}, more than policy.max_fetch_bytes "
        f"({_gb(limit)}): name some `ranks` of the capture, ask for fewer `num_steps`, or raise it"
    )


def _gb(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def window(client: dict[str, Any], to_head: LoadTimes, error_ns: Any) -> dict[str, Any] | None:
    """Return when the profiler was asked to start and was seen to have ended, head's clock.

    `ended_by`: `steps` where the asked steps ran, `stop` where the load ended before them.
    """
    profile = mapping(client.get("profile"))
    if not profile:
        return None

    def moved(key: str) -> int | None:
        t_ns = integer(profile.get(key))
        return None if t_ns is None else to_head(t_ns)

    seen, stopped = moved("whole_ns"), moved("stopped_ns")
    return {
        "segment": profile.get("segment"),
        "start_ns": moved("start_ns"),
        "started_ns": moved("started_ns"),
        "end_ns": seen if seen is not None else stopped,
        "ended_by": "steps" if seen is not None else "stop",
        "source": "client",
        "error_ns": error_ns,
    }
