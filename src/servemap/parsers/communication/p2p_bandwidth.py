"""p2pBandwidthLatencyTest of the CUDA samples: bandwidth and latency between cards."""

import re
from typing import Any

from servemap.parsers.communication.matrix import (
    Matrix,
    column_labels,
    read_row,
    unit_of,
)
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_TITLE = re.compile(r".{0,80}\bP2P\b.{0,80}\bMatrix\b.{0,40}|P2P Connectivity Matrix")
_MEASURE = re.compile(r"Bandwidth|Latency|Connectivity")
_DIRECTION = re.compile(r"(?:Uni|Bi)directional")
_ENABLED = re.compile(r"P2P=(Enabled|Disabled)")
_OPERATION = re.compile(r"P2P (Write|Read)s")
_CORNER = re.compile(r"\s*(D\\D|GPU|CPU)(?=\s)(.*)")
_DEVICE = re.compile(
    r"Device: (\d{1,4}), (.{1,120}), pciBusID: ([0-9a-f]{1,8}), pciDeviceID: ([0-9a-f]{1,8})"
    r"(?:, pciDomainID: ?([0-9a-f]{1,8}))?"
)
_ACCESS = re.compile(r"Device=(\d{1,4}) (CAN|CANNOT) Access Peer Device=(\d{1,4})")
_OTHER_TITLE = ("(GB/s)", "(us)", "(ns)")
_REMARKS = ("***NOTE", "NOTE:", "So you can see", "[P2P", "[./", "Note:")


def parse_p2p_bandwidth(text: str) -> Extract:
    """Bandwidth and latency from every card to every other.

    `devices` (`index`, `name`, `bus_id`), `peer_access` (`from`, `to`, `possible`) and `matrices`
    in their order: `title`, `measure` (`bandwidth`, `latency`, `connectivity`), `direction`
    (`unidirectional`, `bidirectional`), `p2p` (whether peer access was enabled), `operation`
    (`write`, `read`), `timed_by` (`GPU` or `CPU`, of latencies), labels of `columns` and `rows`,
    and by row `bandwidth_bytes_per_s`, `latency_s` or `connected`. The diagonal is a copy within
    one card. A matrix whose title was cut off has the values as printed, as `values`, and null for
    what only the title says.

    Raises:
        ParseError: there is no matrix.
    """
    matrices: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    access: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    title: str | None = None
    corner: str | None = None
    current: Matrix | None = None
    others = False

    def close() -> None:
        if current is not None and current.rows:
            matrices.append(_matrix(title, corner, current))

    for line, row in ended(text, skipped):
        plain = row.lstrip("# \t")
        if "Matrix" in plain and _TITLE.fullmatch(plain):
            close()
            title, corner, current, others = plain, None, None, False
        elif (found := _CORNER.fullmatch(plain)) and (
            found[1] == "D\\D" or column_labels(found[2])
        ):
            close()
            # Only a latency has a second matrix, timed by the CPU, under the same title.
            if current is not None and (corner, found[1]) != ("GPU", "CPU"):
                title = None
            corner, current = found[1], Matrix(column_labels(found[2]))
        elif (
            plain[:1].isdecimal()
            and (current or not others)
            and (values := _values(plain, current))
        ):
            current = current or Matrix()
            current.rows.append(values[0])
            current.values.append(values[1])
        elif found := _DEVICE.fullmatch(plain):
            domain, bus, device = found[5] or "0", found[3], found[4]
            bus_id = f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"
            devices.append({"index": int(found[1]), "name": found[2], "bus_id": bus_id})
        elif found := _ACCESS.fullmatch(plain):
            possible = found[2] == "CAN"
            access.append({"from": int(found[1]), "to": int(found[3]), "possible": possible})
        elif plain.endswith(_OTHER_TITLE):
            close()
            title, corner, current, others = None, None, None, True
            skipped.append(Skipped(line, "a table of another program"))
        elif not plain.startswith(_REMARKS) and plain:
            skipped.append(Skipped(line, "no line of p2pBandwidthLatencyTest"))
    close()
    if not matrices:
        raise foreign("p2p-bandwidth", "matrix between cards")
    return Extract({"devices": devices, "peer_access": access, "matrices": matrices}, skipped)


def _values(line: str, current: Matrix | None) -> tuple[str, list[Any]] | None:
    """Return a row of a matrix between cards: its label is a card's number."""
    row = read_row(line, current.columns if current else None)
    if row is None or not row[0].isdecimal():
        return None
    # Where the labels were cut off, only cells as the tool prints them are taken for a matrix.
    if (current is None or current.columns is None) and not all(
        isinstance(value, float) for value in row[1]
    ):
        return None
    if current is not None and current.rows and len(row[1]) != len(current.values[0]):
        return None
    return row


def _matrix(title: str | None, corner: str | None, matrix: Matrix) -> dict[str, Any]:
    measure = _found(_MEASURE, title)
    enabled = _found(_ENABLED, title)
    key, factor = ("connected", 1.0) if measure == "connectivity" else unit_of(title or "")
    found = {
        "title": title,
        "measure": measure,
        "direction": _found(_DIRECTION, title),
        "p2p": None if enabled is None else enabled == "enabled",
        "operation": _found(_OPERATION, title),
        "timed_by": corner if corner in ("GPU", "CPU") else None,
        **matrix.data(key, factor),
    }
    if key == "connected":
        found[key] = [
            [None if value is None else value == 1 for value in row] for row in matrix.values
        ]
    return found


def _found(pattern: re.Pattern[str], title: str | None) -> str | None:
    match = pattern.search(title or "")
    return match[match.lastindex or 0].lower() if match else None
