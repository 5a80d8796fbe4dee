"""What one probe of a search says of its level: did enough of its requests meet the SLO?"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from servemap.analysis.checks.client import check_client, check_schedule
from servemap.analysis.checks.requests import check_requests
from servemap.analysis.goodput import meeting
from servemap.analysis.load_records import read_load
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check, resolve_limits, verdict
from servemap.model.errors import ParseError
from servemap.model.files import read_json_value
from servemap.model.search import Judge, Judgement, Outcome
from servemap.parsers.values import integer, mapping
from servemap.telemetry.clock import HEAD_TIMES

FAILURES = "error_share"
"""The check that is none of a probe: requests that failed miss the SLO, which is what it asks."""


class ProbeRun(NamedTuple):
    """One run of the client: what it says, its own record, its measured requests, the checks."""

    judgement: Judgement
    client: dict[str, Any]
    requests: list[Request]
    checks: list[Check]


def slo_share(requests: Sequence[Request], slo: dict[str, float]) -> float | None:
    """Return the share of all requests, failed ones included, that met the SLO; None of none."""
    if not requests:
        return None
    ok = [r for r in requests if r.status == "ok"]
    return int(meeting(ok, slo).sum()) / len(requests)


def outcome_of(share: float | None, least: float, checks: Iterable[Check]) -> Judgement:
    """Return what a probe says: an invalid one says nothing of its level.

    Args:
        share: of its requests that met the SLO.
        least: the share that must.
        checks: on it; that on failures does not count.
    """
    _, reasons = verdict(check for check in checks if check.name != FAILURES)
    if share is None and not reasons:
        reasons = ["no request was recorded"]
    if share is None or reasons:
        return Judgement("invalid", share, reasons)
    outcome: Outcome = "met" if share >= least else "missed"
    return Judgement(outcome, share, [])


def judge_with(limits: dict[str, float]) -> Judge:
    """Return what judges a probe by its own records, under limits laid over the defaults.

    Its telemetry is still being taken: that it covers the probe is checked when it is derived.
    """
    return lambda raw, case: read_run(raw, case, limits).judgement


def read_run(raw: Path, case: Mapping[str, Any], limits: dict[str, float]) -> ProbeRun:
    """Return what a client's folder says of the level that it was run at.

    Raises:
        ParseError: records that must be there are missing or damaged.
    """
    resolved = resolve_limits(limits)
    client, load = _object(raw / "client.json"), _object(raw / "load.json")
    rows = read_load(raw, client, load, HEAD_TIMES, whole=True).requests.rows
    fixed = mapping(load.get("request")).get("ignore_eos") is True
    sent = integer(mapping(client.get("counts")).get("sent"))
    checks = [
        *check_requests(rows, sent, fixed, False, None, resolved),
        *check_client(client, rows, resolved),
        *check_schedule(load, rows, resolved),
    ]
    judgement = outcome_of(slo_share(rows, case["slo"]), case["slo_share"], checks)
    return ProbeRun(judgement, client, rows, checks)


def _object(path: Path) -> dict[str, Any]:
    try:
        return mapping(read_json_value(path))
    except (OSError, ValueError) as error:
        raise ParseError(
            f"{path.name} cannot be read: {error}", str(path), "run the case again"
        ) from error
