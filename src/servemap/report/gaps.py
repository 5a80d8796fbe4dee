"""Sections on what is missing: failures, what was not measured, files that could not be read."""

from collections.abc import Sequence
from typing import Any

from servemap.analysis.check_table import check_texts
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import P99_SAMPLES
from servemap.parsers.values import mapping, sequence
from servemap.report.document import Block, Cell, Section, Table, cell
from servemap.report.reasons import reason_cell, reasons_of
from servemap.report.results import outcome
from servemap.report.run import Run

MOST_CASES = 20
_COLUMNS = ["Outcome", "Repeats", "Cases", "Attempt", "Reasons", "Errors of requests"]


def failures(run: Run) -> Section:
    """Everything that failed, was not run or is not valid; equal reasons share a row."""
    groups: dict[tuple[str, Cell, str], list[Repeat]] = {}
    for repeat in run.repeats:
        kind = outcome(repeat)
        if kind != "valid":
            key = (kind, reason_cell(repeat.reasons), _errors(repeat))
            groups.setdefault(key, []).append(repeat)
    rows = [
        [
            Cell(kind.replace("_", " "), tone="warn" if kind == "not_run" else "bad"),
            Cell(str(len(repeats))),
            Cell(_named(repeats)),
            cell(", ".join(map(str, sorted({one.attempt for one in repeats if one.attempt})))),
            reasons,
            cell(errors),
        ]
        for (kind, reasons, errors), repeats in groups.items()
    ]
    blocks = [
        Block(
            f"Last lines of the server's log, variant {variant} (launch failed)",
            [str(line) for line in sequence(record.get("log_tail"))],
        )
        for variant, record in run.launches.items()
        if record.get("status") == "failed" and record.get("log_tail")
    ]
    if not rows and not blocks:
        return Section("failures", "Failures", ["Every planned repeat was measured and is valid."])
    table = Table(_COLUMNS, rows, frozenset(["Repeats"]))
    note = "Figures of these repeats are in summary.csv as evidence; no plot or mean uses them."
    return Section(
        "failures",
        "Failures and invalid repeats",
        [note] if rows else [],
        [table] if rows else [],
        blocks=blocks,
    )


def _named(repeats: Sequence[Repeat]) -> str:
    """Return which repeats some are: `VARIANT/CASE r1 r2, ...`; summary.csv has all."""
    numbers: dict[str, list[str]] = {}
    for one in repeats:
        numbers.setdefault(f"{one.variant}/{one.case}", []).append(f"r{one.repeat}")
    names = [" ".join([name, *own]) for name, own in numbers.items()]
    more = f" and {len(names) - MOST_CASES} more" if len(names) > MOST_CASES else ""
    return ", ".join(names[:MOST_CASES]) + more


def _errors(repeat: Repeat) -> str:
    errors = mapping(repeat.metrics.get("errors"))
    return "; ".join(f"{count} x {reason}" for reason, count in errors.items())


def not_measured(run: Run) -> Section:
    """What this report does not know, so that silence is not taken for a good result."""
    rows: list[list[Cell]] = []

    def add(what: str, why: str | Cell) -> None:
        rows.append([Cell(what), Cell(why) if isinstance(why, str) else why])

    not_run: dict[Cell, list[Repeat]] = {}
    for repeat in run.repeats:
        if repeat.status == "not_run":
            not_run.setdefault(reason_cell(repeat.reasons), []).append(repeat)
    for reasons, repeats in not_run.items():
        add(_named(repeats), reasons)
    for (variant, case), record in run.captures.items():
        if record.get("status") != "ok":
            add(f"profile of {variant}/{case}", reasons_of(record))
    for name, record in run.baselines.items():
        if record.get("status") != "ok":
            add(f"baseline {name}", reasons_of(record))
    valid = run.valid
    blocks = [mapping(segment.get("metrics")) for r in valid for segment in r.segments]
    if blocks and all(block.get("goodput_req_s") is None for block in blocks):
        add("goodput and the SLO frontier", "the campaign declares no SLO")
    if blocks and all(block.get("weighted_tok_s") is None for block in blocks):
        add(
            "weighted token throughput",
            "the campaign declares no weights, or the server does not report cached tokens",
        )
    if any(mapping(block.get("tokens")).get("cached") is None for block in blocks):
        add("cache hits of some cases", "the server does not report cached tokens")
    few = sum(0 < int(mapping(block.get("ttft_s")).get("n") or 0) < P99_SAMPLES for block in blocks)
    if few:
        add(
            "a P99 of requests",
            f"{few} of {len(blocks)} segments have fewer than "
            f"{P99_SAMPLES} requests: their P99 is close to the slowest one",
        )
    for what, why in _not_applicable(valid):
        add(what, why)
    for flag, count in _flags(blocks).items():
        add(f"{count} requests: {flag.replace('_', ' ')}", _FLAG_MEANINGS.get(flag, ""))
    once = sum(row["planned"] == 1 for row in run.aggregates)
    if once:
        add("run-to-run noise", f"{once} of {len(run.aggregates)} cases have one repeat")
    cards = [mapping(mapping(f.get("facts")).get("accelerators")) for f in run.freezes.values()]
    if cards and not any(found.get("found") for found in cards):
        add("the nodes' accelerators", "no tool of theirs that servemap knows found any")
    if not rows:
        return Section("not-measured", "Not measured", ["Nothing that was planned is missing."])
    return Section("not-measured", "Not measured", tables=[Table(["What", "Why"], rows)])


def _not_applicable(valid: list[Repeat]) -> list[tuple[str, str]]:
    """Return which checks said nothing of some valid repeats, and when they do not."""
    counts: dict[str, int] = {}
    for repeat in valid:
        checks = [mapping(check) for check in sequence(repeat.metrics.get("checks"))]
        names = {str(c.get("name")).split()[0] for c in checks if c.get("ok") is None}
        for name in names:
            counts[name] = counts.get(name, 0) + 1
    return [
        (
            f"check {text.name}",
            f"{counts[text.name]} of {len(valid)} valid repeats: {text.not_applicable}",
        )
        for text in check_texts()
        if text.name in counts
    ]


_FLAG_MEANINGS = {
    "multi_token_chunks": "several tokens in one event: ITL spreads the gap over them",
    "chunk_tokens_estimated": "the server gives a total only: tokens are spread evenly over events",
    "more_chunks_than_tokens": "more text events than counted tokens: ITL is per event",
    "hidden_first_tokens": "the first event may hold many tokens: TTFT includes them, TPOT is null",
    "first_token_not_visible": "no event showed the token: TTFT is an upper bound",
    "no_usage": "the server sent no token counts",
    "reasoning_count_contradicted": "more reasoning came than the server counted: not known",
    "token_counts_contradicted": "counts on events are not those of the total: spread evenly",
    "cached_count_contradicted": "more cached tokens than the prompt has: not known",
    "more_reasoning_than_output": "more reasoning was counted than output: not known",
    "prompt_tokens_differ": "the server counted another prompt length than was asked",
    "output_tokens_as_asked": "the client counts no tokens: what was asked for stands",
    "output_tokens_of_own_tokenizer": "no token counts were sent: the client counted the text",
    "counted_without_a_token": "the client calls it a success though no token came: failed here",
    "start_not_known": "the client does not save when it sent a request",
    "event_times_run_backwards": "the events' times are not in order: no latency is given",
}


def _flags(blocks: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for block in blocks:
        for flag, count in mapping(block.get("flags")).items():
            counts[flag] = counts.get(flag, 0) + count
    return counts


def problems(run: Run) -> Section:
    """Files that could not be read, or not wholly."""
    rows = [[Cell(problem)] for problem in run.problems]
    if not rows:
        return Section("problems", "Input files", ["Every file that was read is whole."])
    return Section("problems", "Input files", tables=[Table(["Missing, damaged or cut"], rows)])
