"""summary.csv, summary.jsonl, aggregate.csv and the tables of a run.

Latencies are in ms with the unit in the name. A missing value is an empty cell (null in JSON,
`-` in the telemetry tables). Figures of invalid repeats are in the summary as evidence and enter
no aggregate; fall-back lengths are aggregated apart from planned ones. `comparisons/A__B.json`
tells what the variant B changed against A (see `compare`).
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servemap.analysis.baselines import COLUMNS as BASELINE_COLUMNS
from servemap.analysis.baselines import baseline_rows, read_baselines
from servemap.analysis.bounds.rows import COLUMNS as LIMIT_COLUMNS
from servemap.analysis.bounds.rows import (
    declared_bandwidth,
    distances,
    limit_rows,
    read_facts,
)
from servemap.analysis.bounds.use import COLUMNS as USE_COLUMNS
from servemap.analysis.bounds.use import use_rows
from servemap.analysis.case_tables import telemetry_tables
from servemap.analysis.communication.rails import COLUMNS as RAIL_COLUMNS
from servemap.analysis.communication.rails import rail_rows
from servemap.analysis.communication.spread import COLUMNS as SPREAD_COLUMNS
from servemap.analysis.communication.spread import spread_rows
from servemap.analysis.compare import compared_variants
from servemap.analysis.metrics import pick
from servemap.analysis.noise import bootstrap_mean
from servemap.analysis.noise import repeats as repeat_statistics
from servemap.analysis.percentiles import POINT_COLUMNS, percentile_rows
from servemap.analysis.repeats import SCHEMA, Repeat, read_repeat
from servemap.analysis.targets import COLUMNS as TARGET_COLUMNS
from servemap.analysis.targets import judge, target_rows
from servemap.analysis.verdict import resolve_limits
from servemap.model.canon import write_json_atomic, write_text_atomic
from servemap.parsers.values import integer, mapping, text

KEY_COLUMNS = ("run", "variant", "case", "repeat", "attempt", "status", "verdict", "reasons")

_LATENCIES = {
    "ttft": ("p50", "p90", "p95", "p99", "max"),
    "tpot": ("p50", "p95", "p99"),
    "itl": ("p50", "p95", "p99", "max"),
    "e2e": ("p50", "p95", "p99"),
}

# Column -> path in a segment's figures, and what it is multiplied by.
FIGURES: dict[str, tuple[str, float]] = {
    "request_s": ("request_s", 1),
    "input_tok_s": ("input_tok_s", 1),
    "agg_output_tps": ("agg_output_tps", 1),
    "total_tok_s": ("total_tok_s", 1),
    "uncached_input_tok_s": ("uncached_input_tok_s", 1),
    "cached_input_tok_s": ("cached_input_tok_s", 1),
    "success_rate": ("success_rate", 1),
    "cache_hit_rate": ("cache_hit_rate", 1),
    "weighted_tok_s": ("weighted_tok_s", 1),
    "goodput_req_s": ("goodput_req_s", 1),
    "slo_share": ("slo_share", 1),
    "mean_in_flight": ("mean_in_flight", 1),
    "measured_in_flight": ("measured_in_flight", 1),
    "littles_law_ratio": ("littles_law_ratio", 1),
    "req_output_tps_p10": ("req_output_tps.p10", 1),
    "req_output_tps_p50": ("req_output_tps.p50", 1),
    "ttft_from_schedule_p95_ms": ("ttft_from_schedule_s.p95", 1e3),
    "schedule_lag_p99_ms": ("schedule_lag_s.p99", 1e3),
    **{
        f"{name}_{point}_ms": (f"{name}_s.{point}", 1e3)
        for name, points in _LATENCIES.items()
        for point in points
    },
}

_COUNTS = {
    "window_s": "window_s",
    "requests": "requests",
    "ok": "ok",
    "failed": "failed",
    "timed_out": "timed_out",
    "retried": "retried",
    "input_tokens_planned": "tokens.input_planned",
    "input_tokens": "tokens.input_actual",
    "output_tokens_planned": "tokens.output_planned",
    "output_tokens": "tokens.output_actual",
    "cached_tokens": "tokens.cached",
    "ttft_n": "ttft_s.n",
    "itl_n": "itl_s.n",
}

# Column -> path in a segment's figures by the engine's own counters, and its factor.
ENGINE: dict[str, tuple[str, float]] = {
    "engine_queue_mean_ms": ("engine.queue_time_s.mean", 1e3),
    "engine_prefill_mean_ms": ("engine.prefill_time_s.mean", 1e3),
    "engine_decode_mean_ms": ("engine.decode_time_s.mean", 1e3),
    "spec_accept_rate": ("engine.speculative.accept_rate", 1),
    "spec_accept_length": ("engine.speculative.mean_accept_length", 1),
    "spec_target_forward_rate": ("engine.speculative.target_forward_rate", 1),
}

# Column -> figure that an injection changed, in percent.
INTERFERENCE = {
    "injected_output_tps_change_pct": "agg_output_tps",
    "injected_ttft_p95_change_pct": "ttft_p95_s",
    "injected_tpot_p95_change_pct": "tpot_p95_s",
    "injected_e2e_p95_change_pct": "e2e_p95_s",
}

AGGREGATED = (
    "request_s",
    "input_tok_s",
    "agg_output_tps",
    "total_tok_s",
    "cache_hit_rate",
    "weighted_tok_s",
    "goodput_req_s",
    "req_output_tps_p10",
    "ttft_p50_ms",
    "ttft_p95_ms",
    "tpot_p50_ms",
    "tpot_p95_ms",
    "itl_p50_ms",
    "itl_p99_ms",
    "e2e_p50_ms",
    "e2e_p95_ms",
    *INTERFERENCE,
)
STATISTICS = ("mean", "cv", "ci95_low", "ci95_high")
COMPARED = tuple(name for name in AGGREGATED if name not in INTERFERENCE)
"""Figures that variants are compared by."""
GROUP = ("run", "variant", "case", "lengths", "isl", "osl")

Row = dict[str, Any]


def summarize(
    run_dir: Path, plan_rows: Sequence[dict[str, Any]], limits: Mapping[str, float] | None = None
) -> list[Row]:
    """Write the summary files of a run and return the summary's rows.

    Args:
        run_dir: results/RUN.
        plan_rows: what was planned, as {variant, case, repeat}; what is not there is `not_run`.
        limits: of the campaign, over the defaults of limits.yaml.
    """
    repeats = [read_repeat(run_dir, row) for row in plan_rows]
    rows = [summary_row(run_dir.name, repeat) for repeat in repeats]
    columns = list(rows[0]) if rows else list(KEY_COLUMNS)
    write_text_atomic(run_dir / "summary.csv", to_csv(columns, rows))
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    write_text_atomic(run_dir / "summary.jsonl", "".join(lines))
    aggregates = aggregate(rows)
    columns = list(aggregates[0]) if aggregates else [*GROUP, "planned", "n", "starts"]
    write_text_atomic(run_dir / "aggregate.csv", to_csv(columns, aggregates))
    comparisons = compared_variants(aggregates, plan_rows, COMPARED)
    for path in run_dir.glob("comparisons/*.json"):
        if path.stem not in comparisons:
            path.unlink()
    for name, comparison in comparisons.items():
        record = {"schema": SCHEMA, "run": run_dir.name, **comparison}
        write_json_atomic(run_dir / "comparisons" / f"{name}.json", record)
    judged = [
        one
        for repeat, row in zip(repeats, plan_rows, strict=True)
        for one in judge(repeat, row.get("targets") or ())
    ]
    targets = to_csv(TARGET_COLUMNS, target_rows(judged))
    write_text_atomic(run_dir / "tables" / "targets.csv", targets)
    facts = read_facts(run_dir)
    found = distances(repeats, facts, declared_bandwidth(plan_rows))
    bounds = to_csv(LIMIT_COLUMNS, limit_rows(found))
    write_text_atomic(run_dir / "tables" / "limits.csv", bounds)
    used = to_csv(USE_COLUMNS, use_rows(repeats, facts))
    write_text_atomic(run_dir / "tables" / "hardware_use.csv", used)
    baselines = read_baselines(run_dir)
    write_text_atomic(
        run_dir / "tables" / "baselines.csv", to_csv(BASELINE_COLUMNS, baseline_rows(baselines))
    )
    rails = to_csv(RAIL_COLUMNS, rail_rows(baselines, facts))
    write_text_atomic(run_dir / "tables" / "baseline_limits.csv", rails)
    spread = to_csv(SPREAD_COLUMNS, spread_rows(baselines, resolve_limits(limits or {})))
    write_text_atomic(run_dir / "tables" / "baseline_spread.csv", spread)
    points = to_csv(POINT_COLUMNS, percentile_rows(repeats))
    write_text_atomic(run_dir / "tables" / "percentiles.csv", points)
    comparable = {str(row["variant"]): row.get("compared_with") or () for row in plan_rows}
    for name, table in telemetry_tables(repeats, comparable).items():
        write_text_atomic(run_dir / "tables" / name, table)
    return rows


def summary_row(run: str, repeat: Repeat) -> Row:
    """Return one row of summary.csv."""
    block = repeat.headline.get("metrics")
    lengths = repeat.lengths
    row: Row = {
        "run": run,
        "variant": repeat.variant,
        "case": repeat.case,
        "repeat": repeat.repeat,
        "attempt": repeat.attempt,
        "status": repeat.status,
        "verdict": repeat.verdict,
        "reasons": "; ".join(repeat.reasons),
        "kind": repeat.spec.get("kind"),
        "lengths": lengths.kind,
        "isl": lengths.isl,
        "osl": lengths.osl,
        "concurrency": repeat.steady.get("concurrency"),
        "rate_rps": repeat.steady.get("rate_rps"),
        "segment": repeat.headline.get("name"),
    }
    row.update({name: pick(block, path) for name, path in _COUNTS.items()})
    for name, (path, factor) in FIGURES.items():
        value = pick(block, path)
        row[name] = None if value is None else value * factor
    for name, (path, factor) in ENGINE.items():
        value = pick(repeat.headline, path)
        row[name] = None if value is None else value * factor
    changes: Row = next(iter((repeat.metrics.get("interference") or {}).values()), {})
    for name, figure in INTERFERENCE.items():
        row[name] = pick(changes, f"change.{figure}.change_pct")
    row["start_ns"] = integer(repeat.headline.get("start_ns"))
    row["boot_id"] = text(mapping(repeat.meta.get("server")).get("boot_id"))
    return row


def aggregate(rows: Iterable[Row]) -> list[Row]:
    """Return one row a variant, case and lengths: statistics over its valid repeats."""
    rows = list(rows)
    planned = {
        (row["variant"], row["case"]): {"isl": row["isl"], "osl": row["osl"]}
        for row in rows
        if row["lengths"] == "planned" and row["isl"] is not None
    }
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        # A repeat without a record has no lengths of its own: it was planned as its siblings.
        known = planned.get((row["variant"], row["case"]), {}) if row["isl"] is None else {}
        groups.setdefault(tuple((row | known)[name] for name in GROUP), []).append(row)
    result: list[Row] = []
    for key, members in groups.items():
        valid = [row for row in members if row["verdict"] == "valid"]
        line: Row = dict(zip(GROUP, key, strict=True))
        line |= {"planned": len(members), "n": len(valid), "starts": _starts(valid)}
        for name in AGGREGATED:
            values = [row[name] for row in valid if row[name] is not None]
            found = repeat_statistics(values)
            line[f"{name}_n"] = found.n
            line.update({f"{name}_{part}": getattr(found, part) for part in STATISTICS})
            if is_percentile(name):
                line |= zip(
                    (f"{name}_boot95_low", f"{name}_boot95_high"),
                    bootstrap_mean(values),
                    strict=True,
                )
        result.append(line)
    return result


def is_percentile(figure: str) -> bool:
    """Whether a figure is a percentile over requests, not a rate over the segment."""
    return re.search(r"_p\d+(_|$)", figure) is not None


def _starts(rows: Iterable[Row]) -> int | None:
    """Return how many starts of the server some repeats are of; None where one does not say."""
    boots = [row["boot_id"] for row in rows]
    return None if None in boots else len(set(boots))


def to_csv(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Return CSV text with a header; None is an empty cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
