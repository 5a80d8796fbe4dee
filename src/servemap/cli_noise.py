"""What `servemap plan` says of order and noise: the smallest change that the repeats can show."""

import csv
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from servemap.analysis.noise import smallest_effect
from servemap.model.order import CaseKey, Order

FIGURE = "agg_output_tps"
ORDERS: dict[Order, str] = {
    "interleaved": "r1 of all cases, then r2; each variant on one start of its server",
    "blocked": "all repeats of a case in a row; each variant on one start of its server",
    "relaunched": "r1 of all variants, then r2; each round on a start of its own",
}
Pair = tuple[str, str]
"""Variant and case."""


def noise_lines(
    order: Order, repeats: Iterable[CaseKey], assumed_cv: float, measured: Mapping[Pair, float]
) -> str:
    """Return the order of the repeats, and for each number of them the change that they can show.

    Args:
        order: the policy's.
        repeats: what is planned.
        assumed_cv: CV of a case of which nothing is known, as a share.
        measured: CV of output tok/s by variant and case, as a share, as far as it was measured.
    """
    planned = Counter((variant, case) for variant, case, _ in repeats)
    lines = [f"order of repeats: {order}: {ORDERS[order]}"] if planned else []
    for n in sorted(set(planned.values())):
        pairs = [pair for pair, count in planned.items() if count == n]
        cases = len({case for _, case in pairs})
        count = f"{cases} case{'s' if cases > 1 else ''}"
        effect = smallest_effect(assumed_cv, n)
        if effect is None:
            lines.append(f"noise, {count} of 1 repeat: no noise floor, no change can be resolved")
            continue
        lines.append(
            f"noise, {count} of {n} repeats: no change below {effect * 100:.1f} % can be resolved "
            f"at an assumed CV of {assumed_cv * 100:g} % (two-sided 5 %, power 80 %)"
        )
        lines += _measured_lines(n, {pair: measured[pair] for pair in pairs if pair in measured})
    return "\n".join(lines)


def _measured_lines(n: int, known: Mapping[Pair, float]) -> list[str]:
    """Return what the CVs that were measured make of it: their median, and the worst case."""
    if not known:
        return []
    worst = max(known, key=lambda pair: known[pair])
    figures = (statistics.median(known.values()), known[worst])
    said = [
        f"{effect * 100:.1f} % at CV {cv * 100:.1f} %"
        for cv in figures
        if (effect := smallest_effect(cv, n)) is not None
    ]
    return [f"  as measured, output tok/s: below {said[0]} (median), {said[1]} ({'/'.join(worst)})"]


def measured_cvs(aggregate_csv: Path) -> dict[Pair, float]:
    """Return the CVs in a run's aggregate.csv at planned lengths; empty where there is none."""
    try:
        with aggregate_csv.open(newline="", encoding="utf-8") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}
    found: dict[Pair, float] = {}
    for row in rows:
        try:
            cv = float(row.get(f"{FIGURE}_cv") or "")
        except ValueError:
            continue
        if row.get("lengths") == "planned" and 0 <= cv < float("inf"):
            found[str(row.get("variant")), str(row.get("case"))] = cv
    return found
