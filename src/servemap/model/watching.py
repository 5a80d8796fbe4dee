"""What watching costs: one case as three, without collectors, with them, and with faster ones."""

from servemap.model.cases import FixedCase

FAST_S = 0.1
"""Interval of the collectors of a case that is watched at 10 Hz."""

SUFFIXES = {"none": "unwatched", "usual": "watched", "10hz": "10hz"}
"""Ends of the ids of the three, by how they are watched."""


def watched_id(case: str, watching: str) -> str:
    """Return the id of one of the three cases that a compared one stands for."""
    return f"{case}-{SUFFIXES[watching]}"


def watched_cases(case: FixedCase) -> list[FixedCase]:
    """Return the cases that a case with `watching: compare` stands for."""
    return [
        case.model_copy(update={"id": watched_id(case.id, watching), "watching": watching})
        for watching in SUFFIXES
    ]


def watched_with(case: str, watching: object) -> str | None:
    """Return the id of the compared case that a case stands for; None where it is none of three."""
    suffix = SUFFIXES.get(str(watching))
    return case.removesuffix(f"-{suffix}") if suffix and case.endswith(f"-{suffix}") else None
