"""Which collective a table of nccl-tests is of, where the text does not name it."""

from typing import Any

# Rates are printed with two decimals of GB/s, so both together are off by at most 0.01 GB/s.
_ROUNDING_BYTES_PER_S = 0.01e9
_LEAST_BYTES_PER_S = 1e9


def collective_of(columns: tuple[str, ...], old: bool, rows: list[dict[str, Any]]) -> str | None:
    """Return the collective that alone writes such a table, or None where several do.

    `columns` are those before the measurements; `old` is the layout before nccl-tests 2.13, which
    printed the columns redop and root only for tests that have them. busbw / algbw is
    2(n-1)/n for all_reduce, (n-1)/n for those that move parts, 1 for those along a chain
    (doc/PERFORMANCE.md of nccl-tests); it is taken from the fastest row.
    """
    best = _fastest(rows)
    if best is None or best[0] < _LEAST_BYTES_PER_S:
        return None
    has_redop, has_root = rows[-1]["redop"] is not None, rows[-1]["root"] is not None
    parts = best[1] < best[0] - _ROUNDING_BYTES_PER_S
    if has_redop and has_root:
        return None if parts else "reduce"
    if has_redop:
        return "reduce_scatter" if parts else "all_reduce"
    if has_root:
        return None if parts else "broadcast"
    if old and parts:
        return "alltoall" if "redop" in columns else "all_gather"
    return None


def _fastest(rows: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Return algbw and busbw of the row whose printed digits say most about their ratio."""
    rates = (
        (half.get("algbw_bytes_per_s"), half.get("busbw_bytes_per_s"))
        for half in (row["out_of_place"] or row["in_place"] for row in rows)
    )
    return max(((algbw, busbw) for algbw, busbw in rates if algbw and busbw), default=None)
