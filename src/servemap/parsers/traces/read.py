"""Any file of a profiler that is known, by its first bytes."""

from pathlib import Path

from servemap.model.errors import ParseError
from servemap.model.files import regular
from servemap.parsers.traces.kineto import read_kineto
from servemap.parsers.traces.nsys import MAGIC, read_nsys
from servemap.parsers.traces.table import Trace


def read_traces(path: Path) -> list[Trace]:
    """Return the events of one file; a file of several ranks gives as many.

    Raises:
        OSError: the file cannot be read.
        ParseError: it is no trace that is known, or holds no event that has a duration.
    """
    with open(path, "rb", opener=regular) as file:
        first = file.read(16)
    if path.suffix == ".nsys-rep":
        raise ParseError(
            "a report of Nsight Systems is read through its export",
            str(path),
            "export it first: nsys export --type sqlite FILE.nsys-rep",
        )
    return read_nsys(path) if first == MAGIC else [read_kineto(path)]
