"""Doing the same on several nodes at once."""

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")


def each(items: Sequence[T], function: Callable[[T], R]) -> dict[T, R]:
    """Return what a function gives for each item, called in threads; the first error is raised."""
    if not items:
        return {}
    with ThreadPoolExecutor(max_workers=len(items)) as pool:
        return dict(zip(items, pool.map(function, items), strict=True))
