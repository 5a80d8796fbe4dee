"""The same thing done on several nodes at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(items: Sequence[T], function: Callable[[T], R]) -> dict[T, R]:
    """Return {item: result}, one thread an item; waits for all, then raises the first error."""
    with ThreadPoolExecutor(max(1, len(items))) as pool:
        futures = {item: pool.submit(function, item) for item in items}
    return {item: future.result() for item, future in futures.items()}
