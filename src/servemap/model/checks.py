"""Rules that join several keys of a campaign; each refusal names key, value and remedy."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from servemap.model.base import tokens
from servemap.model.campaign import Campaign, Variant
from servemap.model.cases import CaseSpec, FixedCase, MixedCase, ReplayCase, SearchCase
from servemap.model.check_baselines import check_baseline
from servemap.model.check_clients import check_clients
from servemap.model.check_grids import check_grids
from servemap.model.check_milestone import check_milestone
from servemap.model.check_nodes import check_nodes, known
from servemap.model.check_required import check_required
from servemap.model.check_server import check_server
from servemap.model.errors import ConfigError
from servemap.model.grids import variants_of
from servemap.model.groups import cases_of, groups_of
from servemap.model.replay import check_trace
from servemap.model.resolve import changed_keys, variant_server
from servemap.model.steps import covers
from servemap.model.targets import Wanted, parse_target

RESERVED_NAMES = frozenset(
    {
        "all", "report", "gate", "teardown", "unpatch", "freeze", "patch", "launch", "baseline",
        "calibrate", "case", "derive", "capture", "analyse", "summary", "snapshot",
    }
)  # fmt: skip
"""Names of rules: no phase may have one."""


PERIODS = 20
_PERIODIC = re.compile(rf"(.+?)\1{{{PERIODS - 1},}}$")


def check_traces(campaign: Campaign) -> None:
    """Refuse a campaign whose traces are not here or cannot be replayed.

    Raises:
        ConfigError: names the file, the line and the remedy.
    """
    for case in campaign.cases:
        if isinstance(case, ReplayCase):
            check_trace(case, campaign.scale.tokens_per_k, campaign.model.context)


def check(campaign: Campaign) -> None:
    """Refuse a campaign whose keys do not fit together.

    Raises:
        ConfigError: the first rule that is broken.
    """
    for key, text in _texts(campaign.model_dump(), ""):
        _check_text(key, text)
    for name in _names(campaign):
        _check_periodic(name)
    _unique("nodes", (node.id for node in campaign.nodes))
    _unique("variables", (variable.id for variable in campaign.variables))
    _unique("variants", (variant.id for variant in campaign.variants))
    cases = cases_of(campaign)
    _unique("cases", [*(case.id for case in cases), *groups_of(campaign)])
    _unique("baselines", (baseline.id for baseline in campaign.baselines))
    _unique("phases", (phase.id for phase in campaign.phases))
    names = [variant.id for variant in campaign.variants] + [grid.id for grid in campaign.grids]
    _unique("grids", names)
    check_server(campaign.server)
    check_required(campaign, campaign.server, "server")
    check_grids(campaign)
    check_nodes(campaign)
    _check_attached(campaign)
    for variant in campaign.variants:
        _check_variant(campaign, variant)
    for case in cases:
        _check_lengths(campaign, case)
        if isinstance(case, SearchCase):
            _check_slo(campaign, case)
    for baseline in campaign.baselines:
        check_baseline(campaign, baseline)
    _check_targets(campaign)
    check_clients(campaign, [case for case in cases if isinstance(case, FixedCase)])
    _check_phases(campaign)


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Return all texts of a campaign, keys included, each with where it stands."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            below = f"{key}.{name}".lstrip(".")
            yield below, str(name)
            yield from _texts(item, below)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts(item, f"{key}.{index}")


def _check_text(key: str, text: str) -> None:
    """Refuse what no argument, variable or file name can hold."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ConfigError(
            "the text holds a NUL or a half of a surrogate pair",
            ascii(key)[1:-1],
            "remove that character",
        )


def _names(campaign: Campaign) -> Iterator[str]:
    """Return what stands in paths of results."""
    yield campaign.run
    for things in (campaign.nodes, campaign.variants, cases_of(campaign), campaign.baselines):
        yield from (thing.id for thing in things)


def _check_periodic(name: str) -> None:
    """Refuse what Snakemake takes for a rule that makes its own input again and again."""
    found = _PERIODIC.search(name)
    if found:
        raise ConfigError(
            f"a name ends with {found[1]!r} {PERIODS} times or more: Snakemake refuses that",
            name,
            "take another name",
        )


def _unique(key: str, ids: Iterable[str]) -> None:
    for name, count in Counter(ids).items():
        if count > 1:
            raise ConfigError(
                f"id {name!r} is used {count} times", f"{key}.{name}", "give each an id of its own"
            )


def _check_attached(campaign: Campaign) -> None:
    server = campaign.server
    if server.attach and campaign.policy.order == "relaunched":
        raise ConfigError(
            "repeats are to have starts of their own, and the server is only attached to",
            "policy.order",
            "write `order: interleaved`, or remove `server.attach` and let servemap start it",
        )
    if server.attach and server.patches:
        raise ConfigError(
            f"patch {server.patches[0].id!r} is for a server that is only attached to",
            "server.patches",
            "remove the patches, or remove `server.attach` and let servemap start the server",
        )


def _check_variant(campaign: Campaign, variant: Variant) -> None:
    where = f"variants.{variant.id}"
    server = variant_server(campaign, variant)
    check_server(server, f"{where}.set")
    check_required(campaign, server, f"{where}.set")
    _unique(f"{where}.patches", (patch.id for patch in server.patches))
    changed = changed_keys(campaign.server, server)
    if variant.variable is None:
        if variant.set:
            raise ConfigError(
                f"variant {variant.id!r} sets {', '.join(variant.set)} without naming a variable",
                f"{where}.variable",
                "declare the variable under `variables` and name it here",
            )
        return
    known(variant.variable, (item.id for item in campaign.variables), where, "variable")
    variable = next(item for item in campaign.variables if item.id == variant.variable)
    outside = sorted(key for key in changed if not covers(variable.keys, key))
    if outside:
        raise ConfigError(
            f"variant {variant.id!r} changes {', '.join(outside)}, which is more than its "
            f"variable {variable.id!r} ({', '.join(variable.keys)})",
            f"{where}.set",
            "change one variable at a time: split the variant or add the key to the bundle",
        )
    if not changed:
        raise ConfigError(
            f"variant {variant.id!r} is the same as the server spec",
            f"{where}.set",
            "set a value that differs from `server`, or remove the variant",
        )
    if server.attach:
        raise ConfigError(
            f"variant {variant.id!r} changes a server that is only attached to",
            where,
            "remove `server.attach`, or measure the other server as a run of its own",
        )


def _check_lengths(campaign: Campaign, case: CaseSpec) -> None:
    per_k = campaign.scale.tokens_per_k
    limit = campaign.model.context
    if isinstance(case, ReplayCase):
        return  # its lengths are those of its trace, see `check_traces`
    if isinstance(case, MixedCase):
        pairs = [
            ("background.isl", case.background.isl, case.background.osl),
            ("inject.isl", case.inject.isl, case.inject.osl),
        ]
    else:
        pairs = [("isl", case.isl, case.osl)]
        if isinstance(case, FixedCase) and case.fallback:
            pairs.append(("fallback.isl", case.fallback.isl, case.fallback.osl or case.osl))
    for key, isl, osl in pairs:
        total = tokens(isl, per_k) + tokens(osl, per_k)
        if total > limit:
            raise ConfigError(
                f"ISL {isl} + OSL {osl} is {total} tokens, more than the model's context {limit}",
                f"cases.{case.id}.{key}",
                "shorten the case or raise model.context if the model really has more",
            )


def _check_slo(campaign: Campaign, case: SearchCase) -> None:
    if not (case.slo or campaign.slo).model_dump():
        raise ConfigError(
            f"search {case.id!r}: no SLO declared, no frontier",
            f"cases.{case.id}.slo",
            "give the campaign or the case an slo, such as { ttft_s: 2, tpot_s: 0.05 }",
        )


def _check_targets(campaign: Campaign) -> None:
    cases = [*(case.id for case in cases_of(campaign)), *groups_of(campaign)]
    before: dict[tuple[Wanted, str], int] = {}
    for number, target in enumerate(campaign.targets):
        where = f"targets.{number}"
        for name in target.cases:
            known(name, cases, f"{where}.cases", "case")
        wanted = parse_target(target.target)
        figure = wanted.figure.name
        for name in target.cases or cases:
            first = before.setdefault((wanted, name), number)
            if first != number:
                raise ConfigError(
                    f"{target.target!r} stands for case {name!r} already",
                    f"{where} and targets.{first}",
                    "leave one of the two out",
                )
        needs = {"weighted_tok_s": "weights", "goodput_req_s": "slo", "slo_share": "slo"}.get(
            figure
        )
        given = {"weights": campaign.weights is not None, "slo": bool(campaign.slo.model_dump())}
        if needs is not None and not given[needs]:
            raise ConfigError(
                f"{figure} is never measured: the campaign declares no {needs}",
                where,
                f"add `{needs}` (config/README.md), or leave the target out",
            )


def _check_phases(campaign: Campaign) -> None:
    points = [case.id for case in cases_of(campaign)]
    cases = [*points, *groups_of(campaign)]
    variants = [variant.id for variant in variants_of(campaign)]
    variants += [grid.id for grid in campaign.grids]
    phases = [phase.id for phase in campaign.phases]
    planned = 0
    for phase in campaign.phases:
        where = f"phases.{phase.id}"
        if phase.id in RESERVED_NAMES:
            raise ConfigError(
                f"phase {phase.id!r} has the name of a rule", where, "call it otherwise: phase1"
            )
        for name in phase.requires:
            known(name, phases, f"{where}.requires", "phase")
        for name in phase.cases:
            known(name, cases, f"{where}.cases", "case")
        for name in phase.variants:
            known(name, variants, f"{where}.variants", "variant or grid")
        for name in phase.baselines:
            known(name, (item.id for item in campaign.baselines), f"{where}.baselines", "baseline")
        for capture in phase.captures:
            known(capture.case, points, f"{where}.captures", "case")
        if phase.rule:
            check_milestone(campaign, phase, phase.rule)
        planned += len(phase.cases) + len(phase.baselines) + len(phase.captures)
    if not planned:
        raise ConfigError(
            "no phase has a case, a baseline or a capture",
            "phases",
            "list at least one case under a phase's `cases`",
        )
    _check_circle(campaign)


def _check_circle(campaign: Campaign) -> None:
    requires = {phase.id: phase.requires for phase in campaign.phases}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ConfigError(
                f"phases require each other: {' -> '.join((*path, name))}",
                f"phases.{name}.requires",
                "break the circle",
            )
        for other in requires[name]:
            visit(other, (*path, name))

    for phase in requires:
        visit(phase, ())
