"""The same work for several nodes at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(items: Sequence[T], fn: Callable[[T], R]) -> dict[T, R]:
    """Return {item: what `fn` returns for it}; all run at once and all are waited for.

    Raises:
        Exception: the first error in the order of the items.
    """
    if not items:
        return {}
    with ThreadPoolExecutor(max_workers=len(items)) as pool:
        futures = {item: pool.submit(fn, item) for item in items}
    return {item: future.result() for item, future in futures.items()}
