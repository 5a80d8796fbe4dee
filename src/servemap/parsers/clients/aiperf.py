"""The result files of `aiperf profile --export-level records`, after aiperf 0.13.0.

`profile_export.jsonl` has one record a request (`metadata` with epoch stamps in ns, `metrics` with
a value and a unit each, `error`), warm-up among them; `profile_export_aiperf.json` is the summary,
not written where every request failed. Begin and end of each phase stand in `phase_manifest.json`,
which is written where there are several; of a single one the summary tells them, to the microsecond
and in the zone that the client ran in, which is UTC here. `output_sequence_length` is counted with
the client's own tokenizer, `usage_*` are the server's.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from servemap.model.errors import ParseError
from servemap.model.files import parse_json
from servemap.parsers.clients.records import (
    REMEDY,
    ClientCall,
    ClientRun,
    count,
    file_of,
    moment,
    seconds,
)
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.values import mapping, number, sequence, text

RECORDS = "profile_export.jsonl"
SUMMARY = "profile_export_aiperf.json"
PHASES = "phase_manifest.json"
FILES = (RECORDS, SUMMARY, PHASES)
MEASURED = "profiling"
ROUNDING_S = 1e-6
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}
"""Seconds of each unit of time that a metric may have."""


def parse(files: Mapping[str, bytes]) -> ClientRun:
    """Return the run of the profiling phase.

    Args:
        files: contents by name, `FILES`.

    Raises:
        ParseError: the records are missing or cut, or nothing says when they were taken.
    """
    content = parse_jsonl(file_of(files, RECORDS))
    if content.skipped:
        first = content.skipped[0]
        raise ParseError(f"{RECORDS} line {first.line}: {first.reason}", RECORDS, REMEDY)
    records = [line.value for line in content.lines]
    calls = [
        _call(index, record)
        for index, record in enumerate(records)
        if mapping(record.get("metadata")).get("benchmark_phase") == MEASURED
    ]
    summary = _object(files, SUMMARY) if SUMMARY in files else {}
    if PHASES in files:
        begin_ns, end_ns = _phase(_object(files, PHASES))
    else:
        begin_ns, end_ns = _moment(summary, "start_time"), _moment(summary, "end_time")
    if end_ns <= begin_ns:
        raise ParseError("the profiling phase has no length", SUMMARY, REMEDY)
    return ClientRun(
        calls,
        _flat(summary),
        # Its rates are over the phase; `benchmark_duration` is from first start to last response.
        (end_ns - begin_ns) / 1e9,
        rounding_s=0.0 if PHASES in files else 2 * ROUNDING_S,
        window_ns=(begin_ns, end_ns),
        problem="the client says that it was cancelled" if summary.get("was_cancelled") else None,
    )


def _object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        value = parse_json(file_of(files, name))
    except ValueError as error:
        raise ParseError(f"{name} is not whole JSON: {error}", name, REMEDY) from error
    if not isinstance(value, dict):
        raise ParseError(f"{name} holds no object", name, REMEDY)
    return value


def _phase(manifest: Mapping[str, Any]) -> tuple[int, int]:
    found = [
        phase
        for phase in map(mapping, sequence(manifest.get("phases")))
        if phase.get("phase_kind") == MEASURED
    ]
    if len(found) != 1:
        raise ParseError(f"{PHASES} has {len(found)} profiling phases, not one", PHASES, REMEDY)
    begin, end = moment(found[0].get("start_ns")), moment(found[0].get("end_ns"))
    if begin is None or end is None:
        raise ParseError(f"{PHASES} gives the profiling phase no interval", PHASES, REMEDY)
    return begin, end


def _moment(summary: Mapping[str, Any], name: str) -> int:
    """Return a time of the summary as epoch ns; without a zone it is UTC."""
    said = text(summary.get(name)) or ""
    try:
        stamp = datetime.fromisoformat(said)
        since = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)) - EPOCH
    except ValueError as error:
        raise ParseError(
            f"neither {PHASES} nor {SUMMARY} says when the profiling phase was", name, REMEDY
        ) from error
    return since // timedelta(microseconds=1) * 1000


def _flat(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return every statistic as `METRIC.STATISTIC`, in the unit that the client writes it in."""
    found = {}
    for metric, block in summary.items():
        for statistic, value in mapping(block).items():
            known = number(value)
            if known is not None and "unit" in block:
                found[f"{metric}.{statistic}"] = known
    return found


def _call(index: int, record: Mapping[str, Any]) -> ClientCall:
    metadata, metrics = mapping(record.get("metadata")), mapping(record.get("metrics"))
    failure = mapping(record.get("error"))
    counted = not failure and not metadata.get("was_cancelled") and "request_latency" in metrics
    own = count(_value(metrics, "output_sequence_length"))
    said = _value(metrics, "usage_completion_tokens")
    gaps = [_time(gap, metrics, "inter_chunk_latency") for gap in _gaps(metrics)]
    return ClientCall(
        id=text(metadata.get("x_request_id")) or str(index),
        counted=counted,
        error=None if counted else _error(failure),
        start_ns=moment(metadata.get("request_start_ns")),
        ttft_s=_seconds(metrics, "time_to_first_token") if counted else None,
        latency_s=_seconds(metrics, "request_latency") if counted else None,
        gaps_s=tuple(gap for gap in gaps if gap is not None) if counted else (),
        input_tokens=count(_value(metrics, "usage_prompt_tokens"))
        or count(_value(metrics, "input_sequence_length")),
        output_tokens=(own if said is None else count(said)) if counted else None,
        own_tokens=own if counted else None,
        cached_tokens=count(_value(metrics, "usage_prompt_cache_read_tokens")),
        reasoning_tokens=count(_value(metrics, "usage_reasoning_tokens")),
        flags=("output_tokens_of_own_tokenizer",) if counted and said is None else (),
    )


def _value(metrics: Mapping[str, Any], name: str) -> Any:
    return mapping(metrics.get(name)).get("value")


def _gaps(metrics: Mapping[str, Any]) -> list[Any]:
    return sequence(_value(metrics, "inter_chunk_latency"))


def _seconds(metrics: Mapping[str, Any], name: str) -> float | None:
    return _time(_value(metrics, name), metrics, name)


def _time(value: Any, metrics: Mapping[str, Any], name: str) -> float | None:
    known, unit = seconds(value), UNITS.get(str(mapping(metrics.get(name)).get("unit")))
    return None if known is None or unit is None else known * unit


def _error(failure: Mapping[str, Any]) -> str:
    parts = [failure.get("code"), failure.get("type"), failure.get("message")]
    return " ".join(str(part) for part in parts if part is not None) or "the client says no reason"
