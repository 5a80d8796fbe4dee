"""What is read of a collector's rows: which fields are metrics, and of what. It is data."""

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Field(NamedTuple):
    """One metric: the fields that may hold it (the first that is there does) and how it is read.

    Args:
        counter: of a total, which becomes a rate per second.
        scale: multiplies the value.
        words: the numbers that words stand for.
        over: how a value tells of the time since the row before it: an `average`, or a `count`,
            which becomes a rate per second. None for one of the moment.
        but: where the metric ends in `*` and stands for every field that matches a pattern of
            `fields`, patterns of those that it does not stand for.
    """

    metric: str
    unit: str
    fields: tuple[str, ...]
    counter: bool = False
    scale: float = 1.0
    words: Mapping[str, float] | None = None
    over: Literal["average", "count"] | None = None
    but: tuple[str, ...] = ()


class Reading(NamedTuple):
    """How rows of a kind become samples.

    Args:
        kind: of `PRINTED` or `PAGES`.
        entity: a template of the row's fields, such as `gpu{index}`; a row without them is of none.
        fields: the metrics.
        name: the field that says what an entity is, such as the command of a process; None if none.
        columns: headings of a table that a campaign declares (kind `columns`), first that of the
            field `entity`; none otherwise.
    """

    kind: str
    entity: str
    fields: tuple[Field, ...]
    name: str | None = None
    columns: tuple[str, ...] = ()
