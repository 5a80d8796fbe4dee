"""What the engine tells of a segment: queue time, its own prefill and decode time, speculation.

All are differences between the first and the last scrape that lie inside the segment, so neither a
warm-up nor what came after is in them; requests that ended before the first or after the last are
not, either. A percentile is known by bounds: those of the histogram's bucket that holds it, and, as
times are not negative, mean / (1 - share), which no quantile exceeds (Markov's inequality). Between
them it is estimated as Prometheus' `histogram_quantile` does, the values spread evenly.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
import yaml

from servemap.analysis.stats import PERCENTILES
from servemap.model.files import regular
from servemap.parsers.exposition import read_exposition
from servemap.telemetry.align import AlignedSeries, Segment
from servemap.telemetry.clock import epoch_of, node_clock

COLLECTOR = "engine_metrics"
SOURCE = "engine"

Figures = dict[str, Any]


class Scrape(NamedTuple):
    """One scrape: its time (s, monotonic), and values summed over all engines of a server.

    Attributes:
        mono_s: when it was taken.
        values: by metric.
        buckets: cumulative counts by histogram and upper bound.
    """

    mono_s: float
    values: dict[str, float]
    buckets: dict[str, dict[float, float]]


class _Line(msgspec.Struct):
    t_ns: int | None = None
    mono_ns: int | None = None
    text: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Line).decode


@cache
def _engines() -> dict[str, dict[str, Any]]:
    file = resources.files("servemap.analysis").joinpath("engine_figures.yaml")
    table: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))["engines"]
    return table


def engine_figures(
    folder: Path,
    engine: str | None,
    segments: Sequence[Segment],
    clock: Mapping[str, Any],
    telemetry: Iterable[AlignedSeries],
) -> dict[str, Figures]:
    """Return the engine's own figures by segment; no entry where it tells nothing.

    Args:
        folder: the attempt's raw/telemetry; it may be absent.
        engine: name of the engine, as in the server spec.
        segments: the measured intervals.
        clock: meta.json's `clock` by node.
        telemetry: aligned, for what an engine tells by gauges only.
    """
    names = _engines().get(engine or "")
    path = next(iter(sorted(folder.glob(f"*/{COLLECTOR}.jsonl"))), None)
    if names is None or path is None:
        return {}
    gauges = _gauges(names.get("speculative_gauges", {}), telemetry)
    found = {}
    for name, edges in _edges(path, segments, clock).items():
        own = figures_between(*edges, names, gauges.get(name, {}))
        if own:
            found[name] = own
    return found


def figures_between(
    first: Scrape, last: Scrape, names: Mapping[str, Any], gauges: Mapping[str, float]
) -> Figures:
    """Return what happened between two scrapes; empty where the engine tells none of it.

    Args:
        first: the earlier scrape.
        last: the later one.
        names: the engine's entry of engine_figures.yaml.
        gauges: means of its gauges of speculative decoding.
    """
    span_s = last.mono_s - first.mono_s
    if span_s <= 0:
        return {}

    def grown(metric: str | None) -> float | None:
        before, after = first.values.get(metric or ""), last.values.get(metric or "")
        return (
            after - before if before is not None and after is not None and after >= before else None
        )

    result: Figures = {}
    for figure, metric in names["histograms"].items():
        spread = _histogram(first, last, metric)
        if spread is not None:
            result[figure] = spread
    steps = grown(names.get("steps"))
    told = {name: grown(metric) for name, metric in names.get("speculative", {}).items()}
    speculative = _speculative(told, gauges, span_s)
    if speculative is not None:
        forward = None if steps is None else steps / span_s
        result["speculative"] = {**speculative, "target_forward_rate": forward}
    if steps is not None:
        result["steps_per_s"] = steps / span_s
    return {"source": SOURCE, "span_s": span_s, **result} if result else {}


def _speculative(
    told: Mapping[str, float | None], gauges: Mapping[str, float], span_s: float
) -> Figures | None:
    """Return figures of speculative decoding; None where the engine does not speculate.

    The mean accept length counts the token that the target adds to each draft, as both engines do;
    a step that drafted nothing is not in it. Both expose the counter of drafts only where they are
    to speculate, so one that did not grow says that nothing was drafted.
    """
    drafts, drafted = told.get("drafts"), told.get("draft_tokens")
    accepted = told.get("accepted_tokens")
    gauges = gauges if any(gauges.values()) else {}
    if drafts is None and not gauges:
        return None
    rate = accepted / drafted if accepted is not None and drafted else None
    length = 1 + accepted / drafts if accepted is not None and drafts else None
    return {
        "drafts": drafts,
        "draft_tokens": drafted,
        "draft_tokens_per_s": None if drafted is None else drafted / span_s,
        "accepted_tokens": accepted,
        "accept_rate": gauges.get("accept_rate") if rate is None else rate,
        "mean_accept_length": gauges.get("mean_accept_length") if length is None else length,
        "from_gauges": rate is None and bool(gauges),
    }


def _histogram(first: Scrape, last: Scrape, metric: str) -> Figures | None:
    """Return n, mean, and percentiles with their bounds of what a histogram observed in between."""
    sums = first.values.get(f"{metric}_sum"), last.values.get(f"{metric}_sum")
    counts = first.values.get(f"{metric}_count"), last.values.get(f"{metric}_count")
    if sums[1] is None or counts[1] is None:
        return None
    count = counts[1] - (counts[0] or 0)
    if count <= 0:
        return None
    before, after = first.buckets.get(metric, {}), last.buckets.get(metric, {})
    grown = sorted((bound, value - before.get(bound, 0)) for bound, value in after.items())
    mean = (sums[1] - (sums[0] or 0)) / count
    points = {f"p{p}": quantile(grown, p / 100, mean) for p in PERCENTILES}
    return {
        "n": int(count),
        "mean": mean,
        "estimated": {name: found and found.estimate for name, found in points.items()},
        "at_least": {name: found and found.at_least for name, found in points.items()},
        "at_most": {name: found and found.at_most for name, found in points.items()},
    }


class Quantile(NamedTuple):
    """A quantile that a histogram tells: what it lies between, and an estimate."""

    at_least: float
    at_most: float
    estimate: float


def quantile(buckets: Sequence[tuple[float, float]], share: float, mean: float) -> Quantile | None:
    """Return the value below which a share of all lies, as far as a histogram knows it.

    None where the counts are no histogram.

    Args:
        buckets: upper bounds in order, the last one infinite, and cumulative counts.
        share: above 0, below 1.
        mean: of the same values, none of which is negative.
    """
    counts = [count for _, count in buckets]
    whole = bool(counts) and buckets[-1][0] == float("inf") and counts == sorted(counts)
    if not whole or counts[-1] <= 0:
        return None
    rank = share * counts[-1]
    place = next(index for index, count in enumerate(counts) if count >= rank)
    bound, count = buckets[place]
    lower, below = buckets[place - 1] if place else (min(0.0, bound), 0.0)
    upper = max(min(bound, mean / (1 - share)), lower)
    part = (rank - below) / (count - below) if count > below else 1.0
    return Quantile(lower, upper, lower + (upper - lower) * part)


def _edges(
    path: Path, segments: Sequence[Segment], clock: Mapping[str, Any]
) -> dict[str, tuple[Scrape, Scrape]]:
    """Return the first and the last scrape inside each segment; no entry where they are one.

    Of the other lines only the time is read: an exposition may have 100 KB.
    """
    on_node, epoch_ns = node_clock(clock.get(path.parent.name)), epoch_of(path.parent)
    first: dict[str, _Line] = {}
    last: dict[str, _Line] = {}
    with open(path, "rb", opener=regular) as handle:
        for raw in handle:
            try:
                line = _decode(raw)
            except msgspec.MsgspecError:
                continue
            body = bytes(line.text)
            if line.t_ns is None or line.mono_ns is None or not body.startswith(b'"'):
                continue
            local = line.t_ns if epoch_ns is None else epoch_ns + line.mono_ns
            t_ns = on_node.to_head(local)
            for segment in segments:
                if segment.start_ns <= t_ns <= segment.end_ns:
                    last[segment.name] = line
                    first.setdefault(segment.name, line)
    return {
        name: (_scrape(first[name]), _scrape(last[name]))
        for name in first
        if first[name] is not last[name]
    }


def _scrape(line: _Line) -> Scrape:
    """Return the values of a scrape; those of several engines (data parallel) are added up."""
    values: dict[str, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    for series in read_exposition(msgspec.json.decode(line.text)).series:
        if series.value is None:
            continue
        bound = series.labels.get("le")
        if series.metric.endswith("_bucket") and bound is not None:
            try:
                known = float(bound)
            except ValueError:
                continue
            own = buckets.setdefault(series.metric.removesuffix("_bucket"), {})
            own[known] = own.get(known, 0.0) + series.value
        else:
            values[series.metric] = values.get(series.metric, 0.0) + series.value
    return Scrape((line.mono_ns or 0) / 1e9, values, buckets)


def _gauges(
    names: Mapping[str, str], telemetry: Iterable[AlignedSeries]
) -> dict[str, dict[str, float]]:
    """Return the means of gauges by segment and figure."""
    wanted = {metric: figure for figure, metric in names.items()}
    values: dict[str, dict[str, list[float]]] = {}
    for one in telemetry if wanted else ():
        if one.metric in wanted and one.inside.any():
            own = values.setdefault(one.segment, {})
            own.setdefault(wanted[one.metric], []).extend(one.value[one.inside].tolist())
    return {
        segment: {figure: fmean(found) for figure, found in own.items()}
        for segment, own in values.items()
    }
