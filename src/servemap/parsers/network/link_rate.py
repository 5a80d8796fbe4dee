"""Rates of links as tools print them."""

import re

from servemap.parsers.cells import number

_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)\s{0,3}(G|M)b(?:it)?(?:/s|/sec|ps)?(?: \(.{0,40}\))?")
_FACTORS = {"G": 1_000_000_000, "M": 1_000_000}


def read_rate(text: str) -> int | None:
    """Return bits/s of `400 Gb/sec (4X NDR)`, `25000Mb/s`; None for any other text."""
    found = _RATE.fullmatch(text.strip())
    value = number(found[1]) if found else None
    return None if found is None or value is None else round(value * _FACTORS[found[2]])
