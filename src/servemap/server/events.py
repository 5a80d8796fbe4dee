"""The run's event log: one JSON line for everything that was done to a server or a node."""

import json
import os
import time
from pathlib import Path
from typing import Any

from servemap.model.files import parse_json, read_bytes, regular


def append_event(run_dir: Path, event: str, **facts: Any) -> None:
    """Append `{"t_ns", "event", ...}` to `events.jsonl` in one write, safe between processes."""
    line = json.dumps({"t_ns": time.time_ns(), "event": event, **facts}, ensure_ascii=False) + "\n"
    run_dir.mkdir(parents=True, exist_ok=True)
    descriptor = regular(str(run_dir / "events.jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_events(run_dir: Path) -> list[dict[str, Any]]:
    """Return the whole lines of the event log, oldest first; cut lines are left out."""
    try:
        lines = read_bytes(run_dir / "events.jsonl").decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            event = parse_json(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def session_lines(events: list[dict[str, Any]]) -> list[str]:
    """Return the events of the newest session, a line each: time in UTC, event, its facts."""
    begins = [n for n, event in enumerate(events) if event.get("event") == "session_begin"]
    return [_line(event) for event in events[begins[-1] if begins else 0 :]]


def _line(event: dict[str, Any]) -> str:
    t_ns = event.get("t_ns")
    when = (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t_ns / 1e9))
        if isinstance(t_ns, int)
        else "-"
    )
    facts = [
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in event.items()
        if key not in ("t_ns", "event") and value not in (None, [], {})
    ]
    return " ".join([when, str(event.get("event")), *facts]) + "\n"
