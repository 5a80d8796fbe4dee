"""What a load left below an attempt's raw files: servemap's own records, or another client's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from servemap.analysis.client_requests import client_requests, planned_requests
from servemap.analysis.client_summary import check_summary
from servemap.analysis.requests import Requests, read_requests
from servemap.analysis.verdict import Check
from servemap.model.errors import ParseError
from servemap.parsers.clients.records import ClientRun
from servemap.parsers.clients.registry import read_run
from servemap.parsers.records import skip_summary
from servemap.parsers.values import integer, mapping, sequence, text
from servemap.telemetry.clock import LoadTimes

SET_SHARE = 0.01
"""Share of a window by which the clock may have been set within it."""

NO_REQUESTS = Requests([], 0, 0, [])


class LoadRecords(NamedTuple):
    """The requests of a load.

    Attributes:
        requests: the measured ones.
        skipped: what could not be read, by file.
        sent: how many there must be.
        checks: on the client's own summary.
        summary: that summary and what it means, for metrics.json; None for servemap's own client.
    """

    requests: Requests
    skipped: dict[str, list[str]]
    sent: int | None = None
    checks: tuple[Check, ...] = ()
    summary: dict[str, Any] | None = None


def read_load(
    raw: Path,
    client: dict[str, Any],
    load: dict[str, Any],
    to_head: LoadTimes,
    whole: bool,
) -> LoadRecords:
    """Return the requests that a load's client measured.

    Args:
        raw: the attempt's raw files.
        client: client.json.
        load: load.json.
        to_head: puts the client's times on the head's clock.
        whole: whether the load did its job; of one that did not, what is there is taken.

    Raises:
        ParseError: records that must be there are missing or damaged.
    """
    other = mapping(client.get("client"))
    name = text(other.get("name"))
    if name is None:
        requests, skipped = _own(raw, client, to_head, optional=not whole)
        return LoadRecords(requests, skipped, integer(mapping(client.get("counts")).get("sent")))
    if not whole:
        return LoadRecords(NO_REQUESTS, {})
    run = read_run(name, raw / "client")
    check, summary = check_summary(run, name)
    return LoadRecords(
        client_requests(run, client, load, to_head),
        {},
        planned_requests(load),
        (check, *_check_clock(run, client)),
        {**summary, "version": other.get("version")},
    )


def _check_clock(run: ClientRun, client: Mapping[str, Any]) -> list[Check]:
    """Check of a client whose stamps are of the wall clock that nobody set it while it ran.

    Its window, and with that all its rates, would be longer or shorter by the step.
    """
    if run.window_ns is None:
        return []
    name = "client_clock_set_ms"
    step = integer(mapping(client.get("clock")).get("step_ns"))
    begin, end = run.window_ns
    limit = SET_SHARE * (end - begin) / 1e6
    if step is None:
        return [Check(name, None, limit, None, "the client's runner did not record it")]
    note = "the clock of the load's node was set while the client took its times from it"
    wrong = abs(step) / 1e6 > limit
    return [Check(name, abs(step) / 1e6, limit, not wrong, note if wrong else "")]


def _own(
    raw: Path, client: dict[str, Any], to_head: LoadTimes, optional: bool
) -> tuple[Requests, dict[str, list[str]]]:
    path = raw / "requests.jsonl"
    if not path.is_file():
        if optional:
            return NO_REQUESTS, {}
        raise ParseError("requests.jsonl is missing", str(path), "run the case again")
    overlaps: dict[str, list[tuple[int, int]]] = {}
    for item in sequence(client.get("segments")):
        fields = mapping(item)
        pairs = [(integer(p[0]), integer(p[1])) for p in _pairs(fields.get("overlaps"))]
        overlaps[text(fields.get("name")) or "main"] = [
            (to_head(begin), to_head(end))
            for begin, end in pairs
            if begin is not None and end is not None
        ]
    requests = read_requests(path, overlaps, to_head)
    skipped = skip_summary(requests.skipped)
    return requests, {"requests.jsonl": skipped} if skipped else {}


def _pairs(value: Any) -> list[list[Any]]:
    return [pair for pair in sequence(value) if isinstance(pair, list) and len(pair) == 2]
