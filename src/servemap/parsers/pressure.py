"""/proc/pressure: how long tasks waited for CPU, memory and I/O (psi.rst of Linux)."""

import re
from typing import Any

from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_LINE = re.compile(
    r"(?:\S{0,200}/)?([a-z]{1,20}):(some|full) avg10=\S{1,20} avg60=\S{1,20} avg300=\S{1,20} "
    r"total=(\d{1,20})"
)


def parse_pressure(text: str) -> Extract:
    """Stall times of each resource, from `grep -H . /proc/pressure/*`.

    `rows`: `resource` (the file's name), `some_total_us` and `full_total_us`, microseconds since
    boot in which some or all tasks waited; a line that the kernel does not have leaves its key out.

    Raises:
        ParseError: there is no line of such a file.
    """
    rows: dict[str, dict[str, Any]] = {}
    skipped: list[Skipped] = []
    for line, said in ended(text, skipped):
        found = _LINE.fullmatch(said)
        if found is None:
            skipped.append(Skipped(line, "no line of /proc/pressure"))
            continue
        resource, share, total = found.groups()
        rows.setdefault(resource, {"resource": resource})[f"{share}_total_us"] = int(total)
    if not rows:
        raise foreign("pressure", "line `/proc/pressure/cpu:some avg10=...`")
    return Extract({"rows": list(rows.values())}, skipped)
