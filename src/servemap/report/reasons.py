"""Why something failed, as a cell: what happened, and below it where and what to do."""

from collections.abc import Iterable
from typing import Any

from servemap.model.errors import parts
from servemap.parsers.values import sequence
from servemap.report.document import MISSING, Cell


def reason_cell(reasons: Iterable[Any]) -> Cell:
    """Return recorded reasons as one cell; places and remedies are its second line, each once."""
    found = [parts(str(reason)) for reason in reasons]
    what = "; ".join(dict.fromkeys(said.what for said in found if said.what))
    if not what:
        return MISSING
    places = dict.fromkeys(place for said in found for place in said.where)
    remedies = dict.fromkeys(remedy for said in found for remedy in said.remedy)
    note = [f"at {place}" for place in places] + [f"to do: {remedy}" for remedy in remedies]
    return Cell(what, "; ".join(note))


def reasons_of(record: dict[str, Any]) -> Cell:
    """Return a record's reasons as one cell."""
    return reason_cell(sequence(record.get("reasons")))
