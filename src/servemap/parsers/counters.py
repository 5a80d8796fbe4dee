"""Rates from counters that may reset, and intervals that may be too short to divide by."""

from collections.abc import Sequence


def delta(before: Sequence[float], after: Sequence[float]) -> list[float] | None:
    """Return after - before per field, or None where a field is gone or ran backwards (reset)."""
    if len(before) != len(after):
        return None
    differences = [b - a for a, b in zip(before, after, strict=True)]
    return None if any(value < 0 for value in differences) else differences


def interval_s(before_mono_ns: int, after_mono_ns: int, least_s: float) -> float | None:
    """Return the monotonic seconds between two samples, None when not longer than `least_s`.

    A wall clock may be stepped and a last sample may follow the one before it by
    milliseconds; counters of 10 ms resolution divided by such an interval mean nothing.
    """
    seconds = (after_mono_ns - before_mono_ns) / 1e9
    return seconds if seconds > max(least_s, 0.0) else None
