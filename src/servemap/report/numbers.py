"""Numbers, sizes and times as people read them; None is `-`."""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

from servemap.parsers.values import integer, number

MISSING = "-"


def plain(value: Any) -> str:
    """Return a number with about four significant digits and thousands separators."""
    known = number(value)
    if known is None:
        return MISSING
    size = abs(known)
    if size >= 1000 or (known == int(known) and size < 1e15):
        return f"{known:,.0f}"
    for least, digits in ((100, 1), (10, 2), (1, 2), (0.1, 3)):
        if size >= least:
            return f"{known:.{digits}f}"
    return f"{known:.2g}"


def percent(value: Any, digits: int = 1) -> str:
    """Return a share of one as a percentage."""
    known = number(value)
    return MISSING if known is None else f"{known * 100:.{digits}f} %"


def change(value: Any) -> str:
    """Return a change in percent with its sign, two decimals, about four significant digits."""
    known = number(value)
    if known is None:
        return MISSING
    digits = 2 if abs(known) < 100 else 1 if abs(known) < 1000 else 0
    return f"{round(known, digits) + 0.0:+,.{digits}f} %"  # no -0.00


def interval(low: Any, high: Any, least: float, said: Callable[[Any], str], otherwise: str) -> str:
    """Return `LOW to HIGH`; where it begins below what the quantity can be, `otherwise` instead.

    Empty where an end is not known.
    """
    ends = number(low), number(high)
    if ends[0] is None or ends[1] is None:
        return ""
    return otherwise if ends[0] < least else f"{said(low)} to {said(high)}"


def seconds(value: Any) -> str:
    """Return a duration in seconds as s, or min and s."""
    known = number(value)
    if known is None:
        return MISSING
    if known < 120:
        return f"{plain(round(known, 2))} s"
    return f"{int(known // 60)} min {int(known % 60)} s"


def size(value: Any) -> str:
    """Return bytes in binary units."""
    known = number(value)
    if known is None:
        return MISSING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(known) < 1024:
            return f"{_tenths(known)} {unit}"
        known /= 1024
    return f"{_tenths(known)} TiB"


def _tenths(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def bit_rate(value: Any) -> str:
    """Return bytes/s as bits/s in decimal units."""
    known = number(value)
    if known is None:
        return MISSING
    bits = known * 8
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if abs(bits) < 1000:
            return f"{plain(bits)} {unit}"
        bits /= 1000
    return f"{plain(bits)} Gbit/s"


def moment(value: Any, zone: tzinfo | None = None) -> str:
    """Return epoch ns as date and time in a zone, with its UTC offset; ours where none is given."""
    known = integer(value)
    if known is None:
        return MISSING
    try:
        utc = datetime.fromtimestamp(known / 1e9, UTC)
        return utc.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S ") + _offset(utc, zone)
    except (OverflowError, ValueError, OSError):
        return MISSING


def _offset(utc: datetime, zone: tzinfo | None) -> str:
    offset = utc.astimezone(zone).strftime("%z")
    return f"UTC{offset[:3]}:{offset[3:5]}"
