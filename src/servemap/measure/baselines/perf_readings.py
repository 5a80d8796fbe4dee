"""What the output of nccl-tests and the log of NCCL say, as a baseline's record keeps it."""

from collections.abc import Iterable, Mapping
from typing import Any

from servemap.measure.baselines.perf_judge import Half, shown_half
from servemap.parsers.communication.nccl_state import Algorithm
from servemap.parsers.values import mapping

COLLECTIVES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
}
"""Operations by the name that NCCL's log has for them; all-to-all is sends and receives there."""


def size_rows(
    operation: str,
    iterations: int,
    run: Mapping[str, Any],
    chosen: Mapping[int, list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the rows of one program's table, as those of `parsers.communication.torch_ranks`.

    `time_s` has the mean alone, which is all that the program tells. Figures are those of the
    out-of-place half; `in_place` has time, rates and wrong values of the other one. Algorithm,
    protocol and channels are those that NCCL says it took most often for that size; `chosen` has
    all (see `chosen_by_size`), empty where it says nothing.

    Args:
        operation: of the program that ran.
        iterations: how many it timed.
        run: a run as `parse_nccl_tests` returns it.
        chosen: by size.
    """
    rows = []
    for row in run["rows"]:
        shown = _half(row, shown_half(row))
        rows.append(
            {
                "operation": operation,
                "size_bytes": row["size_bytes"],
                "count": row["count"],
                "type": row["type"],
                "iterations": iterations,
                "time_s": {"min": None, "mean": shown["time_s"], "p50": None, "max": None},
                "algbw_bytes_per_s": shown["algbw_bytes_per_s"],
                "busbw_bytes_per_s": shown["busbw_bytes_per_s"],
                "wrong": shown["wrong"],
                "rank_mean_s": None,
                "in_place": _half(row, "in_place"),
                **choice(chosen.get(row["size_bytes"], [])),
            }
        )
    return rows


def choice(chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a row keeps of what NCCL chose for its size."""
    keys = ("algorithm", "protocol", "channels")
    first = chosen[0] if chosen else dict.fromkeys(keys)
    return {**{key: first[key] for key in keys}, "chosen": chosen}


def _half(row: Mapping[str, Any], half: Half) -> dict[str, Any]:
    values = mapping(row[half])
    keys = ("time_s", "algbw_bytes_per_s", "busbw_bytes_per_s", "wrong")
    return {key: values.get(key) for key in keys}


def chosen_by_size(
    operation: str, algorithms: Iterable[Mapping[Algorithm, int]]
) -> dict[int, list[dict[str, Any]]]:
    """Return what NCCL took for each size of an operation, the most frequent first.

    Each is {algorithm, protocol, channels, times}; `channels` is null in logs before 2.24.
    One program runs one operation, so a line without a name, as older versions write it, is of it.

    Args:
        operation: which one.
        algorithms: what the logs of the processes count; only the first rank writes it.
    """
    counts: dict[int, dict[tuple[str, str, int | None], int]] = {}
    for log in algorithms:
        for one, times in log.items():
            if one.collective is not None and COLLECTIVES.get(one.collective) != operation:
                continue
            key = (one.algorithm, one.protocol, one.channels)
            sized = counts.setdefault(one.size_bytes, {})
            sized[key] = sized.get(key, 0) + times
    return {
        size: [
            {"algorithm": algorithm, "protocol": protocol, "channels": channels, "times": times}
            for (algorithm, protocol, channels), times in sorted(
                sized.items(), key=lambda item: (-item[1], str(item[0]))
            )
        ]
        for size, sized in counts.items()
    }
