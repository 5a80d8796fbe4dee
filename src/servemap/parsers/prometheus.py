"""An engine's /metrics, scraped over time: Prometheus text exposition to samples.

Counters, and the `_sum` and `_count` of histograms and summaries, become rates per second;
gauges stay as they are. Buckets, quantiles and `_created` series are left out: percentiles over
a histogram's buckets are not measured values.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from servemap.parsers.counters import delta, interval_s
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.records import Sample, Skipped
from servemap.parsers.series import Parsed, series_of
from servemap.parsers.values import moment, number, text

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

# A place in a scrape, as a value that no line has beside its own.
_FIRST_PLACE = 2**50

Series = tuple[str, str]
Values = dict[Series, float]
Labelled = dict[str, Mapping[str, str]]
"""The labels of entities."""


def parse_exposition(exposition: str) -> tuple[Values, Values]:
    """Return (gauges, counters), each {(entity, metric): value}; ValueError on broken text.

    The entity is `server`, with the labels that tell its series apart:
    `server{engine="0"}`. NaN and infinite values are missing.
    """
    labels: Labelled = {}
    found = _read(exposition, labels)
    names = _names(labels, [series for values in found for series in values])
    gauges, counters = ({names[series]: value for series, value in one.items()} for one in found)
    return gauges, counters


def _read(exposition: str, labels: Labelled) -> tuple[Values, Values]:
    """Return what `parse_exposition` does by entities with all labels, which `labels` gets."""
    gauges: Values = {}
    counters: Values = {}
    wanted = _UNUSED_LINE.sub("", exposition)
    for family in text_string_to_metric_families(wanted):
        if family.name.startswith(_PROCESS_NOISE) or family.name.endswith("_info"):
            continue
        for sample in family.samples:
            if number(sample.value) is None or "quantile" in sample.labels:
                continue
            entity = _entity(sample.labels)
            labels.setdefault(entity, sample.labels)
            if sample.name.removesuffix("_total").endswith("_max"):
                # llama.cpp declares the largest value that it saw (`n_tokens_max`) a counter.
                gauges[(entity, sample.name)] = sample.value
            elif family.type in _COUNTING or (
                family.type == "unknown" and sample.name.endswith(_COUNTING_NAMES)
            ):
                counters[(entity, sample.name)] = sample.value
            elif family.type in ("gauge", "unknown"):
                gauges[(entity, sample.name)] = sample.value
    return gauges, counters


def _names(labels: Labelled, found: Iterable[Series]) -> dict[Series, Series]:
    """Return each series without the server's labels, where these do not tell it from another."""
    short = {}
    for entity, metric in found:
        kept = {k: v for k, v in labels[entity].items() if k not in _SERVER_LABELS}
        short[(entity, metric)] = (_entity(kept), metric)
    times = Counter(short.values())
    return {series: series if times[own] > 1 else own for series, own in short.items()}


def _entity(labels: Mapping[str, str]) -> str:
    if not labels:
        return "server"
    return "server{" + ",".join(f'{k}="{labels[k]}"' for k in sorted(labels)) + "}"


def parse_scrapes(lines: Iterable[JsonLine], interval: float) -> Parsed:
    """Return samples from `http` collector lines that were taken every `interval` seconds.

    A scrape that failed or does not parse is skipped and counted; the rates around it span the
    longer interval. A counter that ran backwards (restart) is missing for that interval. Series of
    several models are told apart by all labels, whichever comes first on a page and whenever.
    """
    times: list[int] = []
    skipped: list[Skipped] = []
    pages = _Pages()

    def samples() -> Iterator[Sample]:
        base: tuple[int, int, Values] | None = None
        for line in lines:
            t_ns = moment(line.value.get("t_ns"))
            mono_ns = moment(line.value.get("mono_ns"))
            body = text(line.value.get("text"))
            if t_ns is None or mono_ns is None:
                skipped.append(Skipped(line.line, "no t_ns or mono_ns"))
                continue
            if body is None:
                error = text(line.value.get("error")) or "no body"
                skipped.append(Skipped(line.line, f"scrape failed: {error}"))
                continue
            try:
                gauges, counters = pages.read(body)
                if not gauges and not counters:
                    raise ValueError("no series with a value")
            except (ValueError, KeyError, IndexError, OverflowError) as error:
                skipped.append(Skipped(line.line, f"not an exposition: {error}"))
                continue
            times.append(t_ns)
            for (entity, metric), value in gauges.items():
                yield Sample(t_ns, None, entity, metric, _unit(metric), value)
            if base is None or mono_ns < base[1]:
                base = (t_ns, mono_ns, counters)
                continue
            seconds = interval_s(base[1], mono_ns, interval / 4)
            if seconds is None:
                continue
            for series, value in counters.items():
                earlier = base[2].get(series)
                moved = None if earlier is None else delta([earlier], [value])
                if moved is not None:
                    yield Sample(t_ns, base[0], *series, "per_s", moved[0] / seconds)
            base = (t_ns, mono_ns, counters)

    series = series_of(samples())
    names = _names(pages.labels, dict.fromkeys((one.entity, one.metric) for one in series))
    named = [one._replace(entity=names[one.entity, one.metric][0]) for one in series]
    return Parsed(named, times, skipped)


class _Form(NamedTuple):
    """Where a scrape has what: the places of gauges and counters, and of all values it must have.

    `heads` are its lines without their values.
    """

    heads: list[str]
    gauges: dict[Series, int]
    counters: dict[Series, int]
    values: list[int]


class _Pages:
    """Reads scrapes; one that differs from the one before it in values only is read by its form."""

    def __init__(self) -> None:
        self._form = _Form([], {}, {}, [])
        self.labels: Labelled = {}

    def read(self, page: str) -> tuple[Values, Values]:
        """Return what `_read` does; ValueError likewise."""
        parts = [_parted(line) for line in page.split("\n")]
        heads = [head for head, _ in parts]
        try:
            if heads != self._form.heads:
                self._form = _form(heads, self.labels)
            values = {place: _number(parts[place][1]) for place in self._form.values}
            whole = all(map(math.isfinite, values.values()))
        except (ValueError, KeyError, IndexError, OverflowError):
            whole = False
        if not whole:
            return _read(page, self.labels)
        return (
            {series: values[place] for series, place in self._form.gauges.items()},
            {series: values[place] for series, place in self._form.counters.items()},
        )


def _parted(line: str) -> tuple[str, str]:
    """Return a line without its value, and its value; a line of another form is all head."""
    head, blank, value = line.rpartition(" ")
    if not blank or line.startswith("#") or "# " in head:
        return line, ""
    if head.endswith("}") or not (" " in head or "\t" in head):
        return head, value
    return line, ""


def _form(heads: list[str], labels: Labelled) -> _Form:
    """Return the form of a scrape: what it would be with the places as values."""
    page = "\n".join(
        head if not head or head.startswith("#") else f"{head} {_FIRST_PLACE + place}"
        for place, head in enumerate(heads)
    )
    gauges, counters = map(_places, _read(page, labels))
    values = [
        place
        for place, head in enumerate(heads)
        if head and not head.startswith("#") and not _UNUSED_LINE.match(f"{head} ")
    ]
    return _Form(heads, gauges, counters, values)


def _places(found: Values) -> dict[Series, int]:
    places = {series: round(value) - _FIRST_PLACE for series, value in found.items()}
    if any(place < 0 for place in places.values()):
        raise ValueError("a value that stands elsewhere in its line")
    return places


def _number(word: str) -> float:
    if "_" in word:
        raise ValueError("no number")
    return int(word) if word.isdigit() else float(word)


def _unit(metric: str) -> str:
    # Of llama.cpp's gauges (`# HELP llamacpp:prompt_tokens_seconds ... in tokens/s`):
    # https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
    if metric.endswith("_tokens_seconds"):
        return "tokens_per_s"
    # Of vLLM's cache (`# HELP vllm:kv_cache_usage_perc ... 1 means 100 percent usage`).
    if metric.endswith("_perc"):
        return "ratio"
    for suffix in ("bytes", "seconds", "ratio"):
        if metric.endswith(f"_{suffix}"):
            return suffix
    return "count"
