"""Kinds that print on and on, a row a line: what reads them, by kind."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from servemap.parsers.accelerators.dcgm import dcgmi_dmon_rows
from servemap.parsers.accelerators.nvidia_csv import csv_rows
from servemap.parsers.accelerators.nvidia_dmon import dmon_rows
from servemap.parsers.frame import Notes

PRINTED: dict[
    str, Callable[[Iterable[tuple[int, str]], Notes], Iterator[tuple[int, dict[str, Any]]]]
] = {
    "nvidia-smi-csv": csv_rows,
    "nvidia-smi-dmon": dmon_rows,
    "dcgmi-dmon": dcgmi_dmon_rows,
}
"""From numbered lines that are not blank to rows, each with the number of its line."""
