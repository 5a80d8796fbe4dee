"""The record that a load's client left: whether it is that of this load, and its times."""

from collections.abc import Mapping, Sequence
from typing import Any

from servemap.measure.client import client_result
from servemap.measure.record import Attempt
from servemap.parsers.values import integer, mapping, sequence
from servemap.telemetry.clock import load_times

CLOCK_NS = 1_000_000_000
"""What the clocks of two machines may be read apart."""


def own_record(
    attempt: Attempt, load_id: str, offsets_ns: Sequence[int]
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the client's record if it is that of a load, else why what was found is not.

    See `why_foreign` for the arguments; both are None where there is no record.
    """
    record = client_result(attempt.raw)
    if record is None:
        return None, None
    opened_ns = integer(attempt.opening().get("opened_ns"))
    foreign = why_foreign(record, load_id, opened_ns, offsets_ns)
    return (record, None) if foreign is None else (None, foreign)


def why_foreign(
    record: Mapping[str, Any], load_id: str, opened_ns: int | None, offsets_ns: Sequence[int]
) -> str | None:
    """Return in words why a client's record is not that of a load; None where it is.

    Args:
        record: client.json.
        load_id: of the load.
        opened_ns: when the attempt was opened, on this machine's clock.
        offsets_ns: the clock of the client's node minus this machine's, whenever it was measured:
            it may have been set meanwhile.
    """
    if record.get("load_id") != load_id:
        return "the record that the load client left is that of another load"
    started_ns = integer(record.get("started_ns"))
    if started_ns is None or opened_ns is None:
        return None
    latest_ns = max(started_ns - offset_ns for offset_ns in offsets_ns)
    if latest_ns + CLOCK_NS < opened_ns:
        return "the record that the load client left begins before its attempt was opened"
    return None


def on_head(
    attempt: Attempt, result: dict[str, Any], load_node: str, clock: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return the client's record with its end and its segments on the head's clock.

    What the clocks may be wrong by is part of a segment's error.
    """
    to_head = load_times(attempt.raw, result, load_node, clock)

    def moved(value: Any) -> int | None:
        t_ns = integer(value)
        return None if t_ns is None else to_head(t_ns)

    segments = [
        {
            "name": segment.get("name"),
            "start_ns": moved(segment.get("start_ns")),
            "end_ns": moved(segment.get("end_ns")),
            "source": segment.get("source"),
            "error_ns": (integer(segment.get("error_ns")) or 0) + clock[load_node]["error_ns"],
        }
        for segment in map(mapping, sequence(result.get("segments")))
    ]
    return {**result, "segments": segments, "ended_ns": moved(result.get("ended_ns"))}
