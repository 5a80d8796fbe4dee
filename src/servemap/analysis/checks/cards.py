"""Checks of the cards: nobody but the server was on them when the load began and when it ended."""

from collections.abc import Mapping
from typing import Any

from servemap.analysis.verdict import Check
from servemap.parsers.values import mapping, text

BETWEEN = "who came and went between the two looks is not seen"


def check_cards(cards: Mapping[str, Any]) -> list[Check]:
    """Check the looks at the cards before and after a load, as they were recorded.

    No check where no node has cards to look at, or the record is of an older version.

    Args:
        cards: meta.json's `cards`: {"before" | "after": {NODE: {"ok", "evidence"}}}; `ok` is
            null where the cards could not be looked at.
    """
    checks: list[Check] = []
    for when in ("before", "after"):
        for node, record in sorted(mapping(cards.get(when)).items()):
            fields = mapping(record)
            ok, evidence = fields.get("ok"), text(fields.get("evidence")) or ""
            name = f"cards_clean {node} {when}"
            if ok is None:
                checks.append(Check(name, None, "clean", None, evidence))
            elif ok is True:
                checks.append(Check(name, "clean", "clean", True, BETWEEN))
            else:
                checks.append(Check(name, "used by others", "clean", False, evidence))
    return checks
