"""A search's three answers, from its derived probes; only valid ones count.

- `most_succeeded`: the largest probed level without a failed request
- `most_throughput`: the probed level with the most successful requests per second
- `within_slo`: the largest level that met the SLO below the smallest one that missed it

Levels above those that the SLO asked for are not probed: the first two are no limits of the server.
Each probe has checks of its own, so that one which is invalid leaves the others what they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from servemap.analysis.metrics import figures, pick
from servemap.analysis.probes import FAILURES, outcome_of, read_run, slo_share
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check
from servemap.model.search import (
    SAID,
    Judgement,
    Probed,
    bounds_of,
    bracket,
    next_step,
    say_level,
)
from servemap.parsers.values import integer, mapping, sequence, text

_CERTAIN = ("converged", "none")
_SAID = {**SAID, "unknown": "no probe is valid, so nothing is known of any level"}


class Probe(NamedTuple):
    """One derived probe."""

    name: str
    level: float
    judgement: Judgement
    figures: dict[str, Any]
    checks: list[Check]

    @property
    def valid(self) -> bool:
        """Whether an answer may rest on it."""
        return self.judgement.outcome != "invalid"

    @property
    def failed(self) -> int:
        """How many of its requests failed or timed out."""
        return int((pick(self.figures, "failed") or 0) + (pick(self.figures, "timed_out") or 0))


def probe_of(
    segment: dict[str, Any],
    metrics: dict[str, Any],
    requests: Sequence[Request],
    case: dict[str, Any],
) -> Probe:
    """Return a probe from the metrics that were derived of it as of a case of its own.

    Args:
        segment: meta.json's, with `name` and `concurrency` or `rate_rps`.
        metrics: with `checks` and one segment's figures.
        requests: the measured ones.
        case: the resolved search.
    """
    checks = [_of_probe(Check(**check)) for check in metrics["checks"]]
    share = slo_share(requests, case["slo"])
    key = "concurrency" if case["over"] == "concurrency" else "rate_rps"
    found = mapping(mapping((metrics["segments"] or [{}])[0]).get("metrics"))
    judgement = outcome_of(share, case["slo_share"], checks)
    return Probe(str(segment["name"]), segment[key], judgement, found, checks)


def read_probe(
    folder: Path, case: Mapping[str, Any], level: float, limits: dict[str, float]
) -> Probe | None:
    """Return a probe that the client made alone; None where the client did not do its job.

    Raises:
        ParseError: records that must be there are missing or damaged.
    """
    run = read_run(folder, case, limits)
    window = mapping(next(iter(sequence(run.client.get("segments"))), {}))
    begin, end = integer(window.get("start_ns")), integer(window.get("end_ns"))
    if run.client.get("status") != "ok" or begin is None or end is None:
        return None
    found = figures(run.requests, (end - begin) / 1e9, None, dict(case["slo"]))
    return Probe(folder.name, level, run.judgement, found, list(map(_of_probe, run.checks)))


def _of_probe(check: Check) -> Check:
    if check.name != FAILURES:
        return check
    return check._replace(ok=None, note="a failed request misses the SLO, which the search is for")


def search_figures(
    case: dict[str, Any], recorded: dict[str, Any], probes: Sequence[Probe]
) -> dict[str, Any]:
    """Return metrics.json's `search`.

    Args:
        case: the resolved search.
        recorded: meta.json's `search`: how it ended when it was measured.
        probes: in the order in which they were made.
    """
    valid = [probe for probe in probes if probe.valid]
    judged = [Probed(probe.level, probe.judgement.outcome) for probe in valid]
    met, missed = bracket(judged)
    ended = _ended(case, recorded, judged)
    succeeded = [probe for probe in valid if not probe.failed]
    fast = [probe for probe in valid if pick(probe.figures, "request_s") is not None]
    return {
        "over": case["over"],
        "slo": case["slo"],
        "slo_share": case["slo_share"],
        "ended": ended,
        "said": _SAID[ended],
        "lower_bound": ended not in _CERTAIN,
        "missed_at": missed,
        "within_slo": _answer(next((p for p in valid if p.level == met and _met(p)), None)),
        "most_succeeded": _answer(max(succeeded, key=lambda p: p.level, default=None)),
        "most_throughput": _answer(
            max(fast, key=lambda p: pick(p.figures, "request_s") or 0, default=None)
        ),
        "non_monotonic": _non_monotonic(case["over"], valid),
        "probes": [
            {
                "name": probe.name,
                "level": probe.level,
                "outcome": probe.judgement.outcome,
                "slo_share": probe.judgement.share,
                "failed": probe.failed,
                "reasons": probe.judgement.reasons,
                "checks": [check._asdict() for check in probe.checks],
            }
            for probe in probes
        ],
    }


def _met(probe: Probe) -> bool:
    return probe.judgement.outcome == "met"


def _ended(case: dict[str, Any], recorded: dict[str, Any], judged: list[Probed]) -> str:
    """Return how the search ended by what its valid probes say now.

    Where they leave the answer open, it is what ended the search then, or that a probe which the
    answer rested on is not valid.
    """
    if not judged:
        return "unknown"
    endless = replace(bounds_of(case), max_probes=len(judged) + 1)
    found = next_step(endless, judged, 0.0).ended
    then = text(recorded.get("ended"))
    if found is not None:
        return found
    return then if then in ("probes", "time") else "invalid"


def _answer(probe: Probe | None) -> dict[str, Any] | None:
    if probe is None:
        return None
    return {
        "probe": probe.name,
        "level": probe.level,
        "slo_share": probe.judgement.share,
        "request_s": pick(probe.figures, "request_s"),
        "agg_output_tps": pick(probe.figures, "agg_output_tps"),
    }


def _non_monotonic(over: str, valid: Sequence[Probe]) -> list[str]:
    """Return in words where a higher level did better than a lower one; empty where none did."""
    said = []
    for good, words in (
        (_met, ("met the SLO", "missed it")),
        (lambda p: not p.failed, ("had no failed request", "had some")),
    ):
        best = max((p.level for p in valid if good(p)), default=None)
        below = sorted(
            {p.level for p in valid if not good(p) and best is not None and p.level < best}
        )
        if best is not None and below:
            levels = ", ".join(f"{level:g}" for level in below)
            said.append(f"{say_level(over, best)} {words[0]} although {levels} {words[1]}")
    return said


def check_search(probes: Sequence[Probe]) -> list[Check]:
    """Check that an answer rests on something: at least one probe is valid."""
    valid = sum(probe.valid for probe in probes)
    bad = next((probe for probe in probes if not probe.valid), None)
    note = "" if bad is None else f"{bad.name}: {'; '.join(bad.judgement.reasons)}"
    return [Check("valid_probes", float(valid), 1.0, valid > 0, note)]
