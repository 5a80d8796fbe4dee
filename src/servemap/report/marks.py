"""What repeats were marked with instead of being refused (`policy.on_drift: mark`)."""

from servemap.parsers.values import mapping, sequence
from servemap.report.run import Run

MAX_SHOWN = 5


def marks(run: Run) -> list[str]:
    """Return in words which environment the measured repeats had that they should not have."""
    found: dict[str, int] = {}
    for repeat in run.repeats:
        for text in sequence(mapping(repeat.meta.get("server")).get("drift")):
            found[str(text)] = found.get(str(text), 0) + 1
    said = [f"{text} ({count} repeat{'s' if count > 1 else ''})" for text, count in found.items()]
    more = len(said) - MAX_SHOWN
    shown = said[:MAX_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return [f"Marked, not refused (policy.on_drift): {'; '.join(shown)}."] if said else []
