"""The trace of a replay case: read and fitted as the load client does it, checked when planning.

The reader is the load client's own (`onnode.load_trace`), so that what is planned is what is sent.
"""

from functools import cache
from pathlib import Path
from typing import Any

from servemap.model.base import tokens
from servemap.model.campaign import Campaign
from servemap.model.cases import ReplayCase
from servemap.model.errors import ConfigError
from servemap.model.groups import cases_of
from servemap.onnode.load_trace import Caps, Trace, least_s, read_trace, replay_stream
from servemap.onnode.load_trace_rows import TraceError


def case_trace(case: ReplayCase, per_k: int) -> Trace:
    """Return the requests that a replay case sends.

    Raises:
        ConfigError: names the case, the file, the line and the remedy.
    """
    caps = Caps(
        None if case.isl_cap is None else tokens(case.isl_cap, per_k),
        None if case.osl_cap is None else tokens(case.osl_cap, per_k),
        case.num_prompts,
        case.timestamp_s,
        case.speed,
        case.pause_factor,
        case.block_tokens,
    )
    try:
        return _read(case.trace, caps)
    except ConfigError as error:
        where = f"cases.{case.id}.trace: {error.where}"
        raise ConfigError(error.what, where, error.remedy) from error


@cache
def _read(path: str, caps: Caps) -> Trace:
    if Path(path).exists() and not Path(path).is_file():
        raise ConfigError("the trace is no regular file", path, "give the path of a file")
    try:
        return read_trace(path, caps)
    except TraceError as error:
        raise ConfigError(error.what, error.where, error.remedy) from error


def trace_here(case: ReplayCase, per_k: int) -> Trace | None:
    """Return the same, or None where the file is not on this machine or cannot be replayed."""
    try:
        return case_trace(case, per_k)
    except ConfigError:
        return None


def replayed(campaign: Campaign, name: str) -> dict[str, Any] | None:
    """Return the stream of requests that a case replays; None for a case of another kind.

    Raises:
        ConfigError: the trace cannot be replayed any more.
    """
    case = next(case for case in cases_of(campaign) if case.id == name)
    if not isinstance(case, ReplayCase):
        return None
    trace = case_trace(case, campaign.scale.tokens_per_k)
    return replay_stream(trace, Path(case.trace).name, case.concurrency)


def check_trace(case: ReplayCase, per_k: int, context: int) -> None:
    """Refuse a replay that cannot be done: its file, its lengths, its times.

    Args:
        case: the case.
        per_k: tokens of a K.
        context: the model's longest sequence in tokens.

    Raises:
        ConfigError: names the file or the key, and the remedy.
    """
    requests = case_trace(case, per_k).requests
    where = f"cases.{case.id}"
    if case.concurrency is None and not all("at_s" in request for request in requests):
        raise ConfigError(
            "not every request of the trace has a time",
            f"{where}.trace: {case.trace}",
            "give the case a concurrency, or the trace times",
        )
    long = [
        number
        for number, request in enumerate(requests, 1)
        if request["isl"] + request["osl"] > context
    ]
    if long:
        raise ConfigError(
            f"{len(long)} of {len(requests)} requests, first number {long[0]}, are longer than "
            f"the model's context {context}",
            f"{where}.trace: {case.trace}",
            "give isl_cap and osl_cap, or raise model.context if the model really has more",
        )
    least = least_s(requests, case.concurrency)
    if least > case.case_timeout_s:
        raise ConfigError(
            f"the trace takes {least:.0f} s at least, case_timeout_s is {case.case_timeout_s:g}",
            f"{where}.case_timeout_s",
            "raise it, or give num_prompts, a speed, or think: compress",
        )
