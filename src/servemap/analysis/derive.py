"""One repeat's raw files to requests.parquet, telemetry.parquet and metrics.json."""

from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from servemap.analysis.definitions import definitions
from servemap.analysis.engine_figures import engine_figures
from servemap.analysis.judge import Evidence, all_checks, check_attempt
from servemap.analysis.load_records import NO_REQUESTS, read_load
from servemap.analysis.metrics import (
    CONTROL,
    INJECTED,
    WEIGHTS,
    interference,
    segment_figures,
    token_counts,
)
from servemap.analysis.replay import replay_figures
from servemap.analysis.requests import Requests
from servemap.analysis.search import Probe, check_search, probe_of, search_figures
from servemap.analysis.segments import segments_of
from servemap.analysis.store import write_requests
from servemap.analysis.telemetry import Telemetry, read_telemetry
from servemap.analysis.telemetry_store import write_telemetry
from servemap.analysis.verdict import resolve_limits, verdict
from servemap.model.attempts import DISTURBED
from servemap.model.canon import file_sha256, write_json_atomic
from servemap.model.errors import ParseError
from servemap.model.files import read_json_value
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.telemetry.clock import load_times

_EMPTY_TELEMETRY = Telemetry([], [], {}, {}, [])
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
    write_telemetry(repeat_dir / "telemetry.parquet", derived.telemetry.series, attempt)
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
    telemetry = read_telemetry(
        folder / "raw/telemetry",
        segments_of(meta),
        mapping(meta.get("collectors")),
        mapping(meta.get("clock")),
    )
    raw = folder / "raw"
    if mapping(mapping(meta.get("spec")).get("case")).get("kind") == "search":
        return _derive_search(raw, meta, options, telemetry)
    return _derive_load(raw, raw, meta, options, telemetry)


def _derive_load(
    raw: Path, load_raw: Path, meta: dict[str, Any], options: dict[str, Any], telemetry: Telemetry
) -> _Derived:
    """Return what follows from one load: of the attempt's raw files, its own are in `load_raw`."""
    status = text(meta.get("status"))
    # What was only disturbed did its job: its figures are evidence, and never valid.
    whole = status == "ok" or meta.get("cause") == DISTURBED
    client = _read_object(load_raw / "client.json", not whole)
    load = _read_object(load_raw / "load.json", not whole)
    clock = mapping(meta.get("clock"))
    load_node = text(mapping(meta.get("spec")).get("load_node")) or ""
    to_head = load_times(raw, client, load_node, clock)
    found = read_load(load_raw, client, load, to_head, whole)
    requests = found.requests
    segments = segments_of(meta)
    if not whole:
        metrics = _unmeasured(meta, text(status) or "of unknown status", _error_counts(requests))
        return _Derived(requests, telemetry, metrics)
    case = mapping(mapping(meta.get("spec")).get("case"))
    limits = resolve_limits(mapping(options.get("limits")))
    weights = _weights(case.get("weights") or options.get("weights"))
    slo = _numbers(case.get("slo") or options.get("slo"))
    injected = _injected_streams(load)
    engine = engine_figures(
        raw / "telemetry",
        text(mapping(meta.get("server")).get("engine")),
        segments,
        clock,
        telemetry.series,
    )
    figures = [
        {
            **segment_figures(s, requests.rows, injected, weights, slo),
            "engine": engine.get(s.name),
        }
        for s in segments
    ]
    evidence = Evidence(meta, client, load, found, segments, telemetry)
    checks = all_checks(evidence, limits)
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
    replay = replay_figures(load, requests.rows)
    if replay is not None:
        metrics["replay"] = replay
    if found.summary is not None:
        metrics["client_summary"] = found.summary
    return _Derived(requests, telemetry, metrics)


def _derive_search(
    raw: Path, meta: dict[str, Any], options: dict[str, Any], telemetry: Telemetry
) -> _Derived:
    """Return what follows from a search: each probe is derived as a case of its own."""
    case = mapping(mapping(meta.get("spec")).get("case"))
    status = text(meta.get("status")) or "of unknown status"
    whole = status == "ok" or meta.get("cause") == DISTURBED
    parts: list[_Derived] = []
    probes: list[Probe] = []
    for segment in map(mapping, sequence(meta.get("segments"))):
        name = text(segment.get("name")) or ""
        # What disturbed one probe says nothing of the others.
        one = {**meta, "segments": [segment], **({"status": "ok"} if whole else {})}
        own = Telemetry(
            [one for one in telemetry.series if one.segment == name],
            [row for row in telemetry.coverages if row.segment == name],
            {},
            {},
            telemetry.marks,
        )
        parts.append(_derive_load(raw, raw / PurePosixPath(name).name, one, options, own))
        probes.append(probe_of(segment, parts[-1].metrics, parts[-1].requests.rows, case))
    requests = Requests(
        [row for part in parts for row in part.requests.rows],
        sum(part.requests.warmup_ok for part in parts),
        sum(part.requests.warmup_failed for part in parts),
        [row for part in parts for row in part.requests.skipped],
    )
    if not whole:
        metrics = _unmeasured(meta, status, _error_counts(requests))
        return _Derived(requests, telemetry, metrics)
    checks = [check_attempt(meta), *check_search(probes)]
    outcome, reasons = verdict(checks)
    skipped = {
        f"{probe.name}/{name}": said
        for probe, part in zip(probes, parts, strict=True)
        for name, said in part.metrics["derive"]["skipped"].items()
    }
    metrics = {
        **_unmeasured(meta, status, _error_counts(requests)),
        "verdict": outcome,
        "reasons": reasons,
        "derive": {"status": "ok", "error": None, "skipped": skipped | telemetry.skipped},
        "checks": [check._asdict() for check in checks],
        "tokens": token_counts(requests.rows),
        "warmup": {"ok": requests.warmup_ok, "failed": requests.warmup_failed},
        "segments": [row for part in parts for row in part.metrics["segments"]],
        "coverage": [row._asdict() for row in telemetry.coverages],
        "processes": telemetry.processes,
        "weights": _weights(case.get("weights") or options.get("weights")),
        "slo": case.get("slo"),
        "search": search_figures(case, mapping(meta.get("search")), probes),
    }
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


def _injected_streams(load: dict[str, Any]) -> frozenset[str]:
    """Streams that disturb others: requests at fixed times beside a closed loop."""
    names = {INJECTED}
    for segment in sequence(load.get("segments")):
        streams = [mapping(s) for s in sequence(mapping(segment).get("streams"))]
        if any(s.get("kind") == "closed" for s in streams):
            names |= {text(s.get("name")) or INJECTED for s in streams if s.get("kind") == "at"}
    return frozenset(names)


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
