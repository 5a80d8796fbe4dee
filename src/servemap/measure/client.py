"""The load client on the head: started detached, watched, and ended in bounded time."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.errors import OrphanedError
from servemap.model.files import read_bytes
from servemap.nodes.base import Node, ProcessId
from servemap.parsers.jsonl import read_jsonl
from servemap.parsers.values import mapping, text

POLL_S = 0.05
MARGIN_S = 30.0
END_S = 15.0
WORDS = 300


def start_client(node: Node, spec: dict[str, Any], raw: Path) -> ProcessId:
    """Start the load client on a node; it finishes its work also without this process."""
    folder = raw.resolve()
    spec_path = str(folder / "load.json")
    node.write_text(spec_path, json.dumps(spec, indent=1))
    return node.spawn(
        node.agent_argv("bench", "--spec", spec_path, "--out", str(folder)),
        log=str(folder / "client.log"),
    )


def wait_client(
    node: Node,
    client: ProcessId,
    deadline: float,
    server_alive: Callable[[], bool],
    controller_alive: Callable[[], bool],
) -> str | None:
    """Wait until the client is done; return why it was ended early, or None.

    A client whose server died gets `END_S` seconds to note the errors that it sees.

    Raises:
        OrphanedError: the controller died; the client goes on for the next one to adopt.
    """
    look = 0
    while node.alive(client):
        time.sleep(POLL_S)
        look += 1
        if look % 5 == 0 and not controller_alive():
            raise OrphanedError
        if time.monotonic() > deadline:
            node.stop(client, END_S)
            return "the load client did not end in time and was stopped"
        if look % 10 == 0 and not server_alive():
            end = time.monotonic() + END_S
            while node.alive(client) and time.monotonic() < end:
                time.sleep(POLL_S)
            node.stop(client, END_S)
            return None
    return None


def client_result(raw: Path) -> dict[str, Any] | None:
    """Return the client's own record, or None where it wrote none."""
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
        lines = read_jsonl(raw / "requests.jsonl").lines
    except OSError:
        return {}
    for _, request in lines:
        if request.get("warmup") or not request.get("error"):
            continue
        name = text(mapping(request["error"]).get("class")) or "unknown"
        classes[name] = classes.get(name, 0) + 1
    return classes
