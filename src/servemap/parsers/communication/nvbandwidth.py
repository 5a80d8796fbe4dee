"""nvbandwidth: copies and latencies between host and cards, as text or as JSON (-j)."""

import re
from typing import Any

from servemap.parsers.cells import number, scaled
from servemap.parsers.communication.matrix import Matrix, read_row, unit_of
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import amount, is_json, items, mapping, string
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_RUNNING = re.compile(r"Running (\S{1,120}?)\.?")
_WAIVING = re.compile(r"Waiving (\S{1,120}?)\.")
_DESCRIPTION = re.compile(r"\S.{0,150}\((?:GB/s|ns)\)")
_SUMMARY = re.compile(r"(SUM|MIN|MAX|AVG) (\S{1,120}) (\S{1,40})")
_STATUS = re.compile(r"(Waived|Error|ERROR): ?(.{0,300})")
_VERSION = {
    "nvbandwidth Version": "version", "CUDA Runtime Version": "cuda_runtime_version",
    "Driver Version": "driver_version",
}  # fmt: skip
_DEVICE = re.compile(r"(?:Process +\d{1,6} \((.{1,120})\): device|Device) (\d{1,4}): (.{1,200})")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,254}")
_REMARKS = (
    "Built from Git version", "CUDA Driver Version", "MPI version", "NOTE:",
    "Performance can vary", "Additional system-specific tuning", "&&&& PERF",
)  # fmt: skip
_SUMMARIES = {"SUM": "sum", "MIN": "min", "MAX": "max", "AVG": "average"}


def parse_nvbandwidth(text: str) -> Extract:
    """Bandwidth and latency of copies, by test.

    `version`, `cuda_runtime_version`, `driver_version`, `devices` (`index`, `name`, `host`),
    `waived_without_name` (the text form does not name the tests that it waives) and `tests`:
    `name`, `status` (`passed`, `waived`, `error`, `cut`), `message`, and `matrices` with
    `description`, `copy` (`CE` for copy engines, `SM` for kernels, else null), labels of `columns`
    and `rows`, by row `bandwidth_bytes_per_s` or `latency_s`, and `sum`, `min`, `max`, `average` in
    the same unit, null where they are not printed. Cells without a measurement are null; older
    versions print 0 for the diagonal between cards.

    Raises:
        ParseError: there is no test of nvbandwidth.
    """
    if is_json(text):
        return _from_json(text)
    found: dict[str, Any] = dict.fromkeys(_VERSION.values())
    found |= {"devices": [], "waived_without_name": 0, "tests": []}
    host: str | None = None
    skipped: list[Skipped] = []
    tests: list[dict[str, Any]] = found["tests"]
    current: Matrix | None = None
    for line, row in ended(text, skipped):
        text_of = row.strip()
        if running := _RUNNING.fullmatch(text_of):
            current = None
            tests.append(_test(running[1], "cut"))
        elif waiving := _WAIVING.fullmatch(text_of):
            current = None
            tests.append(_test(waiving[1], "waived"))
        elif _DESCRIPTION.fullmatch(text_of):
            current = Matrix()
            if not tests or tests[-1]["status"] == "waived":
                tests.append(_test(None, "cut"))
            tests[-1]["matrices"].append(_described(text_of, current))
        elif tests and (summary := _SUMMARY.fullmatch(text_of)):
            _summarise(tests[-1], summary)
            current = None
        elif current is not None and current.columns is None:
            current.columns = text_of.split()
        elif (
            current is not None
            and (values := read_row(text_of, current.columns))
            and values[0].isdecimal()
        ):
            current.rows.append(values[0])
            current.values.append(values[1])
            tests[-1]["status"] = "passed"
        elif status := _STATUS.fullmatch(text_of):
            _end(found, tests, status)
            current = None
        elif (
            found["driver_version"]
            and not (tests or found["devices"] or host)
            and (_HOST.fullmatch(text_of))
        ):
            # Newer versions print the host above the cards.
            host = text_of
        elif not _read_head(found, host, text_of):
            skipped.append(Skipped(line, "no line of nvbandwidth"))
    if not tests and not found["waived_without_name"]:
        raise foreign("nvbandwidth", "line that begins with Running and a test's name")
    for test in tests:
        test["matrices"] = [
            _data(matrix, unit_of(matrix["description"])) for matrix in test["matrices"]
        ]
    return Extract(found, skipped)


def _test(name: str | None, status: str) -> dict[str, Any]:
    return {"name": name, "status": status, "message": None, "matrices": []}


def _described(description: str, matrix: Matrix) -> dict[str, Any]:
    return {"description": description, "matrix": matrix, "sum": None, "min": None, "max": None,
            "average": None}  # fmt: skip


def _summarise(test: dict[str, Any], summary: re.Match[str]) -> None:
    """Keep a summary with the matrix above it; it also names a test whose start was cut off."""
    if test["matrices"]:
        test["matrices"][-1][_SUMMARIES[summary[1]]] = number(summary[3])
        test["name"] = test["name"] or summary[2]


def _end(found: dict[str, Any], tests: list[dict[str, Any]], status: re.Match[str]) -> None:
    """Note a test that was waived or failed; one that is waived at once was not announced."""
    if tests and tests[-1]["status"] == "cut" and not tests[-1]["matrices"]:
        tests[-1]["status"] = status[1].lower()
        tests[-1]["message"] = status[2] or None
    elif status[1] == "Waived":
        found["waived_without_name"] += 1


def _read_head(found: dict[str, Any], host: str | None, line: str) -> bool:
    name, _, value = line.partition(":")
    if name in _VERSION:
        found[_VERSION[name]] = value.strip() or None
    elif device := _DEVICE.fullmatch(line):
        found["devices"].append(
            {"index": int(device[2]), "name": device[3].strip(), "host": device[1] or host}
        )
    else:
        return line.startswith(_REMARKS)
    return True


def _data(described: dict[str, Any], unit: tuple[str, float]) -> dict[str, Any]:
    description, matrix = described["description"], described["matrix"]
    key, factor = unit
    if description and "GPU(row)" in description and "GPU(column)" in description:
        for label, values in zip(matrix.rows, matrix.values, strict=True):
            for index, column in enumerate((matrix.columns or [])[: len(values)]):
                if column == label and values[index] == 0:
                    values[index] = None
    return {
        "description": description,
        "copy": next((name for name in ("CE", "SM") if f" {name} " in (description or "")), None),
        **matrix.data(key, factor),
        **{name: scaled(described[name], factor) for name in ("sum", "min", "max", "average")},
    }


def _from_json(text: str) -> Extract:
    document = read_document("nvbandwidth", text)
    top = mapping(mapping(document.value).get("nvbandwidth"))
    if not isinstance(top.get("testcases"), list):
        raise foreign("nvbandwidth", "list of testcases")
    tests = [mapping(test) for test in items(top["testcases"])]
    if document.is_cut and tests and next(reversed(tests[-1]), None) == "bandwidth_matrix":
        # How many matrices the rows are of is known from their number.
        del tests[-1]["bandwidth_matrix"]
    version = top.get("version") or top.get("git_version")
    runtime = top.get("CUDA Runtime Version")
    return Extract(
        {
            "version": string(version),
            "cuda_runtime_version": None if runtime is None else str(runtime),
            "driver_version": string(top.get("Driver Version")),
            "devices": [
                {"index": index, "name": str(name), "host": None}
                for index, name in enumerate(items(top.get("GPU Device list")))
            ],
            "waived_without_name": 0,
            "tests": [_json_test(test) for test in tests],
        },
        document.skipped,
    )


def _json_test(test: dict[str, Any]) -> dict[str, Any]:
    rows = [[amount(cell) for cell in items(row)] for row in items(test.get("bandwidth_matrix"))]
    description = string(test.get("bandwidth_description"))
    columns = max(map(len, rows), default=0)
    # The matrices of a test stand below each other; the description and the sum are of the last.
    parts = 3 if description and " Total " in description and len(rows) == 3 * columns else 1
    size = len(rows) // parts
    matrices = []
    for part in range(parts if rows else 0):
        block = rows[part * size : (part + 1) * size]
        labels = [str(index) for index in range(columns)]
        matrix = Matrix(labels, [str(index) for index in range(len(block))], block)
        described = _described(description or "", matrix)
        if part == parts - 1:
            described |= {name: amount(test.get(name)) for name in _SUMMARIES.values()}
        else:
            described["description"] = None
        matrices.append(described)
    # The unit of all matrices of a test is the same.
    unit = unit_of(description or "")
    status = string(test.get("status"))
    return {
        "name": string(test.get("name")),
        "status": status.lower() if status else None,
        "message": string(test.get("error")),
        "matrices": [_data(one, unit) for one in matrices],
    }
