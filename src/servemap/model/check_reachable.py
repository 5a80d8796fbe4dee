"""Limits that no measurement can tell anything of: an SLO of 0, an infinite target."""

import math

from servemap.model.campaign import Campaign
from servemap.model.cases import SearchCase
from servemap.model.errors import ConfigError
from servemap.model.slo import Slo
from servemap.model.targets import parse_target


def check_reachable(campaign: Campaign) -> None:
    """Refuse a campaign with such a limit.

    Raises:
        ConfigError: names the key and the remedy.
    """
    check_slo(campaign.slo, "slo")
    for case in campaign.cases:
        if isinstance(case, SearchCase) and case.slo is not None:
            check_slo(case.slo, f"cases.{case.id}.slo")
    for number, target in enumerate(campaign.targets):
        if math.isinf(parse_target(target.target).limit):
            raise ConfigError(
                f"the limit of {target.target!r} is more than any number can be",
                f"targets.{number}",
                "give a number that the figure can reach",
            )


def check_slo(slo: Slo, where: str) -> None:
    """Refuse a limit of 0 s, which no request meets.

    Raises:
        ConfigError: names the key below `where` and the remedy.
    """
    for name, limit in slo.model_dump().items():
        if limit == 0:
            raise ConfigError(
                f"{name} is 0, which no request meets",
                f"{where}.{name}",
                "give more than 0 seconds, or leave it out",
            )
