"""Targets of a campaign against what was measured: pass, fail, or not measured and why."""

from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import Any, Literal, NamedTuple

from servemap.analysis.metrics import pick
from servemap.analysis.repeats import Repeat, read_repeat
from servemap.model.errors import parts
from servemap.model.targets import Wanted, parse_target
from servemap.parsers.values import mapping, sequence, text

Result = Literal["pass", "fail", "not measured"]

COLUMNS = (
    "variant",
    "case",
    "repeat",
    "attempt",
    "verdict",
    "segment",
    "target",
    "figure",
    "value",
    "limit",
    "unit",
    "result",
    "reason",
    "gate",
)

Row = dict[str, Any]
_MOST_WORDS = 48
"""Characters of a short reason."""


class Judged(NamedTuple):
    """One target of one repeat; `value` is None where it was not measured, `reason` says why."""

    repeat: Repeat
    wanted: Wanted
    target: str
    gate: bool
    value: float | None
    result: Result
    reason: str

    @property
    def short_reason(self) -> str:
        """Why it was not measured, in a few words; empty where it was."""
        return _short(self.repeat) if self.reason and not self.repeat.valid else self.reason


def _short(repeat: Repeat) -> str:
    """Return what a repeat that is not valid is, with the first reason's first words."""
    state = "invalid" if repeat.status == "ok" else repeat.status.replace("_", " ")
    first = parts(repeat.reasons[0]).what.partition(":")[0] if repeat.reasons else ""
    known = first and first != "not measured"
    return f"{state}: {shorten(first, _MOST_WORDS, placeholder=' ...')}" if known else state


def judge(repeat: Repeat, targets: Iterable[Any]) -> list[Judged]:
    """Return how a repeat stands to the targets of its case ({target, gate}).

    The figures are those of the segment that stands for the case. An invalid measurement neither
    passes nor fails.
    """
    found = []
    for one in map(mapping, targets):
        said = text(one.get("target")) or ""
        wanted = parse_target(said)
        block = mapping(repeat.headline.get("metrics"))
        value, reason = _value(repeat, block, wanted)
        result: Result = "not measured"
        if value is not None:
            result = "pass" if wanted.met_by(value) else "fail"
        found.append(Judged(repeat, wanted, said, one.get("gate") is True, value, result, reason))
    return found


def _value(repeat: Repeat, block: Row, wanted: Wanted) -> tuple[float | None, str]:
    if not repeat.valid:
        return None, "; ".join(repeat.reasons) or f"the measurement is {repeat.verdict}"
    path = wanted.figure.path
    value = pick(repeat.headline if path.startswith("engine.") else block, path)
    return (value, "") if value is not None else (None, _missing(block, wanted.figure.path))


def _missing(block: Row, path: str) -> str:
    """Say why a valid measurement does not have a figure."""
    if not block:
        return "no level of the search met the SLO"
    tokens = mapping(block.get("tokens"))
    if not block.get("ok"):
        return "no request succeeded"
    if path in ("goodput_req_s", "slo_share"):
        return "the campaign declares no SLO"
    cached = ("cache_hit_rate", "cached_input_tok_s", "uncached_input_tok_s", "weighted_tok_s")
    if path in cached and tokens.get("cached") is None:
        return "the server does not report cached tokens"
    if path == "weighted_tok_s":
        return "the campaign declares no weights"
    if path.startswith("engine."):
        return "the engine's counters do not tell it"
    if path.startswith(("tpot_s", "itl_s", "chunk_gap_s", "req_output_tps")):
        return "no answer had time between its tokens"
    return "this measurement does not have it"


def target_rows(judged: Iterable[Judged]) -> list[Row]:
    """Return the rows of tables/targets.csv; what is not known is None."""
    return [
        {
            "variant": one.repeat.variant,
            "case": one.repeat.case,
            "repeat": one.repeat.repeat,
            "attempt": one.repeat.attempt,
            "verdict": one.repeat.verdict,
            "segment": one.repeat.headline.get("name"),
            "target": one.target,
            "figure": one.wanted.figure.name,
            "value": one.value,
            "limit": one.wanted.limit,
            "unit": one.wanted.figure.unit,
            "result": one.result,
            "reason": one.reason,
            "gate": one.gate,
        }
        for one in judged
    ]


def over_repeats(results: Sequence[Result]) -> Result:
    """Return a case's result: every valid repeat has to pass, and one must be there."""
    known = [result for result in results if result != "not measured"]
    if not known:
        return "not measured"
    return "pass" if all(result == "pass" for result in known) else "fail"


def missed(folder: Any, rows: Iterable[Row]) -> tuple[list[str], list[str]]:
    """Return what targets are not met, in lines: those that fail the gate, and the others.

    A target that was not measured is not met. Repeats of a case that say the same are one line.

    Args:
        folder: results/RUN.
        rows: planned repeats, each with `variant`, `case`, `repeat` and `targets`.
    """
    groups: dict[tuple[Any, ...], list[Judged]] = {}
    for row in rows:
        for one in judge(read_repeat(folder, row), sequence(row.get("targets"))):
            key = (one.repeat.variant, one.repeat.case, one.target, one.gate)
            groups.setdefault(key, []).append(one)
    strict: list[str] = []
    others: list[str] = []
    for (*_, gate), group in groups.items():
        (strict if gate else others).extend(_missed_lines(group))
    return strict, others


def _missed_lines(group: list[Judged]) -> list[str]:
    """Return the lines of one target of one case: one where all repeats say the same."""
    first = group[0]
    name = f"{first.repeat.variant}/{first.repeat.case}"
    alike = {(one.result, one.short_reason) for one in group}
    if len(group) > 1 and len(alike) == 1 and first.result != "pass":
        got = [first.short_reason] if first.value is None else [_got(one) for one in group]
        where = f"{name}, all {len(group)} repeats"
        return [f"target {first.target}: {first.result} in {where}: {', '.join(got)}"]
    return [
        f"target {one.target}: {one.result} in {name} r{one.repeat.repeat}: {_got(one)}"
        for one in group
        if one.result != "pass"
    ]


def _got(one: Judged) -> str:
    return one.short_reason if one.value is None else f"{one.value:.4g}"
