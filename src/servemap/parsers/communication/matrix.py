"""Matrices that bandwidth tools print: a line of column labels, then a label and values a row."""

from dataclasses import dataclass, field
from typing import Any

from servemap.parsers.cells import Number, is_missing, number, scaled

# Rates and times are printed in these units; GB are of 10^9 bytes in all of these tools.
_UNITS = {
    "GB/s": ("bandwidth_bytes_per_s", 1e9),
    "us": ("latency_s", 1e-6),
    "ns": ("latency_s", 1e-9),
}


@dataclass
class Matrix:
    """A matrix as it is read: labels as printed, values row by row, None where there is none."""

    columns: list[str] | None = None
    rows: list[str] = field(default_factory=list)
    values: list[list[Number | None]] = field(default_factory=list)

    def data(self, key: str, factor: float) -> dict[str, Any]:
        """Return the labels and, as `key`, the values times `factor`."""
        values = [[scaled(value, factor) for value in row] for row in self.values]
        return {"columns": self.columns, "rows": self.rows, key: values}


def unit_of(title: str) -> tuple[str, float]:
    """Return the key and the factor of the unit in brackets at the end of a title.

    A matrix whose unit is not known keeps its values as they are printed, as `values`.
    """
    _, _, end = title.rpartition("(")
    return _UNITS.get(end.rstrip().rstrip(")"), ("values", 1))


def column_labels(line: str) -> list[str] | None:
    """Return the labels if all of them are whole numbers, as where cards are the columns."""
    words = line.split()
    return words if words and all(word.isdecimal() and len(word) < 6 for word in words) else None


def read_row(line: str, columns: list[str] | None) -> tuple[str, list[Number | None]] | None:
    """Return a row's label and values, or None if the line is no row."""
    words = line.split()
    count = len(columns) if columns is not None else len(words) - 1
    if count < 1 or len(words) <= count:
        return None
    cells = words[-count:]
    values = [number(cell) for cell in cells]
    if any(
        value is None and not is_missing(cell) for cell, value in zip(cells, values, strict=True)
    ):
        return None
    return " ".join(words[:-count]), values
