"""The numbers of requests in flight at which the load client's own error is measured."""

from collections.abc import Iterable, Mapping
from typing import Any

from servemap.model.cases import CaseSpec, MixedCase, SearchCase
from servemap.model.clients import OWN

LADDER = (16, 64, 256)
"""Points for a load whose peak in flight is not known before it was measured."""
MOST = 1024
"""More streams than this the reference server cannot serve on time."""


def streams(cases: Iterable[CaseSpec]) -> list[int]:
    """Return the distinct numbers in flight of cases that our own client measures, ascending.

    An open loop waits for nobody: how many are in flight depends on the server, so it stands for
    the points of LADDER, as far as its requests go.
    """
    found = {count for case in cases for count in _of(case)}
    return sorted(count for count in found if count <= MOST)


def say_status(record: Mapping[str, Any]) -> str:
    """Return how a calibration ended: `ok` only where every point can be used."""
    rows = [row for row in record.get("rows") or [] if isinstance(row, dict)]
    usable = sum(row.get("status") == "ok" for row in rows)
    status = str(record.get("status") or "of no known status")
    if not rows:
        return status
    whole = f"{usable} of {len(rows)} points usable"
    return whole if status == "ok" and usable < len(rows) else f"{status}, {whole}"


def _of(case: CaseSpec) -> set[int]:
    if getattr(case, "client", OWN) != OWN:
        return set()
    if isinstance(case, MixedCase):
        return {case.background.concurrency + 1}
    if isinstance(case, SearchCase) and case.over == "concurrency":
        return {min(step, int(case.most)) for step in LADDER}
    concurrency: int | None = getattr(case, "concurrency", None)
    if concurrency is not None:
        return {concurrency}
    requests: int = getattr(case, "num_prompts", None) or LADDER[-1]
    return {min(step, requests) for step in LADDER}
