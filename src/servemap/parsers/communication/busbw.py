"""Bus bandwidth of a collective, as nccl-tests defines it (doc/PERFORMANCE.md there)."""

_STEPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""How often each byte passes a rank's link, in shares of (n - 1) / n."""


def busbw_factor(operation: str, ranks: int) -> float:
    """Return busbw / algbw: 2 (n - 1) / n of all_reduce, (n - 1) / n of those that move parts.

    Raises:
        KeyError: an operation without such a factor.
        ValueError: fewer than two ranks communicate with nobody.
    """
    if ranks < 2:
        raise ValueError(f"a collective of {ranks} ranks moves nothing")
    return _STEPS[operation] * (ranks - 1) / ranks
