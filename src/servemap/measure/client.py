"""The load client on its node: started detached, watched, and ended in bounded time."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.errors import OrphanedError
from servemap.model.files import read_bytes, regular
from servemap.nodes.base import Node, ProcessId
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.values import mapping, text
from servemap.server.patience import Patience

POLL_S = 0.05
FAR_POLL_S = 0.2
CONTROLLER_S = 0.25
LOOK_S = 0.5
FAR_LOOK_S = 0.9
"""How often the server and the collectors are looked at: at least once a second."""
MARGIN_S = 30.0
END_S = 15.0
WORDS = 300
_NO_ERROR = b'"error":null'


@dataclass(frozen=True)
class Look:
    """What was seen of that which a load needs; `failed` says why it cannot go on."""

    server_died: bool = False
    failed: str | None = None


def start_client(
    node: Node, spec: dict[str, Any], folder: str, env: Mapping[str, str]
) -> ProcessId:
    """Start the load client on a node; it finishes its work also without this process.

    A spec with a `client` has a client of others run, see `onnode.run_client`.
    """
    spec_path = f"{folder}/load.json"
    node.write_text(spec_path, json.dumps(spec, indent=1))
    return node.spawn(
        node.agent_argv(
            "run-client" if "client" in spec else "bench", "--spec", spec_path, "--out", folder
        ),
        log=f"{folder}/client.log",
        env=env,
    )


def wait_client(
    node: Node,
    client: ProcessId,
    deadline: float,
    look: Callable[[], Look],
    controller_alive: Callable[[], bool],
    patience: Patience,
) -> str | None:
    """Wait until the client is done; return why it was ended early, or None.

    While its node cannot be reached the client goes on, and so does the waiting. A client whose
    server died gets `END_S` seconds to note the errors that it sees.

    Args:
        node: where it runs.
        client: its process.
        deadline: the monotonic time at which it is ended.
        look: says at intervals whether what the load needs still stands.
        controller_alive: whether the controller lives.
        patience: waits for a node that is away.

    Raises:
        OrphanedError: the controller died; the client goes on for the next one to adopt.
        UnreachableError: the node was away for too long.
    """
    pause_s, look_s = (POLL_S, LOOK_S) if node.here else (FAR_POLL_S, FAR_LOOK_S)

    def runs() -> bool:
        return patience.ask(node, lambda: node.alive(client)) is not False

    def end() -> None:
        patience.insist(node, lambda: node.stop(client, END_S))

    look_due = controller_due = time.monotonic()
    while runs():
        time.sleep(pause_s)
        now = time.monotonic()
        if now >= controller_due:
            controller_due = now + CONTROLLER_S
            if not controller_alive():
                raise OrphanedError
        if now > deadline:
            end()
            return "the load client did not end in time and was stopped"
        if now >= look_due:
            look_due = now + look_s
            seen = look()
            if seen.server_died:
                until = time.monotonic() + END_S
                while runs() and time.monotonic() < until:
                    time.sleep(pause_s)
                end()
                return None
            if seen.failed is not None and runs():
                end()
                return seen.failed
    return None


def client_result(raw: Path) -> dict[str, Any] | None:
    """Return the record that a client left, of whichever load; None where there is none."""
    return read_json(raw / "client.json")


def last_words(raw: Path) -> str | None:
    """Return the last line that the client said in its log; None where it said nothing."""
    try:
        said = read_bytes(raw / "client.log").decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:WORDS] if lines else None


def error_classes(raw: Path) -> dict[str, int]:
    """Return how often each class of error befell the measured requests of an attempt."""
    classes: dict[str, int] = {}
    try:
        with open(raw / "requests.jsonl", "rb", opener=regular) as handle:
            # A hundred thousand answers are decoded only where one of them failed.
            lines = [line for line in handle if _NO_ERROR not in line]
    except OSError:
        return {}
    for _, request in parse_jsonl(b"".join(lines)).lines:
        if request.get("warmup") or not request.get("error"):
            continue
        name = text(mapping(request["error"]).get("class")) or "unknown"
        classes[name] = classes.get(name, 0) + 1
    return classes
