"""The measured intervals of an attempt, from its record."""

from collections.abc import Mapping
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.values import integer, mapping, sequence, text
from servemap.telemetry.align import Segment


def segments_of(meta: Mapping[str, Any]) -> list[Segment]:
    """Return meta.json's `segments`; ParseError where one has no name or no interval."""
    segments: list[Segment] = []
    for item in sequence(meta.get("segments")):
        fields = mapping(item)
        name = text(fields.get("name"))
        begin, end = integer(fields.get("start_ns")), integer(fields.get("end_ns"))
        if name is None or begin is None or end is None or end <= begin:
            raise ParseError(
                "meta.json holds a segment without a name or an interval",
                "segments",
                "run the case again",
            )
        segments.append(Segment(name, begin, end))
    return segments
