"""Prometheus text exposition, one scrape: every series that is whole."""

import math
import re
from functools import lru_cache
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

_COMMENT = re.compile(r"#\s*(HELP|TYPE)\s+(\S+)(?:\s+(.*))?")


class Series(NamedTuple):
    """One value of one series; None for NaN and infinities."""

    metric: str
    labels: dict[str, str]
    value: float | int | None


class Exposition(NamedTuple):
    """The series of a scrape in order, what is said about their metrics, and what was left out."""

    series: list[Series]
    help: dict[str, str]
    types: dict[str, str]
    skipped: list[Skipped]


def read_exposition(text: str) -> Exposition:
    """Return the series of `text`; a line that is none is skipped."""
    found = Exposition([], {}, {}, [])
    unended = cut_line(text)
    for line, row in numbered(text):
        if row.lstrip().startswith("#"):
            if match := _COMMENT.match(row.lstrip()):
                kept = found.help if match[1] == "HELP" else found.types
                kept[match[2]] = match[3] or ""
            continue
        series = None if line == unended else _series(row.strip())
        if series is None:
            found.skipped.append(Skipped(line, "no series, or cut"))
        else:
            found.series.append(series)
    return found


def _series(row: str) -> Series | None:
    """Return the series of a line, None where it is none; series come again in every scrape."""
    head, blank, last = row.rpartition(" ")
    if blank and head.endswith("}") and "_" not in last:
        try:
            value = float(last)
        except ValueError:
            return None
        named = _named(head)
        return None if named is None else Series(named[0], dict(named[1]), _plain(value))
    found = _read(row)
    return None if found is None else Series(found.name, dict(found.labels), _plain(found.value))


@lru_cache(maxsize=65536)
def _named(head: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return the name and the labels of a line without its value."""
    found = _read(f"{head} 0")
    return None if found is None else (found.name, tuple(found.labels.items()))


def _read(row: str) -> Sample | None:
    try:
        samples = [sample for family in text_string_to_metric_families(row + "\n")
                   for sample in family.samples]  # fmt: skip
    except (ValueError, KeyError, IndexError, OverflowError):
        return None
    return samples[0] if len(samples) == 1 else None


def _plain(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if abs(value) < 2**64 and float(value).is_integer() else value


def parse_exposition_text(text: str) -> Extract:
    """Any scrape in Prometheus' text form: all its series.

    `series`: one each, `metric`, `labels` and `value` (null for NaN and infinities). `types` and
    `help`: {metric: as declared}. Units are those of the metric's name or help.

    Raises:
        ParseError: there is no series.
    """
    found = read_exposition(text)
    if not found.series:
        raise foreign("a Prometheus exposition", "series")
    data: dict[str, Any] = {
        "series": [series._asdict() for series in found.series],
        "types": found.types,
        "help": found.help,
    }
    return Extract(data, found.skipped)
