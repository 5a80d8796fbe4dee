"""What the result files of a load client of others say, in one form for all of them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from servemap.model.errors import ParseError
from servemap.parsers.values import integer, number


class ClientCall(NamedTuple):
    """One request as its client saw it; None where the client does not say.

    Attributes:
        id: the client's own name of it, or its number.
        counted: whether the client counts it as a success.
        error: why it failed, in the client's words.
        start_s: when it was sent, on the monotonic clock of its machine.
        start_ns: when it was sent, epoch.
        ttft_s: to the first token.
        latency_s: to the end, as the client defines it.
        gaps_s: between the chunks that it took for tokens.
        input_tokens: of the prompt.
        output_tokens: of the answer, by the server's count where there is one.
        own_tokens: of the answer, as the client's summary counts them.
        cached_tokens: of the prompt, by the server's count.
        reasoning_tokens: of the answer, by the server's count.
        flags: what is special about these values.
    """

    id: str
    counted: bool
    error: str | None = None
    start_s: float | None = None
    start_ns: int | None = None
    ttft_s: float | None = None
    latency_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    own_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    flags: tuple[str, ...] = ()


class ClientRun(NamedTuple):
    """One run: its requests, and the summary that the client made of them.

    Attributes:
        calls: the measured requests.
        summary: every number of the client's summary, by its name.
        duration_s: what the client divides by.
        rounding_s: by how much its files round that.
        window_ns: begin and end of what it measured, epoch; None where it does not say.
        queue_s: how long the earliest request was held back after the client's clock began.
        blank: what stands in the summary and is no number, such as NaN.
        problem: why the run as a whole is no measurement; None where it is one.
    """

    calls: list[ClientCall]
    summary: dict[str, float]
    duration_s: float | None
    rounding_s: float = 0.0
    window_ns: tuple[int, int] | None = None
    queue_s: float = 0.0
    blank: frozenset[str] = frozenset()
    problem: str | None = None


FLAG_AS_ASKED = "output_tokens_as_asked"
FLAG_NO_TOKEN = "counted_without_a_token"
"""The client counts a request as a success though no token came."""

REMEDY = "measure the case again; the client's own lines are in raw/lines.jsonl"


def file_of(files: Mapping[str, bytes], name: str) -> bytes:
    """Return a result file; ParseError where the client left none, or an empty one."""
    data = files.get(name)
    if data is None:
        raise ParseError(f"the client left no {name}", name, REMEDY)
    if not data.strip():
        raise ParseError(f"the client left an empty {name}", name, REMEDY)
    return data


def lists_of(
    record: Mapping[str, Any], needed: Sequence[str], more: Sequence[str], where: str
) -> dict[str, list[Any]]:
    """Return the lists of a result that have one entry a request, by name.

    Args:
        record: the result.
        needed: those without which it says nothing of single requests.
        more: those that not every version writes.
        where: the file.

    Raises:
        ParseError: one that is needed is missing, or their lengths differ.
    """
    found = {name: record.get(name) for name in (*needed, *more)}
    lists = {name: values for name, values in found.items() if isinstance(values, list)}
    missing = [name for name in needed if name not in lists]
    if missing:
        raise ParseError(
            f"the result holds no single requests: {', '.join(missing)} is missing", where, REMEDY
        )
    if len({len(values) for values in lists.values()}) > 1:
        said = ", ".join(f"{len(values)} {name}" for name, values in lists.items())
        raise ParseError(f"the lists of the result differ in length: {said}", where, REMEDY)
    return lists


LONGEST_S = 1e9
"""Thirty years: beyond it nothing is a duration, and in nanoseconds it would not fit 64 bits."""
MOST = 2**53
"""Beyond it nothing is a number of tokens."""
LATEST_NS = 2**62
"""In the year 2116; beyond it sums of times would not fit 64 bits."""


def seconds(value: object) -> float | None:
    """Return a duration; None for what is none, such as a negative one."""
    found = number(value)
    return found if found is not None and 0 <= found <= LONGEST_S else None


def count(value: object) -> int | None:
    """Return a number of tokens or requests; None for what is none."""
    found = integer(value)
    return found if found is not None and 0 <= found <= MOST else None


def moment(value: object) -> int | None:
    """Return a time in epoch ns; None for what is none."""
    found = integer(value)
    return found if found is not None and 0 <= found <= LATEST_NS else None


def numbers(record: Mapping[str, object]) -> dict[str, float]:
    """Return the finite numbers of a record by name.

    A colon at the end of a name is dropped: older versions wrote one.
    """
    found = {str(name).rstrip(":"): number(value) for name, value in record.items()}
    return {name: value for name, value in found.items() if value is not None}


def blanks(record: Mapping[str, object]) -> frozenset[str]:
    """Return the names of a record's values that are none, as NaN is (see `numbers`)."""
    return frozenset(str(name).rstrip(":") for name, value in record.items() if value is None)
