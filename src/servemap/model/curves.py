"""What stands for several ordinary cases: curves, each a list of levels, and compared watching."""

import math
from collections.abc import Iterable

from servemap.model.campaign import Campaign
from servemap.model.cases import CaseBase, CaseSpec, CurveCase, FixedCase, RateCase
from servemap.model.errors import ConfigError
from servemap.model.watching import SUFFIXES, watched_cases, watched_id

LONGEST_ID = 64


def cases_of(campaign: Campaign) -> list[CaseSpec]:
    """Return the cases of the file in its order, each group replaced by its cases.

    Raises:
        ConfigError: the id of one of them is too long.
    """
    return [case for written in campaign.cases for case in (_group(written) or [written])]


def groups_of(campaign: Campaign) -> dict[str, list[str]]:
    """Return the ids of the cases that one of the file stands for, by its id: see `_group`."""
    return {
        written.id: [case.id for case in cases]
        for written in campaign.cases
        if (cases := _group(written))
    }


def _group(written: CaseSpec) -> list[CaseSpec]:
    """Return a curve's points, or the three cases of compared watching; none of other cases."""
    if isinstance(written, CurveCase):
        levels = [*written.concurrencies, *written.rates_rps]
        _check_ids(written.id, (point_id(written, level) for level in levels))
        return points_of(written)
    if isinstance(written, FixedCase) and written.watching == "compare":
        _check_ids(written.id, (watched_id(written.id, watching) for watching in SUFFIXES))
        return [*watched_cases(written)]
    return []


def _check_ids(group: str, ids: Iterable[str]) -> None:
    for item in ids:
        if len(item) > LONGEST_ID:
            raise ConfigError(
                f"the id {item!r} of a point is longer than {LONGEST_ID}",
                f"cases.{group}",
                f"shorten the id {group!r}",
            )


def points_of(curve: CurveCase) -> list[CaseSpec]:
    """Return the cases that a curve stands for, in the order of its levels."""
    shared = {"isl", "osl", *CaseBase.model_fields} - {"id"}
    common = curve.model_dump(include=shared)
    closed: list[CaseSpec] = [
        FixedCase(
            **common,
            id=point_id(curve, level),
            concurrency=level,
            num_prompts=curve.num_prompts and whole_waves(curve.num_prompts, level),
            min_window_s=curve.min_window_s,
        )
        for level in curve.concurrencies
    ]
    return closed + [
        RateCase(
            **common,
            kind="rate",
            id=point_id(curve, rate),
            rate_rps=rate,
            num_prompts=arrivals_at(rate, curve.num_prompts or 1, curve.min_window_s),
            arrivals=curve.arrivals,
            burstiness=curve.burstiness,
        )
        for rate in curve.rates_rps
    ]


def point_id(curve: CurveCase, level: float) -> str:
    """Return the id of a curve's point: `ID-c4`, or `ID-r2-5` for a rate of 2.5."""
    letter = "c" if curve.concurrencies else "r"
    return f"{curve.id}-{letter}{format(level, 'g').replace('.', '-').replace('+', '')}"


def whole_waves(num_prompts: int, concurrency: int) -> int:
    """Return the least number of whole waves' requests that is not below `num_prompts`."""
    return math.ceil(num_prompts / concurrency) * concurrency


def arrivals_at(rate_rps: float, num_prompts: int, window_s: float) -> int:
    """Return how many requests come at a rate: `num_prompts`, or as many as fill a window."""
    return max(num_prompts, math.ceil(rate_rps * window_s))
