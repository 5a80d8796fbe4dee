"""A few figures for the person at the terminal; the results are made from the raw records."""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .load_records import first_token_event

# llama.cpp: "Prompt contains invalid tokens"; vLLM: "Token id N is out of vocabulary".
_FOREIGN_TOKENS = re.compile(r"invalid tokens|out of vocab|vocab(?:ulary)?[ _]size", re.IGNORECASE)


class Figures(NamedTuple):
    """Latencies in seconds of one good request of a segment's stream; None where it has none.

    `output_tokens`: None where the server counted none, which says nothing of TTFT and E2E.
    """

    segment: str
    stream: str
    ttft_s: float
    tpot_s: Optional[float]
    e2e_s: float
    output_tokens: Optional[int]
    input_tokens: Optional[int] = None
    cached_tokens: Optional[int] = None


def figures(record: Dict[str, Any]) -> Optional[Figures]:
    """Take the figures of a good record."""
    usage = record["usage"] or {}
    produced = usage.get("completion_tokens") or None
    if record["status"] != "ok":
        return None
    kinds: str = record["kinds"]
    index = first_token_event(kinds, record["tokens"] or [None] * len(kinds))
    if index is None:
        return None
    first, sent, last = record["t_ns"][index], record["sent_ns"], record["last_ns"]
    # Tokens that all came in one read have no time between them.
    tpot: Optional[float] = None
    if produced is not None and produced > 1 and last > first:
        tpot = (last - first) / 1e9 / (produced - 1)
    times = ((first - sent) / 1e9, tpot, (last - sent) / 1e9)
    given, cached = usage.get("prompt_tokens"), usage.get("cached_tokens")
    return Figures(record["segment"], record["stream"], *times, produced, given, cached)


def percentile(values: List[float], share: float) -> float:
    """Linearly interpolated percentile of at least one value."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def say_no_success(errors: Dict[str, Tuple[int, str]]) -> str:
    """Say that every request failed, and of what."""
    kinds = ", ".join(f"{count} x {kind}" for kind, (count, _) in errors.items())
    return f"no request succeeded: {kinds}"


def vocab_hint(errors: Dict[str, Tuple[int, str]]) -> str:
    """Return the remedy where a server refused the prompts' token ids; else nothing."""
    if any(_FOREIGN_TOKENS.search(first) for _, first in errors.values()):
        return "; give --vocab LO:HI within the model's vocabulary"
    return ""


def summary_lines(
    found: List[Figures],
    errors: Dict[str, Tuple[int, str]],
    client: Dict[str, Any],
    lags_s: List[float],
) -> List[str]:
    """Lay the summary out; measured requests only."""
    counts = client["counts"]
    lines = [
        f"status    {client['status']}" + "".join(f"\n  {reason}" for reason in client["reasons"]),
        "requests  {ok} ok, {failed} failed, {timed_out} timed out, {retried} retried, "
        "{planned} planned".format(**counts),
    ]
    lines += [f"  {count} {kind}: {first}" for kind, (count, first) in errors.items()]
    if not counts["ok"] and errors:
        lines.append(f"  {say_no_success(errors)}")
    parts = list(dict.fromkeys((item.segment, item.stream) for item in found))
    for segment, stream in parts:
        if len(parts) > 1:
            lines.append(f"{segment}, {stream}")
        own = [item for item in found if (item.segment, item.stream) == (segment, stream)]
        window_s = sum(
            (item["end_ns"] - item["start_ns"]) / 1e9
            for item in client["segments"]
            if item["name"] == segment
        )
        lines += _stream_lines(own, window_s)
    if not parts:
        lines += _stream_lines([], 0.0)
    lines += _client_lines(client)
    if lags_s:
        middle, most = percentile(lags_s, 0.5) * 1e3, max(lags_s) * 1e3
        lines.append(f"schedule  sent p50 {middle:.2f} ms, at most {most:.2f} ms after it was due")
    return lines


def trace_line(load: Dict[str, Any]) -> List[str]:
    """Return what of a trace is replayed; no line for a load without one."""
    for stream in load["segments"][0]["streams"]:
        if stream["kind"] == "replay":
            about = stream["trace"]
            line = f"trace     {len(stream['requests'])} requests (form {about['form']})"
            left = about["left_out"]
            return [line + (f", {left} left out that had failed when recorded" if left else "")]
    return []


def _client_lines(client: Dict[str, Any]) -> List[str]:
    """Return how late the client read and how busy it was, the bounds of its own error."""
    if not client["segments"]:
        return []
    late, cpu = client["late_ms"], f"{client['window_cpu_share']:.0%} of a core"
    said = "how late it read is not known"
    if late is not None:
        said = f"late p99.5 {late['p995']:.2f} ms, worst {late['max']:.2f} ms"
    return [f"client    {said}, {cpu}"]


def _stream_lines(found: List[Figures], window_s: float) -> List[str]:
    lines = []
    rows = (
        ("TTFT", [item.ttft_s for item in found]),
        ("TPOT", [item.tpot_s for item in found if item.tpot_s is not None]),
        ("E2E", [item.e2e_s for item in found]),
    )
    for name, values in rows:
        if values:
            middle, tail = percentile(values, 0.5) * 1e3, percentile(values, 0.95) * 1e3
            lines.append(f"{name:<9} p50 {middle:.2f} ms, p95 {tail:.2f} ms")
        else:
            lines.append(f"{name:<9} not measured")
        if name == "TPOT":
            why = _without_tpot(found)
            lines[-1] += f"{'; left out' if values else ''}: {why}" if why else ""
    counts = [item.output_tokens for item in found if item.output_tokens is not None]
    if counts and window_s > 0:
        lines.append(f"output    {sum(counts) / window_s:.1f} tok/s over {window_s:.2f} s")
        if len(counts) < len(found):
            lines[-1] += f", of the {len(counts)} of {len(found)} answers that were counted"
    elif found and not counts:
        lines.append("output    not measured: no usage counts from the server")
    known = [
        (item.cached_tokens, item.input_tokens)
        for item in found
        if item.cached_tokens is not None and item.input_tokens
    ]
    if known:
        share = sum(cached for cached, _ in known) / sum(given for _, given in known)
        lines.append(f"cached    {share:.1%} of the input, by the server's usage")
    return lines


def _without_tpot(found: List[Figures]) -> str:
    """Say how many answers have no TPOT, and why."""
    lacking = [item.output_tokens for item in found if item.tpot_s is None]
    reasons = (
        ("without a usage count", sum(count is None for count in lacking)),
        ("of one token", sum(count == 1 for count in lacking)),
        ("whose tokens came in one read", sum((count or 0) > 1 for count in lacking)),
    )
    return ", ".join(
        f"{count} answer{'s' if count > 1 else ''} {why}" for why, count in reasons if count
    )
