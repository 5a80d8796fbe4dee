"""Section on fixed points and targets: each case's key figures, and how it meets its targets."""

from statistics import fmean

from servemap.analysis.metrics import pick
from servemap.analysis.repeats import Repeat
from servemap.analysis.targets import Judged, judge, over_repeats
from servemap.model.targets import Figure, figures
from servemap.parsers.values import mapping
from servemap.report.document import MISSING, Cell, Section, Table, Tone
from servemap.report.numbers import percent, plain
from servemap.report.run import Run
from servemap.report.slo import asked

# Key figures of a fixed point, and those that stand below a case's targets for reference.
POINT_FIGURES = (
    "success_rate",
    "ttft_p90_s",
    "output_tps_p10",
    "output_tps_p50",
    "agg_output_tps",
)
REFERENCE_FIGURES = ("agg_output_tps", "uncached_input_tok_s", "cached_input_tok_s")
_TONES: dict[str, Tone] = {"pass": "good", "fail": "bad", "not measured": "warn"}


def targets(run: Run) -> Section:
    """Fixed points of all cases, then a table for each case that has targets."""
    tables = [_points(run)]
    for case in run.cases:
        tables += _case_tables(run, case)
    notes = [
        "Means over valid repeats. A target is met if every valid repeat meets it; an invalid "
        "measurement neither passes nor fails. Output TPS is of single requests: its P10 is the "
        "low tail. A mixed case shows its control segment. The reasons of what was not measured "
        "stand in full under failures.",
        *(f"{name}: {said}." for name, said in asked(run.campaign)),
    ]
    if not any(run.targets.values()):
        notes.append("The campaign declares no targets.")
    return Section("targets", "Fixed points and targets", notes, tables)


def _points(run: Run) -> Table:
    known = [figures()[name] for name in POINT_FIGURES]
    columns = ["Case", "Variant", "C", "Requests", *map(_title, known)]
    rows = []
    for case in run.cases:
        for position, variant in enumerate(run.variants):
            repeats = _repeats(run, variant, case)
            if not repeats:
                continue
            valid = [repeat for repeat in repeats if repeat.valid]
            load = repeats[0].steady
            rate = load.get("rate_rps")
            rows.append(
                [
                    Cell("" if position else case),
                    Cell(variant),
                    Cell(f"{rate:g}/s" if rate else plain(load.get("concurrency"))),
                    _requests_cell(valid),
                    *(_mean_cell(valid, figure) for figure in known),
                ]
            )
    caption = "Fixed points; requests are those of one repeat"
    return Table(columns, rows, frozenset(columns[2:]), caption, groups=True)


def _case_tables(run: Run, case: str) -> list[Table]:
    judged: dict[str, dict[str, list[Judged]]] = {}
    for repeat in run.repeats:
        if repeat.case == case:
            key = (repeat.variant, repeat.case, repeat.repeat)
            for one in judge(repeat, run.targets.get(key, ())):
                judged.setdefault(one.target, {}).setdefault(repeat.variant, []).append(one)
    if not judged:
        return []
    variants = [v for v in run.variants if any(v in found for found in judged.values())]
    columns = ["Figure", *variants, "Target"]
    rows = []
    for found in judged.values():
        wanted = next(iter(found.values()))[0].wanted
        limit = f"{wanted.sign} {_shown(wanted.figure, wanted.limit)}"
        cells = [_judged_cell(found.get(variant, [])) for variant in variants]
        rows.append([Cell(_title(wanted.figure)), *cells, Cell(limit)])
    named = {one[0].wanted.figure.name for found in judged.values() for one in found.values()}
    for name in REFERENCE_FIGURES:
        if name not in named:
            figure = figures()[name]
            values = [
                _mean_cell([r for r in _repeats(run, variant, case) if r.valid], figure)
                for variant in variants
            ]
            rows.append([Cell(_title(figure)), *values, Cell("-", "for reference", "muted")])
    return [Table(columns, rows, frozenset(columns[1:]), f"Targets of {case}")]


def _judged_cell(found: list[Judged]) -> Cell:
    """Return the mean of a target's figure, and pass, fail, or not measured with the reason."""
    if not found:
        return MISSING
    result = over_repeats([one.result for one in found])
    values = [one.value for one in found if one.value is not None]
    if not values:
        reasons = "; ".join(dict.fromkeys(one.short_reason for one in found))
        return Cell("-", f"not measured, {reasons}", _TONES[result])
    passed = sum(one.result == "pass" for one in found)
    several = f", {passed} of {len(values)} repeats" if len(found) > 1 else ""
    return Cell(_shown(found[0].wanted.figure, fmean(values)), f"{result}{several}", _TONES[result])


def _repeats(run: Run, variant: str, case: str) -> list[Repeat]:
    return [one for one in run.repeats if (one.variant, one.case) == (variant, case)]


def _requests_cell(valid: list[Repeat]) -> Cell:
    """Return the requests of a repeat: fewest and most where the repeats differ."""
    counts = [pick(mapping(repeat.headline.get("metrics")), "requests") for repeat in valid]
    known = sorted({count for count in counts if count is not None})
    return Cell(" to ".join(map(plain, [known[0], known[-1]][: len(known)]))) if known else MISSING


def _mean(valid: list[Repeat], path: str) -> float | None:
    values = [pick(mapping(repeat.headline.get("metrics")), path) for repeat in valid]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _mean_cell(valid: list[Repeat], figure: Figure) -> Cell:
    value = _mean(valid, figure.path)
    return MISSING if value is None else Cell(_shown(figure, value))


def _title(figure: Figure) -> str:
    return f"{figure.title} {figure.unit}" if figure.unit == "s" else figure.title


def _shown(figure: Figure, value: float) -> str:
    return percent(value, 2) if figure.unit == "share" else plain(value)
