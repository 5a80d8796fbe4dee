"""All checks of one measurement, from its raw files."""

from typing import Any, NamedTuple

from servemap.analysis.cached import cached_share
from servemap.analysis.checks.cache import check_prefix, cut_well
from servemap.analysis.checks.cards import check_cards
from servemap.analysis.checks.client import check_client, check_schedule
from servemap.analysis.checks.clocks import check_clock_errors, check_clocks
from servemap.analysis.checks.collectors import check_collectors, check_figures
from servemap.analysis.checks.foreign import check_foreign_load
from servemap.analysis.checks.in_flight import check_in_flight, engine_in_flight
from servemap.analysis.checks.requests import check_requests
from servemap.analysis.checks.reuse import check_reuse
from servemap.analysis.checks.server import (
    check_facts,
    check_identity,
    check_preemptions,
    check_stalled,
)
from servemap.analysis.load_records import LoadRecords
from servemap.analysis.replay import replay_stream, shares
from servemap.analysis.telemetry import Telemetry, engine_cache_hits
from servemap.analysis.verdict import Check
from servemap.parsers.values import mapping, sequence, text
from servemap.telemetry.align import Segment


class Evidence(NamedTuple):
    """What a measurement left: its record, the client's, the load, and what was read of them."""

    meta: dict[str, Any]
    client: dict[str, Any]
    load: dict[str, Any]
    found: LoadRecords
    segments: list[Segment]
    telemetry: Telemetry


def all_checks(evidence: Evidence, limits: dict[str, float]) -> list[Check]:
    """Return every check that a measurement has, by `limits`."""
    meta, load, segments = evidence.meta, evidence.load, evidence.segments
    rows, telemetry = evidence.found.requests.rows, evidence.telemetry
    clock, collectors = mapping(meta.get("clock")), mapping(meta.get("collectors"))
    hits = engine_cache_hits(telemetry.series, segments)
    told = cached_share([r for r in rows if r.status == "ok"])
    if told is not None and not cut_well(telemetry.coverages, limits):
        hits = None  # of too small a part of the segments to be set against usage
    fixed = mapping(load.get("request")).get("ignore_eos") is True
    case = mapping(mapping(meta.get("spec")).get("case"))
    planned = cache_planned(case) or shares(replay_stream(load))
    measured = {s.name: sum(r.segment == s.name for r in rows) for s in segments}
    return [
        check_attempt(meta),
        Check("segments", len(segments), 1, len(segments) > 0),
        *check_requests(rows, evidence.found.sent, fixed, planned, hits, limits, measured.keys()),
        *check_client(evidence.client, rows, limits),
        *evidence.found.checks,
        *check_schedule(load, rows, limits),
        *check_in_flight(load, segments, rows, engine_in_flight(telemetry.series), limits),
        *check_prefix(load, rows, hits, limits),
        *check_reuse(load, rows, hits, limits),
        *check_identity(telemetry.marks, segments),
        *check_preemptions(telemetry.marks, segments, measured, limits),
        *check_stalled(telemetry.series, limits),
        *check_facts(mapping(meta.get("server")), limits),
        *check_cards(mapping(meta.get("cards"))),
        *check_collectors(collectors, telemetry.coverages, limits),
        *check_figures(
            collectors,
            telemetry.series,
            telemetry.coverages,
            segments,
            limits,
            text(mapping(meta.get("server")).get("engine")),
        ),
        *check_clocks(clock, limits),
        *check_clock_errors(clock, collectors, limits),
        *check_foreign_load(telemetry.series, segments, evidence.client, limits),
    ]


def check_attempt(meta: dict[str, Any]) -> Check:
    """Check that the attempt itself was not given up: a limit raised later does not heal it."""
    status = text(meta.get("status"))
    said = "; ".join(str(reason) for reason in sequence(meta.get("reasons")))
    return Check("attempt", status, "ok", status == "ok", said if status != "ok" else "")


def cache_planned(case: dict[str, Any]) -> bool:
    """Say whether a case's prompts share a part by plan."""
    # Template, system messages and tools are the same in all chat requests.
    return case.get("kind") in ("prefix", "chat", "tools")
