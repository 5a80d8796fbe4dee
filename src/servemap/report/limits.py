"""Section on the distance to the limit: decode cases beside what memory bandwidth allows."""

from statistics import fmean
from typing import Any

from servemap.analysis.bounds.nvlink import nvlink_missing
from servemap.analysis.bounds.pcie import below_own
from servemap.analysis.bounds.rows import Distance, distances
from servemap.analysis.bounds.use import link_states, slow_links, use_rows
from servemap.parsers.values import mapping
from servemap.report.communication import RAILS_NOTE, rails_table
from servemap.report.document import MISSING, Cell, Section, Table
from servemap.report.numbers import percent, plain, size
from servemap.report.reasons import reason_cell
from servemap.report.run import Run
from servemap.report.sheets import sheets_note, sheets_of, sheets_table

_COLUMNS = [
    "Case",
    "Variant",
    "C",
    "Mean context",
    "Weights a step",
    "KV a step",
    "Bound tok/s",
    "Decode tok/s",
    "Of the bound",
]
_USE_COLUMNS = [
    *("Case", "Variant", "Node", "Resource", "Most used", "Mean", "P95", "Limit", "Unit"),
    *("Mean of the limit", "P95 of the limit"),
]
_USE_NOTE = (
    "Hardware beside its limits: of each kind on each node the entity, in one valid repeat, that "
    "came nearest to its limit by the P95; all of them: tables/hardware_use.csv. Rates of HCAs, "
    "interfaces and links are of each direction."
)
_ABOVE = "above the bound: an assumption does not hold"


def limits(run: Run) -> Section | None:
    """Return each decode case with its bound, hardware and rails; None where there is nothing."""
    facts = {node: mapping(record.get("facts")) for node, record in run.freezes.items()}
    found = distances(run.valid, facts, run.bandwidth)
    used = use_rows(run.valid, facts)
    rails = rails_table(run)
    few = [*below_own(facts), *nvlink_missing(facts)]
    if not found and not used and not few and rails is None:
        return None
    rows = []
    for case in run.cases:
        own = [one for one in found if one.repeat.case == case]
        for position, variant in enumerate(v for v in run.variants if _of(own, v)):
            rows.append([Cell("" if position else case), *_cells(variant, _of(own, variant))])
    sources = sorted({one.bandwidth.source for one in found if one.bandwidth})
    notes = [
        "An upper bound of the tokens/s of decoding: every step reads the weights that its batch "
        "needs and the KV cache of its requests once, at the full memory bandwidth of the cards, "
        "and does nothing else. Bytes are those that one rank of each stage reads. Means over "
        "valid repeats; the time of prefills inside the window counts against what was reached. "
        "Assumptions and an example: docs/limits.md; every repeat: tables/limits.csv.",
    ]
    if sources:
        notes.append(f"Memory bandwidth: {'; '.join(sources)}.")
    tables = [Table(_COLUMNS, rows, frozenset(_COLUMNS[2:]), groups=True)] if found else []
    if shown := [row for row in used if row["resource"] not in link_states()]:
        tables.append(_use_table(shown))
        notes.append(_USE_NOTE)
    if sheets := sheets_of(facts):
        tables.append(sheets_table(sheets))
        notes.append(sheets_note(sheets))
    if few:
        notes.append(f"Links below what their device can do, as frozen: {'; '.join(few)}.")
    if slow := slow_links(used):
        notes.append(
            f"Links that stayed below what their card can do while cases ran: {'; '.join(slow)}."
        )
    if rails is not None:
        tables.append(rails)
        notes.append(RAILS_NOTE)
    return Section("limits", "Distance to the limit", notes, tables)


def _use_table(used: list[dict[str, Any]]) -> Table:
    """Return the most used entity of each kind on each node, by its P95."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in used:
        key = tuple(str(row[name]) for name in ("case", "variant", "node", "resource"))
        groups.setdefault(key, []).append(row)
    rows = []
    for key, found in groups.items():
        most = max(found, key=lambda row: (row["p95_share"] or 0, row["p95"] or 0))
        known = most["limit"] is not None
        rows.append(
            [
                *map(Cell, key),
                Cell(str(most["entity"])),
                Cell(plain(most["mean"])),
                Cell(plain(most["p95"])),
                Cell(plain(most["limit"])) if known else Cell("not known", tone="muted"),
                Cell(str(most["unit"])),
                Cell(percent(most["mean_share"])) if known else MISSING,
                Cell(percent(most["p95_share"])) if known else MISSING,
            ]
        )
    numeric = frozenset(("Mean", "P95", "Limit", "Mean of the limit", "P95 of the limit"))
    return Table(_USE_COLUMNS, rows, numeric, "Hardware beside its limits")


def _of(found: list[Distance], variant: str) -> list[Distance]:
    return [one for one in found if one.repeat.variant == variant]


def _cells(variant: str, found: list[Distance]) -> list[Cell]:
    load, step = found[0].load, found[0].step
    rates = [one.decode_tok_s for one in found if one.decode_tok_s is not None]
    bounds = [one.bound_tok_s for one in found if one.bound_tok_s is not None]
    shares = [one.share for one in found if one.share is not None]
    cells = [
        Cell(variant),
        Cell(plain(load.concurrency)) if load else MISSING,
        Cell(plain(load.isl + load.osl / 2)) if load else MISSING,
        Cell(size(step.weight_bytes)) if step else MISSING,
        Cell(size(step.kv_bytes)) if step else MISSING,
    ]
    if bounds:
        cells.append(Cell(plain(fmean(bounds))))
    else:
        reason = reason_cell([found[0].reason]).text
        cells.append(Cell("not known", reason, "muted"))
    cells.append(Cell(plain(fmean(rates))) if rates else MISSING)
    if not shares:
        return [*cells, MISSING]
    share = fmean(shares)
    return [*cells, Cell(percent(share), *((_ABOVE, "warn") if share > 1 else ()))]
