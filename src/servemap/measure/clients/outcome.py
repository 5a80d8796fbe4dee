"""What a load client of others did: its record completed from its own result files."""

from pathlib import Path
from typing import Any

from servemap.measure.clients.start import ADAPTERS
from servemap.measure.clients.window import window
from servemap.model.errors import ParseError
from servemap.parsers.clients.records import ClientRun
from servemap.parsers.clients.registry import read_run
from servemap.parsers.values import mapping, text

FOLDER = "client"
"""Folder of the client's own files below an attempt's raw files."""
ERRORS = 3
WORDS = 200


def completed(record: dict[str, Any], raw: Path, planned: int) -> dict[str, Any]:
    """Return client.json with the segment, the counts and the errors of the result files.

    A client that did not do its job stays `failed`; one whose files cannot be read becomes so.

    Args:
        record: client.json of `onnode run-client`.
        raw: the attempt's raw files.
        planned: requests that were asked for.
    """
    if record.get("status") != "ok":
        return record
    name = text(mapping(record.get("client")).get("name")) or ""
    try:
        run = read_run(name, raw / FOLDER)
        found = window(run, record, ADAPTERS[name])
    except ParseError as error:
        return {**record, "status": "failed", "reasons": [f"{name}: {error.what}"]}
    if run.problem is not None:
        record = {**record, "status": "failed", "reasons": [f"{name}: {run.problem}"]}
    ok = sum(call.error is None for call in run.calls)
    return {
        **record,
        "segments": [{"name": "main", **found._asdict(), "overlaps": []}],
        "counts": {
            "planned": planned,
            "sent": len(run.calls),
            "ok": ok,
            "failed": len(run.calls) - ok,
            # No client of others tells these two from the rest.
            "timed_out": None,
            "retried": None,
        },
        "errors": errors(run),
    }


def errors(run: ClientRun) -> dict[str, int]:
    """Return the most frequent errors of requests, each with how often it came."""
    counts: dict[str, int] = {}
    for call in run.calls:
        if call.error is not None:
            words = call.error[:WORDS]
            counts[words] = counts.get(words, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:ERRORS])
