"""Nodes are driven side by side: one thread each, and nobody's error is lost."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from servemap.model.errors import ServemapError

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(items: Iterable[Item], function: Callable[[Item], Result]) -> dict[Item, Result]:
    """Return `{item: function(item)}`, called in a thread for each item.

    All calls are waited for. If some raise, the error of the first item in the order of `items` is
    raised, and what the others said stands with it: under `where` of a ServemapError, as notes of
    any other exception.
    """
    wanted = list(items)
    if not wanted:
        return {}
    with ThreadPoolExecutor(len(wanted), thread_name_prefix="each") as pool:
        futures = {item: pool.submit(function, item) for item in wanted}
    errors = [error for future in futures.values() if (error := future.exception()) is not None]
    if errors:
        raise _joined(errors[0], errors[1:])
    return {item: future.result() for item, future in futures.items()}


def _joined(first: BaseException, others: list[BaseException]) -> BaseException:
    if not others:
        return first
    said = [_one_line(error) for error in others]
    if isinstance(first, ServemapError):
        joined = type(first)(first.what, "; also ".join([first.where, *said]), first.remedy)
        joined.__cause__ = first
        return joined
    for text in said:
        first.add_note(f"also {text}")
    return first


def _one_line(error: BaseException) -> str:
    if isinstance(error, ServemapError):
        return f"{error.where}: {error.what}"
    return f"{type(error).__name__}: {error}"
