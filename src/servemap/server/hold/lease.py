"""The lease of a node: one campaign at a time drives a machine, whoever started it.

The file lies on the node itself and is kept by the on-node program (`onnode.hold`).
"""

import json
from pathlib import Path
from typing import Any

from servemap.model.errors import LockedError, NodeError
from servemap.model.files import parse_json
from servemap.nodes.base import Node
from servemap.onnode import hold
from servemap.server.locks import describe_self, say_holder

LEASE_TTL_S = 120.0
"""A lease that nobody renewed for so long is anybody's."""
LEASE_RENEW_S = 15.0
ASK_S = 30.0


def take_lease(node: Node, run_dir: Path, ttl_s: float = LEASE_TTL_S) -> None:
    """Take a node for a run of this process; one that it holds already is renewed.

    Raises:
        LockedError: a living controller of another run, user or machine holds it.
        NodeError: the lease cannot be written, or the node cannot be asked.
    """
    _settle(node, _ask_twice(node, "take", _owner(node, run_dir, ttl_s)))


def check_lease(node: Node) -> None:
    """Refuse a node that another campaign drives; takes and writes nothing.

    Raises:
        LockedError: a living controller of another run, user or machine holds it.
        NodeError: a lease there cannot be read, or the node cannot be asked.
    """
    _settle(node, _ask_twice(node, "check", _owner(node, Path(), LEASE_TTL_S)))


def renew_lease(node: Node, run_dir: Path, ttl_s: float = LEASE_TTL_S) -> None:
    """Say that this process still drives a node; a lease that vanished there is taken again.

    Raises:
        LockedError: the lease became stale, and another controller took the node.
        NodeError: the lease cannot be written, or the node cannot be asked.
    """
    _settle(node, _ask_twice(node, "renew", _owner(node, run_dir, ttl_s)))


def release_lease(node: Node, run_dir: Path) -> None:
    """Give a node back if this process holds it for this run.

    Raises:
        NodeError: the lease cannot be removed, or the node cannot be asked.
    """
    _settle(node, _ask(node, "release", {"owner": _owner(node, run_dir, LEASE_TTL_S)}))


def _owner(node: Node, run_dir: Path, ttl_s: float) -> dict[str, Any]:
    return describe_self(
        run=str(run_dir.resolve()), node=node.name, pid_ns=hold.pid_namespace(), ttl_s=ttl_s
    )


def _ask_twice(node: Node, action: str, owner: dict[str, Any]) -> dict[str, Any]:
    """Ask the node; a holder of this machine that the node cannot see may be known here as dead."""
    answer = _ask(node, action, {"owner": owner})
    held = answer.get("held")
    if isinstance(held, dict) and hold.proves_death(held):
        gone = {key: held.get(key) for key in hold.IDENTITY}
        answer = _ask(node, action, {"owner": owner, "gone": gone})
    return answer


def _ask(node: Node, action: str, request: dict[str, Any]) -> dict[str, Any]:
    if node.here:
        return hold.ACTIONS[action](request)
    argv = node.agent_argv("hold", action)
    done = node.run(argv, timeout_s=ASK_S, input=json.dumps(request))
    try:
        answer = parse_json(done.stdout)
    except ValueError:
        answer = None
    if done.code != 0 or not isinstance(answer, dict):
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise NodeError(
            f"the lease of node {node.name} cannot be asked for: {said or 'no answer'}",
            f"node {node.name}: {' '.join(argv)[:500]}",
            "run that command by hand and see what it says",
        )
    return answer


def _settle(node: Node, answer: dict[str, Any]) -> None:
    """Raise what an answer of the node means."""
    if isinstance(answer.get("held"), dict):
        raise _held(node, answer["held"])
    if isinstance(answer.get("foreign"), dict):
        record = answer["foreign"]
        raise LockedError(
            f"the stale lease of node {node.name} belongs to another user ({say_holder(record)})",
            _where(node, record),
            "ask that user to remove the file",
        )
    if "error" in answer:
        raise NodeError(
            f"the lease of node {node.name} cannot be kept: {answer['error']}",
            _where(node, answer),
            "let this user write a file there and see that the disk has room, or set "
            "SERVEMAP_LEASE_DIR there to another folder, the same for all campaigns of the machine",
        )


def _where(node: Node, answer: dict[str, Any]) -> str:
    path = str(answer.get("path", "?"))
    return path if node.here else f"node {node.name}: {path}"


def _held(node: Node, record: dict[str, Any]) -> LockedError:
    run = Path(str(record.get("run", "?")))
    return LockedError(
        f"node {node.name} is driven by {say_holder(record)}: run {run}; renewed "
        f"{_seconds(record.get('age_s'))} ago, stale in {_seconds(record.get('stale_in_s'))} if "
        "nobody renews it",
        _where(node, record),
        f"wait until that campaign ends, or stop it on {record.get('host', '?')} from "
        f"{run.parent.parent} with `servemap stop {run.name} --after-case --reason TEXT`",
    )


def _seconds(value: Any) -> str:
    return f"{value:.0f} s" if isinstance(value, int | float) else "? s"
