"""Whether what a program of nccl-tests printed is a measurement of what was asked for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from servemap.measure.baselines.perf_commands import PROGRAMS
from servemap.model.baselines import Operation
from servemap.parsers.communication.busbw import busbw_factor
from servemap.parsers.values import mapping, number

Half = Literal["out_of_place", "in_place"]
HALVES: tuple[Half, ...] = ("out_of_place", "in_place")

TYPE = "float"
"""Of the values, where no other is asked for (`-d` of nccl-tests)."""
SUMMED = ("all_reduce", "reduce_scatter")
"""Operations that reduce: by `sum`, where no other is asked for (`-o`)."""
ROUNDING = 0.05
"""Share by which a rate may differ from the size over the time: from 10 s on, a time has two digits
(`getFloatStr` of src/util.cu: https://github.com/NVIDIA/nccl-tests/blob/master/src/util.cu)."""
LAST_DIGIT_BYTES_PER_S = 0.01e9
"""Rates have two decimals of GB/s."""

Problem = tuple[str, str]
"""Why figures are no measurement, and what to do."""


def shown_half(row: Mapping[str, Any]) -> Half:
    """Return the half that a row's figures are of: in-place only where the other was not run."""
    out = number(mapping(row["out_of_place"]).get("time_s"))
    return "in_place" if out is None else "out_of_place"


def problem_of(
    operation: Operation, printed: Mapping[str, Any], nodes: Sequence[str]
) -> Problem | None:
    """Return why a program's output says nothing of these ranks; None if it does.

    Args:
        operation: which one was to run.
        printed: as `parse_nccl_tests` returns it.
        nodes: the node of each rank that was asked for.
    """
    runs = printed["runs"]
    if any(run["duplicate_ranks"] or run["ranks"] == 1 < len(nodes) for run in runs):
        return (
            "its processes did not find each other: each is a rank 0 of its own",
            "build the program with MPI=1 against the MPI of this mpirun",
        )
    if printed["failures"]:
        return printed["failures"][0]["text"], "see its output"
    if len(runs) != 1:
        return f"it printed {len(runs)} tables, not one", "see its output"
    (run,) = runs
    said = (
        _ranks(run, nodes)
        or _wrong(run)
        or (None if run["rows"] else ("it printed no row", "see its output"))
        or _other(operation, run)
        or _summary(run)
    )
    return said or next(_figures(operation, run["rows"], len(nodes)), None)


def _ranks(run: Mapping[str, Any], nodes: Sequence[str]) -> Problem | None:
    if run["ranks"] is None:
        return "it did not say which ranks ran", "see its output"
    cards = "see which cards it saw"
    if run["ranks"] != len(nodes):
        return f"it ran with {run['ranks']} ranks, asked for: {len(nodes)}", cards
    listed = {one["rank"]: one for one in run["devices"]}
    missing = [str(rank) for rank in range(len(nodes)) if rank not in listed]
    if missing:
        return f"it did not list rank {', '.join(missing)}", "see its output"
    seen: dict[tuple[str, Any, Any], int] = {}
    for rank, node in enumerate(nodes):
        # Older versions print a part of the bus address, which cards may share.
        card = node, listed[rank]["device"], listed[rank]["bus_id"]
        if card in seen:
            return f"rank {seen[card]} and {rank} are on one card of {node}", cards
        seen[card] = rank
    return None


def _wrong(run: Mapping[str, Any]) -> Problem | None:
    damaged = "no figure is worth anything where data are damaged: see dmesg, ECC and link errors"
    wrong = {size for sizes in run["wrong_at_bytes"].values() for size in sizes or ()}
    if wrong:
        sizes = ", ".join(map(str, sorted(wrong)))
        return f"wrong values arrived at {sizes} bytes", damaged
    if run["out_of_bounds"]:
        return f"its summary counts {run['out_of_bounds']} wrong values", damaged
    return None


def _other(operation: Operation, run: Mapping[str, Any]) -> Problem | None:
    """Return how a table is of something else than was asked for."""
    program = f"{run['collective']}_perf"
    if run["collective_from"] == "name" and program != PROGRAMS[operation]:
        return f"its table is of {program}", f"see whether {PROGRAMS[operation]} is what it says"
    redop = "sum" if operation in SUMMED else None
    for row in run["rows"]:
        if row["type"] != TYPE:
            return f"its values are {row['type']}, asked for: {TYPE}", "see its output"
        if row["redop"] != redop:
            return (
                f"it reduced by {row['redop'] or 'nothing'}, asked for: {redop or 'nothing'}",
                "see its output",
            )
    return None


def _summary(run: Mapping[str, Any]) -> Problem | None:
    if run["out_of_bounds"] is None:
        return "it printed no count of values out of bounds at its end", "see its output"
    if run["average_check"] == "FAILED":
        return "its mean bandwidth is below NCCL_TESTS_MIN_BW", "see its output"
    return None


def _figures(
    operation: Operation, rows: Sequence[Mapping[str, Any]], ranks: int
) -> Iterator[Problem]:
    """Yield what is wrong with the figures of rows; of no bytes there is none."""
    for row in rows:
        if not row["size_bytes"]:
            continue
        label = f"{row['size_bytes']} bytes"
        shown = mapping(row[shown_half(row)])
        if shown.get("wrong") is None and shown.get("max_error") is None:
            yield f"{label}: its values were not checked", "see its output"
        for half in HALVES:
            values = mapping(row[half])
            if values is not shown and number(values.get("time_s")) is None:
                continue
            said = _unlike(operation, row["size_bytes"], values, ranks)
            if said is not None:
                yield f"{label}: {said}", "see its output"


def _unlike(operation: Operation, size: int, values: Mapping[str, Any], ranks: int) -> str | None:
    """Return how rates are not those of a size and a time; all-to-all in place is alike."""
    time_s = number(values.get("time_s"))
    if time_s is None or time_s <= 0:
        return "its time is none"
    due = size / time_s
    for name, expected in (("algbw", due), ("busbw", due * busbw_factor(operation, ranks))):
        rate = number(values.get(f"{name}_bytes_per_s"))
        if rate is None or abs(rate - expected) > ROUNDING * expected + LAST_DIGIT_BYTES_PER_S:
            said = "none" if rate is None else f"{rate / 1e9:.4g} GB/s"
            return f"{name} is {said}, by its time it would be {expected / 1e9:.4g} GB/s"
    return None
