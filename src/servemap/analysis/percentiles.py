"""tables/percentiles.csv: every distribution of every stream of every case and segment."""

from collections.abc import Iterable
from typing import Any

from servemap.analysis.case_tables import blank
from servemap.analysis.repeats import Repeat
from servemap.analysis.stats import P99_SAMPLES, PERCENTILES
from servemap.parsers.values import mapping

MEASURED = "measured"
POINTS = ("n", "mean", *(f"p{point}" for point in PERCENTILES), "max")
SPREAD = (
    "ttft_s",
    "first_text_s",
    "tpot_s",
    "itl_s",
    "chunk_gap_s",
    "e2e_s",
    "req_output_tps",
    "ttft_from_schedule_s",
    "e2e_from_schedule_s",
    "schedule_lag_s",
)
POINT_COLUMNS = (
    *("variant", "case", "repeat", "attempt", "verdict", "segment", "stream", "figure"),
    *POINTS,
    "few_for_p99",
)


def percentile_rows(repeats: Iterable[Repeat]) -> list[dict[str, Any]]:
    """Return the rows of tables/percentiles.csv: every distribution of every stream, in its unit.

    Stream `measured` is the segment's workload, without injected requests, which have a stream of
    their own; `few_for_p99` says that P99 is of fewer than 100 values.
    """
    rows = []
    for repeat in repeats:
        for segment in repeat.segments:
            streams = {MEASURED: segment.get("metrics"), **mapping(segment.get("streams"))}
            for stream, block in streams.items():
                for figure in SPREAD:
                    found = mapping(mapping(block).get(figure))
                    if not found:
                        continue
                    row = {name: found.get(name) for name in POINTS}
                    row |= {"segment": segment.get("name"), "stream": stream, "figure": figure}
                    row["few_for_p99"] = int(found.get("n") or 0) < P99_SAMPLES
                    rows.append(blank(repeat) | row)
    return rows
