"""What the ranks of a torch baseline print (see `measure/baselines/torch_ranks.py`)."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from servemap.model.files import parse_json
from servemap.parsers.communication.busbw import busbw_factor
from servemap.parsers.values import integer, mapping, sequence, text

MARK = "servemap-rank "
SAME = ("count", "type")
"""What all ranks say alike of an operation and size."""


@dataclass
class RankLines:
    """What ranks said, of any number of logs.

    Attributes:
        hello: {rank: who it is}.
        times: {(operation, size in bytes): {rank: its line}}.
        repeated: of `times`, those that a rank told of more than once.
        errors: {rank: why it gave up}, in the order in which they stand.
        done: ranks that came to their end.
    """

    hello: dict[int, dict[str, Any]] = field(default_factory=dict)
    times: dict[tuple[str, int], dict[int, dict[str, Any]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    repeated: set[tuple[str, int]] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)


def parse_rank_lines(log: str) -> RankLines:
    """Read the lines of ranks out of a log; all others, and cut ones, are passed over."""
    found = RankLines()
    for line in log.splitlines():
        # Something of another process may stand before it on the same line.
        _, mark, rest = line.partition(MARK)
        if not mark:
            continue
        try:
            said = mapping(parse_json(rest))
        except ValueError:
            continue
        rank = integer(said.get("rank"))
        if rank is None or rank < 0:
            continue
        operation, size = text(said.get("operation")), integer(said.get("size_bytes"))
        if operation is not None and size is not None:
            if rank in found.times[operation, size]:
                found.repeated.add((operation, size))
            found.times[operation, size][rank] = said
        elif error := text(said.get("error")):
            found.errors.setdefault(rank, error)
        elif said.get("done") is True:
            found.done.add(rank)
        elif "world" in said:
            found.hello[rank] = said
    return found


def collective_rows(lines: RankLines, world: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of a baseline, and what is wrong with those that are left out.

    An iteration took as long as its slowest rank; `time_s` is over the iterations, and algbw is
    the size over the median of them, so that one pause of the machine does not change it. `wrong`
    counts the values of all ranks that were not as they had to be; it is None where a rank does not
    say how many.

    Returns:
        rows `{operation, size_bytes, count, type, iterations, time_s {min, mean, p50, max},
        algbw_bytes_per_s, busbw_bytes_per_s, wrong, rank_mean_s}`, in the order in which they were
        measured; `rank_mean_s` is the mean time of each rank.
    """
    rows, problems = [], []
    for (operation, size), ranks in lines.times.items():
        label = f"{operation} of {size} bytes"
        times = [_times(ranks.get(rank)) for rank in range(world)]
        missing = [str(rank) for rank, own in enumerate(times) if not own]
        if missing:
            problems.append(f"{label}: no times of rank {', '.join(missing)}")
            continue
        if len({len(own) for own in times}) > 1:
            problems.append(f"{label}: the ranks tell of different numbers of iterations")
            continue
        if (operation, size) in lines.repeated:
            problems.append(f"{label}: a rank tells of it more than once")
            continue
        if len({json.dumps([own.get(key) for key in SAME]) for own in ranks.values()}) > 1:
            problems.append(f"{label}: the ranks tell of different values")
            continue
        wrong = [_wrong(ranks[rank]) for rank in range(world)]
        slowest = [max(one) / 1e9 for one in zip(*times, strict=True)]
        algbw = size / median(slowest)
        rows.append(
            {
                "operation": operation,
                "size_bytes": size,
                "count": integer(ranks[0].get("count")),
                "type": text(ranks[0].get("type")),
                "iterations": len(slowest),
                "time_s": {
                    "min": min(slowest),
                    "mean": fmean(slowest),
                    "p50": median(slowest),
                    "max": max(slowest),
                },
                "algbw_bytes_per_s": algbw,
                "busbw_bytes_per_s": algbw * busbw_factor(operation, world),
                "wrong": None if None in wrong else sum(filter(None, wrong)),
                "rank_mean_s": [fmean(own) / 1e9 for own in times],
            }
        )
    return rows, problems


def _wrong(line: dict[str, Any]) -> int | None:
    count = integer(line.get("wrong"))
    return None if count is None or count < 0 else count


def _times(line: dict[str, Any] | None) -> list[int]:
    """Return the times of a rank's iterations in ns; none where one of them is no such time."""
    times = sequence(mapping(line).get("times_ns"))
    found = [value for one in times if (value := integer(one)) is not None and value > 0]
    return found if len(found) == len(times) else []
