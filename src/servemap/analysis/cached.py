"""The share of the input that came out of a server's cache, by usage and by its own counters."""

from collections.abc import Sequence
from typing import NamedTuple

from servemap.analysis.requests import Request


class EngineHits(NamedTuple):
    """Cached over all prompt tokens by the engine's counters, and of how much of the segments.

    `covered_s` of `window_s` lie between two scrapes inside a segment.
    """

    share: float
    covered_s: float
    window_s: float

    def __str__(self) -> str:
        return (
            f"by the engine's counters, between scrapes inside the segments: "
            f"{self.covered_s:.1f} of {self.window_s:.1f} s"
        )


def cached_share(ok: Sequence[Request]) -> float | None:
    """Return cached over input tokens by usage; None where the server does not tell."""
    known = [
        (r.cached_tokens, r.input_tokens)
        for r in ok
        if r.cached_tokens is not None and r.input_tokens is not None
    ]
    total = sum(given for _, given in known)
    return sum(cached for cached, _ in known) / total if total else None
