"""Rules for milestones: what could never be met is refused before anything is measured."""

from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError
from servemap.model.groups import cases_of, groups_of
from servemap.model.phases import Milestone, PhaseSpec


def check_milestone(campaign: Campaign, phase: PhaseSpec, rule: Milestone) -> None:
    """Refuse a milestone without cases, with too few repeats, or by a figure that is not there.

    Raises:
        ConfigError: the first rule that is broken.
    """
    where = f"phases.{phase.id}.milestone"
    if not phase.cases:
        raise ConfigError(
            "a milestone holds the repeats of its cases against a limit, and the phase has none",
            where,
            "list cases in the phase, or remove `milestone`",
        )
    groups = groups_of(campaign)
    planned = {item for name in phase.cases for item in groups.get(name, [name])}
    for case in cases_of(campaign):
        if case.id in planned and case.repeats is not None and case.repeats < rule.repeats:
            raise ConfigError(
                f"{case.repeats} repeats of case {case.id!r} are planned, the milestone asks for "
                f"{rule.repeats}",
                f"cases.{case.id}.repeats",
                "plan as many, or leave `repeats` out and the milestone plans them",
            )
    lacking = {"weighted_tok_s": "weights", "goodput_req_s": "slo"}.get(rule.metric)
    if lacking is None or (lacking == "weights" and campaign.weights):
        return
    if lacking == "slo" and campaign.slo.model_dump():
        return
    raise ConfigError(
        f"{rule.metric} is not measured in a campaign without `{lacking}`",
        f"{where}.metric",
        f"give `{lacking}`, or take another figure",
    )
