"""Kernels over their launches: what Nsight Compute measured of each, and how far it spreads."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

Spread = dict[str, float | int]
"""`mean`, `min`, `max` and `launches`: how many of them have the figure."""


def kernels(launches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return kernels by their total time, the longest first; those without a time last.

    Each has `kernel`, `launches`, `blocks` and `grids` (the sizes that occur), `figures` ({name:
    Spread}, null where no launch has it) and `stalls` ({reason: Spread}, the longest first).

    Args:
        launches: as `parsers.profilers.ncu` gives them.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in launches:
        found.setdefault(one["kernel"], []).append(one)
    rows = [_kernel(name, all_of_it) for name, all_of_it in found.items()]
    return sorted(rows, key=_total_ns, reverse=True)


def _kernel(name: str, launches: list[Mapping[str, Any]]) -> dict[str, Any]:
    stalls = {
        reason: _spread([one["stalls"].get(reason) for one in launches])
        for reason in dict.fromkeys(key for one in launches for key in one["stalls"])
    }
    known = {reason: spread for reason, spread in stalls.items() if spread}
    return {
        "kernel": name,
        "launches": len(launches),
        "blocks": list(dict.fromkeys(one["block"] for one in launches)),
        "grids": list(dict.fromkeys(one["grid"] for one in launches)),
        "figures": {
            key: _spread([one["figures"][key] for one in launches])
            for key in launches[0]["figures"]
        },
        "stalls": dict(sorted(known.items(), key=lambda item: -item[1]["mean"])),
    }


def _spread(values: list[float | int | None]) -> Spread | None:
    there = [value for value in values if value is not None]
    if not there:
        return None
    return {"mean": fmean(there), "min": min(there), "max": max(there), "launches": len(there)}


def _total_ns(row: Mapping[str, Any]) -> float:
    spread = row["figures"].get("duration_ns")
    return float(spread["mean"] * spread["launches"]) if spread else -1.0
