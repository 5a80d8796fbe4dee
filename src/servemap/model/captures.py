"""Captures on disk: the record of each try; the traces of the newest one alone are kept."""

from dataclasses import replace

from servemap.model import results
from servemap.model.attempts import Record, read_records


def capture_records(run: str, variant: str, case: str) -> list[Record]:
    """Return the tries of a capture, oldest first, the newest one with its files.

    Raises:
        ResultsError: a record has a newer schema than this version writes.
    """
    folder = results.capture_dir(run, variant, case)
    records = read_records(results.capture_history(run, variant, case), folder / "capture.json")
    return [*records[:-1], *(replace(one, folder=folder) for one in records[-1:])]
