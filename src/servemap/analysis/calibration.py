"""The load client's own error beside a case's figures."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from servemap.analysis.repeats import Repeat
from servemap.parsers.values import integer, mapping, number, sequence, text

LARGE_SHARE = 0.1
"""The client's error (P99) over a case's median from which it is not small against it."""


class ClientError(NamedTuple):
    """What is known of the client's error for one case; `why` says what is not.

    Attributes:
        in_flight: requests in flight, asked for or, of an open loop, reached at most.
        point: the calibration's row that stands for it: nearest concurrency at or above.
        ttft_share: P99 of the TTFT error over the case's median TTFT.
        itl_share: P99 of a single gap's error over the case's median ITL; infinite where that is 0.
    """

    in_flight: int | None
    point: dict[str, Any] | None
    ttft_share: float | None
    itl_share: float | None
    why: str | None

    @property
    def large(self) -> bool:
        """Whether the error is not small against a median."""
        return any((share or 0) > LARGE_SHARE for share in (self.ttft_share, self.itl_share))


def client_error(
    record: dict[str, Any],
    in_flight: int | None,
    ttft_p50_ms: float | None,
    itl_p50_ms: float | None,
) -> ClientError:
    """Return the client's error at a number in flight, against a case's medians in ms.

    Args:
        record: calibration.json; empty where there is none.
        in_flight: None where it is not known.
        ttft_p50_ms: the case's median TTFT; None where nothing was measured.
        itl_p50_ms: the case's median ITL; None for one token.
    """
    if in_flight is None:
        return ClientError(None, None, None, None, "the number in flight is not known")
    rows = [mapping(row) for row in sequence(record.get("rows"))]
    above = [row for row in rows if (integer(row.get("concurrency")) or 0) >= in_flight]
    usable = [row for row in above if row.get("status") == "ok"]
    if not usable:
        return ClientError(in_flight, None, None, None, _why(record, above))
    point = min(usable, key=lambda row: row["concurrency"])
    return ClientError(
        in_flight,
        point,
        _share(mapping(point.get("ttft_error_ms")), ttft_p50_ms),
        _share(mapping(point.get("gap_error_ms")), itl_p50_ms),
        None,
    )


def _share(error: dict[str, Any], median_ms: float | None) -> float | None:
    p99 = number(error.get("p99"))
    if p99 is None or median_ms is None:
        return None
    # Tokens that come at once have an ITL of 0, against which no error is small.
    return abs(p99) / median_ms if median_ms > 0 else math.inf


def _why(record: dict[str, Any], above: list[dict[str, Any]]) -> str:
    """Return why no point of a calibration stands for a case: what the nearest one says."""
    if above:
        nearest = min(above, key=lambda row: row["concurrency"])
        reason = text(nearest.get("reason")) or text(nearest.get("status")) or "not usable"
        return f"c={nearest['concurrency']}: {reason}"
    if record and not sequence(record.get("rows")):
        said = (text(item) for item in sequence(record.get("reasons")))
        return "; ".join(filter(None, said)) or "nothing was measured"
    return "no point at or above this number in flight" if record else "no calibration was made"


def in_flight(repeats: list[Repeat]) -> int | None:
    """Return what a case has in flight at most: as asked for, of an open loop as measured."""
    known = [repeat for repeat in repeats if repeat.meta]
    for repeat in known:
        asked = integer(repeat.steady.get("concurrency"))
        if asked is not None:
            return asked + (1 if repeat.steady is not repeat.spec else 0)
    peaks = [peak_in_flight(repeat.folder / "requests.parquet") for repeat in known if repeat.valid]
    return max((peak for peak in peaks if peak is not None), default=None)


def peak_in_flight(path: Path) -> int | None:
    """Return the most requests of requests.parquet that were in flight at once; None for none."""
    try:
        table = pq.read_table(path, columns=["sent_ns", "last_ns"])
    except (OSError, ValueError, pa.ArrowException):
        return None
    whole = table.drop_null()
    if not whole.num_rows:
        return None
    return overlapping(whole["sent_ns"].to_numpy(), whole["last_ns"].to_numpy())


def overlapping(starts_ns: ArrayLike, ends_ns: ArrayLike) -> int:
    """Return the most intervals [start, end) that hold one moment; 0 where there is none."""
    starts, ends = np.asarray(starts_ns, np.int64), np.asarray(ends_ns, np.int64)
    times = np.concatenate([ends, starts])
    steps = np.concatenate([-np.ones_like(ends), np.ones_like(starts)])
    # Stable: what ends at a moment is gone before another begins there.
    order = np.argsort(times, kind="stable")
    return int(max(np.cumsum(steps[order]).max(initial=0), 0))
