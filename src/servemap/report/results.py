"""Sections on what was measured: summary and cases."""

from typing import Any

from servemap.analysis.compare import compare, of_row, reference
from servemap.analysis.metrics import pick
from servemap.analysis.repeats import Repeat
from servemap.analysis.summary import Row
from servemap.parsers.values import mapping, text
from servemap.report import client_error
from servemap.report.comparisons import tone_of
from servemap.report.document import MISSING, Cell, Section, Table, Tile, Tone, cell
from servemap.report.marks import marks
from servemap.report.milestones import milestones_in_words, missed_milestones
from servemap.report.numbers import change, plain, seconds
from servemap.report.run import Run, engine_of
from servemap.report.servers import gate_checks, gate_result, gates_in_words
from servemap.report.slo import asked

# Column, figure, and whether more is better.
CASE_FIGURES: tuple[tuple[str, str, bool], ...] = (
    ("Output tok/s", "agg_output_tps", True),
    ("Input tok/s", "input_tok_s", True),
    ("TTFT P50 ms", "ttft_p50_ms", False),
    ("TTFT P95 ms", "ttft_p95_ms", False),
    ("TPOT P50 ms", "tpot_p50_ms", False),
    ("TPOT P95 ms", "tpot_p95_ms", False),
    ("ITL P99 ms", "itl_p99_ms", False),
    ("E2E P95 ms", "e2e_p95_ms", False),
    ("Output TPS P10", "req_output_tps_p10", True),
)
TONES: dict[str, Tone] = {"valid": "good", "invalid": "bad", "not_run": "warn", "failed": "bad"}


def summary(run: Run) -> Section:
    """What was run, how much of it is valid, and the top-line numbers of each variant."""
    counts = {"valid": 0, "invalid": 0, "failed": 0, "not_run": 0}
    for repeat in run.repeats:
        counts[outcome(repeat)] += 1
    model = mapping(run.campaign.get("model"))
    nodes = [mapping(node) for node in run.campaign.get("nodes") or []]
    names = ", ".join(f"{n.get('id')} ({n.get('role')})" for n in nodes)
    what: list[tuple[str, str | None]] = [
        ("Model", text(model.get("name")) or text(model.get("path"))),
        ("Engine", engine_of(run)),
        ("Nodes", names),
        ("Load client runs on", _load_node(nodes, run)),
        ("Gates of the first starts", gates_in_words(run)),
        ("Lengths", _scale(run)),
        *asked(run.campaign),
        ("Milestones", milestones_in_words(run)),
        ("Variants", ", ".join(run.variants)),
        ("Cases", f"{len(run.cases)}, with {len(run.repeats)} planned repeats"),
        (
            "Measured windows",
            seconds(sum(pick(s, "duration_s") or 0 for r in run.repeats for s in r.segments)),
        ),
    ]
    tiles = [
        Tile("planned repeats", str(len(run.repeats))),
        *(
            Tile(label.replace("_", " "), str(n), tone=TONES[label] if n else "muted")
            for label, n in counts.items()
        ),
    ]
    columns = [
        "Variant",
        "Valid",
        "Best output tok/s",
        "Best input tok/s",
        "Lowest TTFT P50 ms",
        "Lowest TPOT P50 ms",
        "Injection: output",
        "Injection: TPOT P95",
    ]
    top = Table(
        columns,
        [_top_line(run, variant) for variant in run.variants],
        frozenset(columns[1:]),
        "Top line of each variant: means over valid repeats, with the case they come from",
    )
    facts = Table(["What was run", ""], [[Cell(k), cell(v)] for k, v in what])
    return Section("summary", "Summary", [*marks(run), *_warnings(run)], [facts, top], tiles=tiles)


def _load_node(nodes: list[dict[str, Any]], run: Run) -> str | None:
    """Return the node that the load was made on: the head where the campaign names none."""
    head = next((text(node.get("id")) for node in nodes if node.get("role") == "head"), None)
    return text(run.campaign.get("load_node")) or head


def _adopted(run: Run) -> list[str]:
    names = [
        f"{repeat.variant}/{repeat.case} r{repeat.repeat}"
        for repeat in run.repeats
        if repeat.meta.get("adopted") is True
    ]
    if not names:
        return []
    return [
        f"Adopted: {', '.join(names)}. The controller died while the load ran on; the next one "
        "finished the measurement."
    ]


def _scale(run: Run) -> str | None:
    per_k = mapping(run.campaign.get("scale")).get("tokens_per_k")
    return None if per_k in (None, 1024) else f"scaled down: 1K is {per_k} tokens here"


def _warnings(run: Run) -> list[str]:
    """What a reader must know before comparing variants."""
    once = sum(row["n"] == 1 for row in run.aggregates)
    failed = sum(gate_result(check) == "fail" for _, check in gate_checks(run))
    said = [f"Failed gates: {failed}; see the section on the server."] if failed else []
    said += missed_milestones(run)
    said += _adopted(run)
    if len(run.variants) < 2 or not once:
        return said
    return [
        *said,
        f"{once} of {len(run.aggregates)} rows rest on a single measurement: a difference between "
        "variants there may be noise. Repeat a case (repeats: 3) before acting on it.",
    ]


def outcome(repeat: Repeat) -> str:
    """Return valid, invalid (measured, but not to be used), failed or not_run."""
    if repeat.status in ("failed", "not_run"):
        return repeat.status
    return "valid" if repeat.valid else "invalid"


def _top_line(run: Run, variant: str) -> list[Cell]:
    rows = [row for row in run.aggregates if row["variant"] == variant and row["n"]]
    planned = [repeat for repeat in run.repeats if repeat.variant == variant]
    valid = sum(repeat.valid for repeat in planned)

    def extreme(figure: str, most: bool) -> Cell:
        known = [row for row in rows if row[f"{figure}_mean"] is not None]
        if not known:
            return MISSING
        best = (max if most else min)(known, key=lambda row: row[f"{figure}_mean"])
        return Cell(plain(best[f"{figure}_mean"]), best["case"])

    def injected(figure: str) -> Cell:
        known = [row for row in rows if row[f"{figure}_mean"] is not None]
        return Cell(change(known[0][f"{figure}_mean"]), known[0]["case"]) if known else MISSING

    return [
        Cell(variant),
        Cell(f"{valid} of {len(planned)}", tone="" if valid == len(planned) else "warn"),
        extreme("agg_output_tps", True),
        extreme("input_tok_s", True),
        extreme("ttft_p50_ms", False),
        extreme("tpot_p50_ms", False),
        injected("injected_output_tps_change_pct"),
        injected("injected_tpot_p95_change_pct"),
    ]


def cases(run: Run) -> Section:
    """Every case, variants side by side, each with its change against one that may be compared."""
    rows: list[list[Cell]] = []
    comparable = [names[0] for names in run.compared_with.values() if names]
    usual = next(iter(comparable or run.variants), None)
    for name in run.cases:
        own = [row for row in run.aggregates if row["case"] == name]
        for position, row in enumerate(own):
            base = reference(row, own, run.compared_with.get(row["variant"], []))
            label = Cell(row["variant"])
            if base is not None and base["variant"] != usual:
                label = Cell(row["variant"], f"against {base['variant']}")
            rows.append(_case_row(run, row, base, name if position == 0 else "", label))
    columns = ["Case", "ISL / OSL", "C", "Variant", "Valid", *(c for c, _, _ in CASE_FIGURES)]
    numeric = frozenset(columns) - {"Case", "Variant"}
    notes = [
        f"Means over valid repeats; the second line is the change against {usual}, or another "
        "variant that is named, at the same lengths; the two differ in one variable. It is "
        "coloured where the repeats resolve it, see the comparisons. A change between single "
        "measurements has no colour: its noise is not known.",
        "A mixed case shows its control segment; the injection is below. Output TPS P10 is the "
        "low tail of the single requests' output speed.",
        client_error.caption(run),
    ]
    return Section("cases", "Cases", notes, [Table(columns, rows, numeric, groups=True)])


def _case_row(run: Run, row: Row, base: Row | None, name: str, label: Cell) -> list[Cell]:
    own = [r for r in run.rows if (r["variant"], r["case"]) == (row["variant"], row["case"])]
    concurrency = next((r["concurrency"] for r in own if r["concurrency"]), None)
    rate = next((r["rate_rps"] for r in own if r["rate_rps"]), None)
    lengths = _replayed(own) or f"{plain(row['isl'])} / {plain(row['osl'])}"
    fallback = row["lengths"] == "fallback"
    whole = row["n"] == row["planned"]
    tone: Tone = "" if whole else "warn" if row["n"] else "bad"
    return [
        Cell(name),
        Cell(lengths, "fallback" if fallback else "", "warn" if fallback else ""),
        _load(own, concurrency, rate),
        label,
        Cell(f"{row['n']}/{row['planned']}", tone=tone),
        *(_figure(row, base, figure, more) for _, figure, more in CASE_FIGURES),
    ]


def _replayed(rows: list[Row]) -> str | None:
    """Return the mean lengths of a replay's requests; None for a case of another kind."""
    replays = [row for row in rows if row["kind"] == "replay"]
    if not replays:
        return None
    for row in replays:
        given = [row["input_tokens_planned"], row["output_tokens_planned"]]
        if row["requests"] and None not in given:
            return "trace, mean " + " / ".join(f"{total / row['requests']:.0f}" for total in given)
    return "trace"


def _load(rows: list[Row], concurrency: int | None, rate: float | None) -> Cell:
    """Return how requests come: so many in flight, so many a second, or at a trace's times."""
    if rate is None and concurrency is None and any(row["kind"] == "replay" for row in rows):
        return Cell("its times")
    return cell(concurrency) if rate is None else Cell(f"{rate:g}/s")


def _figure(row: Row, base: Row | None, figure: str, more_is_better: bool) -> Cell:
    value = row[f"{figure}_mean"]
    if value is None:
        return MISSING
    found = compare(of_row(base, figure), of_row(row, figure), more_is_better) if base else None
    if found is None:
        return Cell(plain(value))
    return Cell(plain(value), change(found.effect_pct), tone_of(found))
