"""Reports of load clients as JSON: GuideLLM and inference-perf."""

from typing import Any

from servemap.parsers.cells import Number, key, scaled
from servemap.parsers.frame import Extract, Kind, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import amount, items, mapping, string

_STATISTICS = ("count", "mean", "median", "std_dev", "min", "max")
_STATUSES = ("successful", "errored", "incomplete", "total")
# Durations in seconds whose names do not say so.
_SECONDS = {
    "request_latency", "normalized_time_per_output_token", "time_per_output_token",
    "time_to_first_token", "inter_token_latency", "schedule_delay", "send_duration",
}  # fmt: skip


def parse_guidellm(text: str) -> Extract:
    """The report of guidellm benchmark: what each of its benchmarks measured.

    `version` of guidellm. `benchmarks`, one each: `strategy` (`concurrent`, `constant`, ...),
    `rate` (requests/s) and `max_concurrency` as set; `start_s`, `end_s` (epoch) and `duration_s` of
    what was measured; `requests` {`successful`, `errored`, `incomplete`, `total`}; and `figures` of
    the successful ones: {name: {`count`, `mean`, `median`, `std_dev`, `min`, `max`,
    `percentiles`}}. The names are those of the file, with `_s` for `_ms`: `time_to_first_token_s`,
    `request_latency_s`, `inter_token_latency_s`, `output_tokens_per_second`. `p001` is the
    percentile 0.1. A figure of which nothing was counted, which guidellm writes as zeros, is null.

    Raises:
        ParseError: there is no list of benchmarks with metrics.
    """
    document = read_document("guidellm", text)
    top = mapping(document.value)
    runs = [mapping(one) for one in items(top.get("benchmarks"))]
    benchmarks = [_benchmark(one) for one in runs if mapping(one.get("metrics"))]
    if not benchmarks:
        raise foreign("guidellm", "list of benchmarks with metrics")
    version = string(mapping(top.get("metadata")).get("guidellm_version"))
    return Extract({"version": version, "benchmarks": benchmarks}, document.skipped)


def _benchmark(run: dict[str, Any]) -> dict[str, Any]:
    strategy = mapping(mapping(run.get("config")).get("strategy"))
    metrics = mapping(run["metrics"])
    totals = mapping(metrics.get("request_totals"))
    return {
        "strategy": string(strategy.get("type_")),
        "rate": amount(strategy.get("rate")),
        "max_concurrency": amount(strategy.get("max_concurrency")),
        **{f"{name[:-5]}_s": amount(run.get(name)) for name in ("start_time", "end_time")},
        "duration_s": amount(run.get("duration")),
        "requests": {name: amount(totals.get(name)) for name in _STATUSES},
        "figures": dict(
            _distribution(name, mapping(by_status["successful"]))
            for name, by_status in metrics.items()
            if name != "request_totals" and mapping(mapping(by_status).get("successful"))
        ),
    }


def _distribution(name: str, found: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    named, factor = _with_unit(name)
    if not amount(found.get("count")):
        return named, None
    percentiles = mapping(found.get("percentiles"))
    return named, {
        "count": amount(found["count"]),
        **{one: scaled(amount(found.get(one)), factor) for one in _STATISTICS[1:]},
        "percentiles": {one: scaled(amount(cell), factor) for one, cell in percentiles.items()},
    }


def _with_unit(name: str) -> tuple[str, Number]:
    """Return a name with the unit that its values have once they are multiplied, and by what."""
    if name.endswith("_ms"):
        return f"{name.removesuffix('_ms')}_s", 0.001
    return (f"{name}_s" if name in _SECONDS else name), 1


def parse_inference_perf(text: str) -> Extract:
    """A report of inference-perf: of a stage, or of the whole run by its requests or Prometheus.

    `load`, `successes` and `failures`, null where the report has none: {name: value, or
    {statistic: value}}, the names as in the file in lower case with `_`, and with `_s` for
    durations: `count`, `achieved_rate`, `send_duration_s`, `schedule_delay_s`; `request_latency_s`,
    `time_to_first_token_s`, `output_tokens_per_sec`, `output_len`. `p0_1` is the percentile 0.1.

    Raises:
        ParseError: there are no successes and no load summary.
    """
    document = read_document("inference-perf", text)
    top = mapping(document.value)
    if not mapping(top.get("successes")) and not mapping(top.get("load_summary")):
        raise foreign("inference-perf", "load_summary and no successes")
    data = {
        "load": _block(mapping(top.get("load_summary"))),
        "successes": _block(mapping(top.get("successes"))),
        "failures": _block(mapping(top.get("failures"))),
    }
    return Extract(data, document.skipped)


def _block(block: dict[str, Any]) -> dict[str, Any] | None:
    # Reports of requests group what those by Prometheus do not.
    groups = [mapping(block.get(name)) for name in ("latency", "throughput")]
    found: dict[str, Any] = {}
    for name, item in (pair for group in (block, *groups) for pair in group.items()):
        if name not in ("latency", "throughput"):
            found[_with_unit(key(name))[0]] = (
                {key(one): amount(cell) for one, cell in item.items()}
                if isinstance(item, dict)
                else amount(item)
            )
    return found or None


KINDS: tuple[Kind, ...] = (
    Kind(
        "guidellm",
        parse_guidellm,
        "guidellm benchmark --output-path report.json",
        "src/guidellm/benchmark/schemas of GuideLLM 0.8, reports of version 2",
    ),
    Kind(
        "inference-perf",
        parse_inference_perf,
        "inference-perf --config_file config.yml",
        "inference_perf/reportgen/base.py of inference-perf and recorded reports",
    ),
)
