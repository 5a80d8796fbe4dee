"""iostat: the CPU's and the block devices' figures, one report an interval."""

import re
from typing import Any

from servemap.parsers.cells import number
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.host.sysstat import host_of, read_json
from servemap.parsers.host.sysstat_columns import Column, column, leading_time
from servemap.parsers.records import Skipped

_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}")
_ISO = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})[0-9Z:+-]*")
# The first column's heading is translated, these are not.
_DEVICE_COLUMNS = {"tps", "r/s", "%util"}


def parse_iostat(text: str) -> Extract:
    """Figures of the CPU and of block devices, as iostat prints or writes as JSON.

    `host` as in `mpstat`. `reports`: one an interval, the first one since boot: `date` and `time`
    (as printed and HH:MM:SS, null without -t), `cpu` {`user_percent`, `idle_percent`}, null where
    it is not printed, and `devices` {name: {`read_bytes_per_s`, `await_s`, `util_percent`}}.
    iostat's kB are of 1024 bytes, its sectors of 512. JSON gives `statistics` with sysstat's own
    names and units instead of `reports`.

    Raises:
        ParseError: there is neither a line `avg-cpu:` nor a heading of devices.
    """
    if text.lstrip()[:1] == "{":
        return read_json("iostat", text)
    reports: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    host: dict[str, Any] | None = None
    stamp: dict[str, Any] = {"date": None, "time": None}
    columns: list[Column] = []
    right_edge = 0
    part: str | None = None
    at = 0

    def report(for_part: str) -> dict[str, Any]:
        if not reports or for_part in reports[-1]["has"]:
            reports.append({**stamp, "cpu": None, "devices": {}, "has": set()})
        reports[-1]["has"].add(for_part)
        return reports[-1]

    unended = cut_line(text)
    for line, row in numbered(text):
        words = row.split()
        if found := host_of(row):
            host = host or found
        elif words[0] == "avg-cpu:":
            right_edge = len(row)
            part, columns = "cpu", [column(word) for word in words[1:]]
        elif _DEVICE_COLUMNS.intersection(words) and all(number(word) is None for word in words):
            right_edge = len(row)
            # -h puts the device last.
            at = -1 if words[-1] == "Device" else 0
            part, columns = "devices", [column(word) for word in words if word != words[at]]
            report("devices")
        elif line == unended and len(row) < right_edge:
            skipped.append(Skipped(line, "a line without its end"))
        elif iso := _ISO.fullmatch(row.strip()):
            stamp = {"date": iso[1], "time": iso[2]}
        elif _DATE.fullmatch(words[0]) and len(words) < 4:
            time = leading_time(words[1:])
            stamp = {"date": words[0], "time": time[0] if time else None}
        elif part == "cpu" and len(words) == len(columns):
            report("cpu")["cpu"] = _values(columns, words)
            part = None
        elif part == "devices" and len(words) == len(columns) + 1:
            name = words.pop(at)
            values = _values(columns, words)
            if name[:1].isdecimal() or None in values.values():
                skipped.append(Skipped(line, "no row of a device"))
            else:
                reports[-1]["devices"][name] = values
        else:
            skipped.append(Skipped(line, "no row of a report, or cut"))
    if not reports and part is None:
        raise foreign("iostat", "line avg-cpu: and no heading of devices")
    for each in reports:
        del each["has"]
    return Extract({"host": host, "reports": reports}, skipped)


def _values(columns: list[Column], words: list[str]) -> dict[str, Any]:
    return {each.key: each.read(word) for each, word in zip(columns, words, strict=True)}
