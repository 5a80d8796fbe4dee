"""Cases of the file that stand for several: curves, and cases whose watching is compared."""

from collections.abc import Iterable

from servemap.model.campaign import Campaign
from servemap.model.cases import CaseSpec, CurveCase, FixedCase
from servemap.model.curves import point_id, points_of
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
