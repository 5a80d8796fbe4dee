"""One repeat's raw files to requests.parquet, telemetry.parquet and metrics.json."""

from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from servemap.analysis.definitions import definitions
from servemap.analysis.engine_figures import engine_figures
from servemap.analysis.foreign import check_foreign_load
from servemap.analysis.load_records import NO_REQUESTS, read_load
from servemap.analysis.metrics import (
    CONTROL,
    INJECTED,
    WEIGHTS,
    interference,
    segment_figures,
    token_counts,
)
from servemap.analysis.requests import Requests
from servemap.analysis.store import write_requests, write_telemetry
from servemap.analysis.telemetry import Telemetry, engine_cache_hit_rate, read_telemetry
from servemap.analysis.verdict import (
    Check,
    check_client,
    check_clocks,
    check_collectors,
    check_requests,
    resolve_limits,
    verdict,
)
from servemap.analysis.workload_checks import check_prefix, check_schedule, check_stalled
from servemap.model.canon import file_sha256, write_json_atomic
from servemap.model.errors import ParseError
from servemap.model.files import read_json_value
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.telemetry.align import Segment
from servemap.telemetry.clock import load_times

_EMPTY_TELEMETRY = Telemetry([], [], {}, {})
_ERRORS_SHOWN = 20
_ERROR_LENGTH = 500


class _Derived(NamedTuple):
    requests: Requests
    telemetry: Telemetry
    metrics: dict[str, Any]


def derive_attempt(repeat_dir: Path, options: dict[str, Any]) -> None:
    """Write the derived files of `repeat_dir` (cases/VARIANT/CASE/rK), metrics.json last.

    Bad raw data never raises: the reason is in metrics.json, the verdict is `invalid`, and the
    tables are there and empty.

    Args:
        repeat_dir: the folder with meta.json and attempts/NNN/raw.
        options: `limits` {name: number} over the defaults of limits.yaml, `weights`
            {uncached_input, cached_input, output}, `slo` {ttft_s, tpot_s, e2e_s, itl_p99_s: s},
            `token`, stored as it is (see model/derived.py).
            `weights` and `slo` of the case's own spec come first.

    Raises:
        OSError: the derived files cannot be written.
    """
    meta: dict[str, Any] = {}
    try:
        meta = _read_object(repeat_dir / "meta.json")
        derived = _derive(repeat_dir, meta, options)
    except Exception as error:  # noqa: BLE001 - one bad file must not stop the campaign's report
        what = error.what if isinstance(error, ParseError) else f"{type(error).__name__}: {error}"
        derived = _Derived(NO_REQUESTS, _EMPTY_TELEMETRY, _failed(meta, what))
    attempt = integer(meta.get("attempt"))
    write_requests(repeat_dir / "requests.parquet", derived.requests.rows, attempt)
    write_telemetry(repeat_dir / "telemetry.parquet", derived.telemetry.rows, attempt)
    metrics = {**derived.metrics, "token": options.get("token", 0)}
    write_json_atomic(repeat_dir / "metrics.json", metrics)


def _derive(repeat_dir: Path, meta: dict[str, Any], options: dict[str, Any]) -> _Derived:
    attempt = integer(meta.get("attempt"))
    if attempt is None:
        raise ParseError("meta.json names no attempt", str(repeat_dir), "run the case again")
    folder = repeat_dir / "attempts" / f"{attempt:03d}"
    status = text(meta.get("status"))
    if status == "not_run":
        return _Derived(NO_REQUESTS, _EMPTY_TELEMETRY, _unmeasured(meta, "not_run", {}))
    _verify(folder, mapping(meta.get("files")))
    client = _read_object(folder / "raw/client.json", status != "ok")
    load = _read_object(folder / "raw/load.json", status != "ok")
    clock = mapping(meta.get("clock"))
    load_node = text(mapping(meta.get("spec")).get("load_node")) or ""
    to_head = load_times(folder / "raw", client, load_node, clock)
    found = read_load(folder / "raw", client, load, to_head, whole=status == "ok")
    requests = found.requests
    segments = _segments(meta)
    telemetry = read_telemetry(
        folder / "raw/telemetry",
        segments,
        mapping(meta.get("collectors")),
        clock,
    )
    if status != "ok":
        metrics = _unmeasured(meta, text(status) or "of unknown status", _error_counts(requests))
        return _Derived(requests, telemetry, metrics)
    case = mapping(mapping(meta.get("spec")).get("case"))
    limits = resolve_limits(mapping(options.get("limits")))
    weights = _weights(case.get("weights") or options.get("weights"))
    slo = _numbers(case.get("slo") or options.get("slo"))
    injected = _injected_streams(load)
    engine = engine_figures(
        folder / "raw/telemetry",
        text(mapping(meta.get("server")).get("engine")),
        segments,
        clock,
        telemetry.rows,
    )
    figures = [
        {
            **segment_figures(s, requests.rows, injected, weights, slo),
            "engine": engine.get(s.name),
        }
        for s in segments
    ]
    fixed = mapping(load.get("request")).get("ignore_eos") is True
    checks = [
        Check("segments", len(segments), 1, len(segments) > 0),
        *check_requests(
            requests.rows,
            found.sent,
            fixed,
            _cache_planned(case),
            engine_cache_hit_rate(telemetry.rows),
            limits,
        ),
        *check_client(client, requests.rows, limits),
        *found.checks,
        *check_schedule(load, requests.rows, limits),
        *check_prefix(load, requests.rows, engine_cache_hit_rate(telemetry.rows), limits),
        *check_stalled(telemetry.rows, limits),
        *check_collectors(mapping(meta.get("collectors")), telemetry.coverages, limits),
        *check_clocks(clock, limits),
        *check_foreign_load(telemetry.rows, segments, client, limits),
    ]
    outcome, reasons = verdict(checks)
    by_name = {row["name"]: row for row in figures}
    mixed = None
    if CONTROL in by_name and INJECTED in by_name:
        mixed = interference(by_name[CONTROL], by_name[INJECTED], requests.rows, injected)
    metrics = {
        **_head(meta),
        "verdict": outcome,
        "reasons": reasons,
        "derive": {"status": "ok", "error": None, "skipped": found.skipped | telemetry.skipped},
        "checks": [check._asdict() for check in checks],
        "tokens": token_counts(requests.rows),
        "warmup": {"ok": requests.warmup_ok, "failed": requests.warmup_failed},
        "segments": figures,
        "interference": mixed,
        "coverage": [row._asdict() for row in telemetry.coverages],
        "errors": _error_counts(requests),
        "processes": telemetry.processes,
        "weights": weights,
        "slo": slo,
    }
    if found.summary is not None:
        metrics["client_summary"] = found.summary
    return _Derived(requests, telemetry, metrics)


def _read_object(path: Path, optional: bool = False) -> dict[str, Any]:
    try:
        value = read_json_value(path)
    except FileNotFoundError:
        if optional:
            return {}
        raise ParseError(f"{path.name} is missing", str(path), "run the case again") from None
    except OSError as error:
        raise ParseError(
            f"{path.name} cannot be read: {error.strerror}", str(path), "run the case again"
        ) from error
    except ValueError as error:
        raise ParseError(
            f"{path.name} is not JSON: {error}", str(path), "run the case again"
        ) from error
    if not isinstance(value, dict):
        raise ParseError(f"{path.name} holds no object", str(path), "run the case again")
    return value


def _verify(folder: Path, files: dict[str, Any]) -> None:
    """Refuse raw files that are not, byte for byte, what the measurement recorded."""
    for name, recorded in files.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise ParseError(f"{name} points out of the attempt", str(folder), "restore meta.json")
        path = folder / pure
        if not path.is_file():
            raise ParseError(f"{name} is missing", str(path), "restore it or run the case again")
        fields = mapping(recorded)
        size, digest = integer(fields.get("size")), text(fields.get("sha256"))
        if size is not None and path.stat().st_size != size:
            raise ParseError(
                f"{name} has {path.stat().st_size} bytes, {size} were recorded",
                str(path),
                "restore it or run the case again",
            )
        if digest is not None and file_sha256(path) != digest:
            raise ParseError(
                f"{name} does not have the recorded sha256",
                str(path),
                "restore it or run the case again",
            )


def _segments(meta: dict[str, Any]) -> list[Segment]:
    segments: list[Segment] = []
    for item in sequence(meta.get("segments")):
        fields = mapping(item)
        name = text(fields.get("name"))
        begin, end = integer(fields.get("start_ns")), integer(fields.get("end_ns"))
        if name is None or begin is None or end is None or end <= begin:
            raise ParseError(
                "meta.json holds a segment without a name or an interval",
                "segments",
                "run the case again",
            )
        segments.append(Segment(name, begin, end))
    return segments


def _injected_streams(load: dict[str, Any]) -> frozenset[str]:
    """Streams that disturb others: requests at fixed times beside a closed loop."""
    names = {INJECTED}
    for segment in sequence(load.get("segments")):
        streams = [mapping(s) for s in sequence(mapping(segment).get("streams"))]
        if any(s.get("kind") == "closed" for s in streams):
            names |= {text(s.get("name")) or INJECTED for s in streams if s.get("kind") == "at"}
    return frozenset(names)


def _cache_planned(case: dict[str, Any]) -> bool:
    asked = case.get("cache") not in (None, False, "none", "unique", "cold", "flush")
    # Template, system messages and tools are the same in all chat requests.
    return asked or case.get("kind") in ("prefix", "chat", "tools")


def _weights(value: Any) -> dict[str, float] | None:
    weights = _numbers(value)
    return weights if weights is not None and all(name in weights for name in WEIGHTS) else None


def _numbers(value: Any) -> dict[str, float] | None:
    pairs = {name: number(item) for name, item in mapping(value).items()}
    return {name: item for name, item in pairs.items() if item is not None} or None


def _error_counts(requests: Requests) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in requests.rows:
        if row.status != "ok":
            reason = (row.error or row.status)[:_ERROR_LENGTH]
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:_ERRORS_SHOWN])


def _head(meta: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1,
        "definitions": definitions(),
        **{key: meta.get(key) for key in ("run", "variant", "case", "repeat", "attempt")},
    }


def _unmeasured(meta: dict[str, Any], status: str, errors: dict[str, int]) -> dict[str, Any]:
    reasons = [reason for reason in sequence(meta.get("reasons")) if isinstance(reason, str)]
    return {
        **_head(meta),
        "verdict": "invalid",
        "reasons": reasons or [f"the attempt is {status}"],
        "derive": {"status": "ok", "error": None, "skipped": {}},
        "checks": [],
        "tokens": None,
        "segments": None,
        "interference": None,
        "coverage": [],
        "errors": errors,
    }


def _failed(meta: dict[str, Any], error: str) -> dict[str, Any]:
    return {
        **_unmeasured(meta, "not readable", {}),
        "reasons": [f"not derived: {error}"],
        "derive": {"status": "failed", "error": error, "skipped": {}},
    }
