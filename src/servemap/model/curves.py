"""Curves and levels: a list of concurrencies or rates, each an ordinary case of its own."""

import math

from servemap.model.cases import CaseBase, CaseSpec, CurveCase, FixedCase, RateCase


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
