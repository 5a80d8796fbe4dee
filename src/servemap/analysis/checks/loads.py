"""What a load was asked to be, from the client's specification (load.json)."""

from typing import Any

from servemap.parsers.values import mapping, sequence


def streams(load: dict[str, Any], segment: str | None = None) -> list[dict[str, Any]]:
    """Return the streams of a segment; of all of them where none is named."""
    segments = [mapping(item) for item in sequence(load.get("segments"))]
    return [
        mapping(stream)
        for item in segments
        if segment is None or item.get("name") == segment
        for stream in sequence(item.get("streams"))
    ]
