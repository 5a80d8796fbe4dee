"""One scrape of an engine's /metrics: gauges, counters, and histograms as histograms."""

import math
import re
from typing import Any

from servemap.parsers.cells import Number
from servemap.parsers.exposition import Exposition, Series, read_exposition
from servemap.parsers.frame import Extract, Kind, foreign
from servemap.parsers.values import number

_ENGINE = re.compile(r"(vllm|sglang|llamacpp)[:_]")
_HISTOGRAM = re.compile(r"(.+)_(bucket|sum|count)")
_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
Labels = tuple[tuple[str, str], ...]


def parse_engine_metrics(text: str) -> Extract:
    """One scrape of vLLM's, SGLang's or llama.cpp's /metrics.

    `engines` that wrote series, by the names of these. `gauges`, `counters` and `untyped` (no TYPE
    line says what they are): one each, `metric`, `labels`, `value` (null for NaN and infinities).
    `histograms`: one each, `metric`, `labels`, `count`, `sum`, `mean` (null where the count is 0 or
    missing), `buckets` (`at_most`, null for infinity, and the cumulative `count`), and `quantiles`:
    {`p50`: {`above`, `at_most`}}, the bounds of the bucket that holds it, which is all that a
    histogram knows. `above` is null in the first bucket, `at_most` above the largest finite
    bound. `quantiles` is null where the buckets are not whole or do not hold as many values as
    `count` says, also where it is missing. Series `_created` are left out.
    Units are those of the metric's name.

    Raises:
        ParseError: there is no series.
    """
    found = read_exposition(text)
    if not found.series:
        raise foreign("an engine's /metrics", "series")
    histograms: dict[tuple[str, Labels], dict[str, Any]] = {}
    plain: dict[str, list[dict[str, Any]]] = {"gauges": [], "counters": [], "untyped": []}
    families = _histograms(found)
    for series in found.series:
        part = _HISTOGRAM.fullmatch(series.metric)
        if part and part[1] in families:
            _add(histograms, part[1], part[2], series)
        elif not series.metric.endswith("_created"):
            plain[_list_of(found.types, series.metric)].append(series._asdict())
    names = (_ENGINE.match(series.metric) for series in found.series)
    data = {
        "engines": sorted({name[1] for name in names if name}),
        **plain,
        "histograms": [_finished(one) for one in histograms.values()],
    }
    return Extract(data, found.skipped)


def _histograms(found: Exposition) -> set[str]:
    """Return the families that are histograms: as declared, or by their buckets."""
    declared = {name for name, kind in found.types.items() if kind.strip() == "histogram"}
    return declared | {
        series.metric.removesuffix("_bucket")
        for series in found.series
        if series.metric.endswith("_bucket") and "le" in series.labels
    }


def _list_of(types: dict[str, str], metric: str) -> str:
    # OpenMetrics declares `c` for `c_total`.
    kind = types.get(metric) or types.get(metric.removesuffix("_total"), "")
    return {"gauge": "gauges", "counter": "counters"}.get(kind.strip(), "untyped")


def _add(
    histograms: dict[tuple[str, Labels], dict[str, Any]], family: str, part: str, series: Series
) -> None:
    labels = {name: said for name, said in series.labels.items() if name != "le"}
    key = family, tuple(sorted(labels.items()))
    fresh = {"metric": family, "labels": labels, "count": None, "sum": None, "buckets": {}}
    histogram = histograms.setdefault(key, fresh)
    if part == "bucket":
        # Of two scrapes in one text the last one counts, as it does for sum and count.
        histogram["buckets"][_bound(series.labels.get("le", ""))] = series.value
    else:
        histogram[part] = series.value


def _bound(le: str) -> float | None:
    try:
        bound = float(le)
    except ValueError:
        return None
    return bound if bound > -math.inf else None


def _finished(histogram: dict[str, Any]) -> dict[str, Any]:
    total, amount = histogram["count"], histogram["sum"]
    buckets: dict[float | None, Number | None] = histogram.pop("buckets")
    known = sorted(
        (bound, count)
        for bound, count in buckets.items()
        if bound is not None and count is not None
    )
    counts = [count for _, count in known]
    whole = (
        len(known) == len(buckets) > 0
        and known[-1][0] == float("inf")
        and counts == sorted(counts)
        and counts[-1] > 0
        and total == counts[-1]
    )
    return {
        **histogram,
        "mean": number(amount / total) if total and amount is not None else None,
        "buckets": [{"at_most": _finite(bound), "count": count} for bound, count in known],
        "quantiles": {name: _bounds(known, q) for name, q in _QUANTILES.items()} if whole else None,
    }


def _bounds(buckets: list[tuple[float, Number]], quantile: float) -> dict[str, float | None]:
    """Return the bounds of the first bucket that holds this share of all values."""
    rank = quantile * buckets[-1][1]
    at = next(index for index, (_, count) in enumerate(buckets) if count >= rank)
    above = buckets[at - 1][0] if at else None
    return {"above": above, "at_most": _finite(buckets[at][0])}


def _finite(bound: float) -> float | None:
    return None if bound == float("inf") else bound


KINDS: tuple[Kind, ...] = (
    Kind(
        "engine-metrics",
        parse_engine_metrics,
        "curl http://NODE:PORT/metrics",
        "Prometheus' text exposition, read with prometheus_client",
    ),
)
