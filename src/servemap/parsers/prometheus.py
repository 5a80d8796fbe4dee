"""An engine's /metrics, scraped over time: Prometheus text exposition to samples.

Counters, and the `_sum` and `_count` of histograms and summaries, become rates per second;
gauges stay as they are. Buckets, quantiles and `_created` series are left out: percentiles over
a histogram's buckets are not measured values.
"""

import re
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from servemap.parsers.counters import delta, interval_s
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.records import Parsed, Sample, Skipped
from servemap.parsers.values import integer, number, text

# Buckets are most of an exposition and the parser is slow, so they go before it runs.
_UNUSED_LINE = re.compile(r"^[^\s{#]+_(?:bucket|created)[\s{].*\n?", re.MULTILINE)
_PROCESS_NOISE = ("python_", "process_", "http_")
_COUNTING = ("counter", "histogram", "summary")
# By convention, for a series that is not declared under its own name (OpenMetrics declares
# `c` for `c_total`).
_COUNTING_NAMES = ("_total", "_sum", "_count")
# Labels that name the whole server, and so tell the series of one scrape apart only where
# several models are served.
_SERVER_LABELS = frozenset({"model_name", "model", "engine_type"})

Series = tuple[str, str]
Values = dict[Series, float]


def parse_exposition(exposition: str) -> tuple[Values, Values]:
    """Return (gauges, counters), each {(entity, metric): value}; ValueError on broken text.

    The entity is `server`, with the labels that tell its series apart:
    `server{engine="0"}`. NaN and infinite values are missing.
    """
    gauges: Values = {}
    counters: Values = {}
    wanted = _UNUSED_LINE.sub("", exposition)
    for family in text_string_to_metric_families(wanted):
        if family.name.startswith(_PROCESS_NOISE) or family.name.endswith("_info"):
            continue
        for sample in family.samples:
            if number(sample.value) is None or "quantile" in sample.labels:
                continue
            if family.type in _COUNTING or (
                family.type == "unknown" and sample.name.endswith(_COUNTING_NAMES)
            ):
                _store(counters, sample.name, sample.labels, sample.value)
            elif family.type in ("gauge", "unknown"):
                _store(gauges, sample.name, sample.labels, sample.value)
    return gauges, counters


def _store(values: Values, metric: str, labels: dict[str, str], value: float) -> None:
    series = (_entity({k: v for k, v in labels.items() if k not in _SERVER_LABELS}), metric)
    values[(_entity(labels), metric) if series in values else series] = value


def _entity(labels: dict[str, str]) -> str:
    if not labels:
        return "server"
    return "server{" + ",".join(f'{k}="{labels[k]}"' for k in sorted(labels)) + "}"


def parse_scrapes(lines: Iterable[JsonLine], interval: float) -> Parsed:
    """Return samples from `http` collector lines that were taken every `interval` seconds.

    A scrape that failed or does not parse is skipped and counted; the rates around it span the
    longer interval. A counter that ran backwards (restart) is missing for that interval.
    """
    samples: list[Sample] = []
    times: list[int] = []
    skipped: list[Skipped] = []
    base: tuple[int, int, Values] | None = None
    for line in lines:
        t_ns = integer(line.value.get("t_ns"))
        mono_ns = integer(line.value.get("mono_ns"))
        body = text(line.value.get("text"))
        if t_ns is None or mono_ns is None:
            skipped.append(Skipped(line.line, "no t_ns or mono_ns"))
            continue
        if body is None:
            error = text(line.value.get("error")) or "no body"
            skipped.append(Skipped(line.line, f"scrape failed: {error}"))
            continue
        try:
            gauges, counters = parse_exposition(body)
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            skipped.append(Skipped(line.line, f"not an exposition: {error}"))
            continue
        times.append(t_ns)
        samples.extend(
            Sample(t_ns, None, entity, metric, _unit(metric), value)
            for (entity, metric), value in gauges.items()
        )
        if base is None or mono_ns < base[1]:
            base = (t_ns, mono_ns, counters)
            continue
        seconds = interval_s(base[1], mono_ns, interval / 4)
        if seconds is None:
            continue
        for (entity, metric), value in counters.items():
            earlier = base[2].get((entity, metric))
            moved = None if earlier is None else delta([earlier], [value])
            if moved is not None:
                rate = moved[0] / seconds
                samples.append(Sample(t_ns, base[0], entity, metric, "per_s", rate))
        base = (t_ns, mono_ns, counters)
    return Parsed(samples, times, skipped)


def _unit(metric: str) -> str:
    for suffix in ("bytes", "seconds", "ratio", "perc"):
        if metric.endswith(f"_{suffix}"):
            return suffix
    return "count"
