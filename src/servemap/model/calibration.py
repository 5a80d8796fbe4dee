"""The numbers of requests in flight at which the load client's own error is measured."""

from collections.abc import Iterable

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
