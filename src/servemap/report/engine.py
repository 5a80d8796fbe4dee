"""Section on what the engine tells by itself: queue time, its own times, speculative decoding."""

from statistics import fmean
from typing import Any

from servemap.analysis.metrics import pick
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import change_percent
from servemap.report.document import MISSING, Cell, Section, Table
from servemap.report.numbers import change, percent, plain
from servemap.report.run import Run

_TIMES = (("Queue", "queue_time_s"), ("Prefill", "prefill_time_s"), ("Decode", "decode_time_s"))
_SPECULATIVE = "engine.speculative"


def engine(run: Run) -> Section | None:
    """Return the section; None where no engine told anything of a valid measurement."""
    groups: dict[tuple[str, str], list[Repeat]] = {}
    for repeat in run.valid:
        if repeat.headline.get("engine"):
            groups.setdefault((repeat.case, repeat.variant), []).append(repeat)
    if not groups:
        return None
    speculative = {
        key: repeats
        for key, repeats in groups.items()
        if any(
            _mean(repeats, f"{_SPECULATIVE}.{figure}") is not None
            for figure in ("drafts", "accept_rate")
        )
    }
    notes = [
        "By the engine's own counters between the first and the last scrape inside the segment, "
        "means over valid repeats. P90 is estimated within the bounds that the engine's histogram "
        "and its mean leave, which are below it. Steps and forwards are those that gave a token: "
        "one that only worked on a part of long prompts is not counted by the engine.",
    ]
    tables = [_times(groups)]
    if speculative:
        tables.append(_drafts(run, groups, speculative))
    return Section("engine", "The engine's own figures", notes, tables)


def _times(groups: dict[tuple[str, str], list[Repeat]]) -> Table:
    columns = ["Case", "Variant"]
    for title, _ in _TIMES:
        columns += [f"{title} mean ms", f"{title} P90 ms"]
    rows = []
    for (case, variant), repeats in groups.items():
        cells = [Cell(case), Cell(variant)]
        for _, name in _TIMES:
            parts = ("mean", "estimated.p90", "at_least.p90", "at_most.p90")
            mean, p90, least, most = (_ms(repeats, f"engine.{name}.{part}") for part in parts)
            cells += [_number(mean), _number(p90)]
            if least is not None and most is not None:
                cells[-1] = Cell(plain(p90), f"{plain(least)} to {plain(most)}")
        rows.append([*cells, _number(_mean(repeats, "engine.steps_per_s"))])
    columns.append("Steps/s")
    return Table(columns, rows, frozenset(columns[2:]), "Requests inside the engine")


def _drafts(
    run: Run,
    groups: dict[tuple[str, str], list[Repeat]],
    speculative: dict[tuple[str, str], list[Repeat]],
) -> Table:
    columns = [
        "Case", "Variant", "Accept rate", "Mean accept length", "Draft tokens/s",
        "Target forwards/s", "Net: output tok/s", "Net: TPOT P50",
    ]  # fmt: skip
    rows = []
    for (case, variant), repeats in speculative.items():
        without = next(
            (
                name
                for name in run.compared_with.get(variant, [])
                if (case, name) in groups and (case, name) not in speculative
            ),
            None,
        )
        other = groups[(case, without)] if without is not None else []
        rate = _mean(repeats, f"{_SPECULATIVE}.accept_rate")
        idle = rate is None and _mean(repeats, f"{_SPECULATIVE}.drafts") == 0
        against = f"against {without}{', nothing was drafted' if idle else ''}"
        rows.append(
            [
                Cell(case),
                Cell(variant),
                Cell(percent(rate)),
                _number(_mean(repeats, f"{_SPECULATIVE}.mean_accept_length")),
                _number(_mean(repeats, f"{_SPECULATIVE}.draft_tokens_per_s")),
                _number(_mean(repeats, f"{_SPECULATIVE}.target_forward_rate")),
                _net(repeats, other, "metrics.agg_output_tps", against),
                _net(repeats, other, "metrics.tpot_s.p50", against),
            ]
        )
    caption = "Speculative decoding; net is the change against the same without it"
    return Table(columns, rows, frozenset(columns[2:]), caption)


def _net(repeats: list[Repeat], other: list[Repeat], path: str, against: str) -> Cell:
    delta = change_percent(_mean(other, path), _mean(repeats, path))
    return MISSING if delta is None else Cell(change(delta), against)


def _mean(repeats: list[Repeat], path: str) -> float | None:
    values: list[Any] = [pick(repeat.headline, path) for repeat in repeats]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _ms(repeats: list[Repeat], path: str) -> float | None:
    value = _mean(repeats, path)
    return None if value is None else value * 1e3


def _number(value: float | None) -> Cell:
    return MISSING if value is None else Cell(plain(value))
