"""Checks of the load client: it did its job in time and was not what was measured."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from servemap.analysis.checks.loads import streams
from servemap.analysis.replay import lag_s, paused
from servemap.analysis.requests import Request
from servemap.analysis.verdict import Check, at_most
from servemap.parsers.values import integer, mapping, number, sequence, text


def check_client(
    client: dict[str, Any], requests: Sequence[Request], limits: dict[str, float]
) -> list[Check]:
    """Check that the client did its job and was not what was measured."""
    status = text(client.get("status"))
    lag = number(client.get("max_lag_ms"))
    late = number(mapping(client.get("late_ms")).get("p995"))
    share = client_cores(client, busiest=True)
    return [
        Check("client_status", status, "ok", status == "ok"),
        at_most("client_lag_ms", lag, lag_limit(requests, limits)),
        at_most("client_late_ms", late, lag_limit(requests, limits)),
        at_most("client_cpu_share", share, limits["client_cpu_share"]),
    ]


def lag_limit(requests: Sequence[Request], limits: dict[str, float]) -> float:
    """Return how late (ms) a client may be beside requests of that length."""
    times = [r.e2e_s for r in requests if r.e2e_s is not None]
    tolerated = limits["client_lag_share"] * median(times) * 1e3 if times else 0.0
    return max(limits["client_lag_ms"], tolerated)


def client_cores(client: Mapping[str, Any], busiest: bool = False) -> float | None:
    """Return the cores that a load client took while it measured; None where it did not say.

    Start-up and warm-up are left out: they would hide a client that had no time left in its window.
    servemap's own counts its windows only; a client of others is looked at between the lines that
    mark its window, and where those are missing, only its whole run is known.

    Args:
        client: client.json.
        busiest: of a client of others, its busiest process alone.
    """
    window = mapping(client.get("window_cpu"))
    if "client" in client and (window or busiest):
        used = number(window.get("busiest_cpu_s" if busiest else "cpu_s"))
        seconds = number(window.get("seconds"))
    else:
        used = number(client.get("cpu_s"))
        measured = sum(map(_seconds, map(mapping, sequence(client.get("segments")))))
        seconds = measured or _seconds(
            {"start_ns": client.get("started_ns"), "end_ns": client.get("ended_ns")}
        )
    return used / seconds if used is not None and seconds else None


def _seconds(edges: Mapping[str, Any]) -> float:
    begin, end = integer(edges.get("start_ns")), integer(edges.get("end_ns"))
    return max((end - begin) / 1e9, 0.0) if begin is not None and end is not None else 0.0


def check_schedule(
    load: dict[str, Any], requests: Sequence[Request], limits: dict[str, float]
) -> list[Check]:
    """Check that requests with set times were sent when they were due; no check for other loads.

    Those are an open loop's, and the turns of a replay that come after a pause.

    Args:
        load: the client's specification (load.json).
        requests: the measured requests.
        limits: limits by name.
    """
    names = {text(stream.get("name")) for stream in streams(load) if _open(stream)}
    waited = {request.id for request, _ in paused(load, requests)}
    if not names and not waited:
        return []
    lags = [
        lag * 1e3
        for r in requests
        if (r.stream in names or r.id in waited) and (lag := lag_s(r)) is not None
    ]
    value = float(np.percentile(lags, 99)) if lags else None
    return [at_most("schedule_lag_p99_ms", value, lag_limit(requests, limits))]


def _open(stream: dict[str, Any]) -> bool:
    kind = stream.get("kind")
    return kind == "rate" or (kind == "replay" and stream.get("concurrency") is None)
