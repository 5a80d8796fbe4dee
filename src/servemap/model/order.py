"""The order of a plan's measuring jobs: interleaved against drift, few starts of the server."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Literal

Order = Literal["interleaved", "blocked", "relaunched"]
CaseKey = tuple[str, str, int]
"""Variant, case, repeat (from 1)."""
JobKey = tuple[str, ...]


def repeats_in_order(
    order: Order,
    variants: Sequence[str],
    cases: Sequence[str],
    repeats: Mapping[tuple[str, str], int],
) -> list[CaseKey]:
    """Return every repeat in the order in which it is measured.

    `interleaved` and `blocked` finish a variant before the next one, so each server is started
    once: the first goes round all cases, repeat by repeat, so that a drift meets all cases alike;
    the second takes a case's repeats one after the other. `relaunched` goes round all variants,
    so that the repeats of a case are hours and starts apart.

    Args:
        order: which of the three.
        variants: in the planned order.
        cases: in the planned order.
        repeats: how many are planned by variant and case.
    """
    variant_place = {name: place for place, name in enumerate(variants)}
    case_place = {name: place for place, name in enumerate(cases)}

    def turn(key: CaseKey) -> tuple[int, int, int]:
        variant, case, repeat = variant_place[key[0]], case_place[key[1]], key[2]
        if order == "interleaved":
            return variant, repeat, case
        return (variant, case, repeat) if order == "blocked" else (repeat, variant, case)

    keys = [
        (variant, case, repeat)
        for variant, case in product(variants, cases)
        for repeat in range(1, 1 + repeats.get((variant, case), 0))
    ]
    return sorted(keys, key=turn)


def job_sequence(
    baselines: Iterable[str],
    calibrated: bool,
    repeats: Sequence[CaseKey],
    captures: Iterable[tuple[str, str]],
) -> dict[JobKey, int]:
    """Return the positions of all measuring jobs: baselines, then cases with what they need.

    The calibration of the load client, where it is planned, comes before any server is there. A
    variant's patches and launch come right before its first case, its captures right after its
    last one. Keys: ("baseline", NAME), ("calibrate",), ("patch", V), ("launch", V),
    ("case", V, C, K), ("capture", V, C).
    """
    profiles: dict[str, list[JobKey]] = {}
    for variant, case in captures:
        profiles.setdefault(variant, []).append(("capture", variant, case))
    last = {variant: index for index, (variant, _, _) in enumerate(repeats)}
    order: dict[JobKey, None] = {("baseline", name): None for name in baselines}
    if calibrated:
        order[("calibrate",)] = None
    for index, (variant, case, repeat) in enumerate(repeats):
        order |= dict.fromkeys([("patch", variant), ("launch", variant)])
        order[("case", variant, case, str(repeat))] = None
        if index == last[variant]:
            order |= dict.fromkeys(profiles.pop(variant, []))
    for variant, jobs in profiles.items():
        order |= dict.fromkeys([("patch", variant), ("launch", variant), *jobs])
    return {key: position for position, key in enumerate(order)}
