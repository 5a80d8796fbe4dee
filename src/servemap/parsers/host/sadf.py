"""sadf: sar's figures for other programs, as JSON, with semicolons, or one value a line."""

import re
from typing import Any

from servemap.parsers.clean import numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.host.sysstat import read_json
from servemap.parsers.host.sysstat_columns import column, table_name
from servemap.parsers.records import Skipped

_STAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}(?: [A-Za-z]+)?|[0-9]{9,11})")
_HEAD = ("hostname", "interval", "timestamp")


def parse_sadf(text: str) -> Extract:
    """What sadf -j, -d or -p writes of sar's figures.

    -j gives `host` and `statistics`, with sysstat's own names and units, as `mpstat` does. -d gives
    `tables`, as `sar` does: a row has `host`, `interval_s` (null for -1), `timestamp` as printed
    and the values. -p gives `values`: {`host`, `interval_s`, `timestamp`, `device`, `metric`,
    `value`}. `restarts`: {`timestamp`}.

    Raises:
        ParseError: it has none of these forms.
    """
    if text.lstrip()[:1] == "{":
        return read_json("sadf", text)
    tables: dict[tuple[str, ...], dict[str, Any]] = {}
    values: list[dict[str, Any]] = []
    restarts: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    headings: tuple[str, ...] = ()
    for line, row in numbered(text):
        cells = [cell.strip() for cell in row.split(";" if ";" in row else "\t")]
        if row.startswith("#"):
            names = [cells[0].lstrip("# "), *cells[1:]]
            if tuple(names[:3]) == _HEAD:
                headings = tuple(names[3:])
                tables.setdefault(headings, {
                    "name": table_name(list(headings)),
                    "columns": [column(name).key for name in headings], "rows": [],
                })  # fmt: skip
            else:
                skipped.append(Skipped(line, "a heading without hostname, interval and timestamp"))
            continue
        if len(cells) < 4 or not _STAMP.fullmatch(cells[2]) or not _is_interval(cells[1]):
            skipped.append(Skipped(line, "no row of sadf"))
            continue
        head = {"host": cells[0], "interval_s": _interval(cells[1]), "timestamp": cells[2]}
        if cells[3].startswith("LINUX-RESTART"):
            restarts.append({"timestamp": cells[2]})
        elif ";" in row:
            if len(cells) - 3 != len(headings):
                skipped.append(
                    Skipped(line, f"{len(cells)} cells under {len(headings) + 3} headings")
                )
                continue
            found = {column(name).key: column(name).read(cell)
                     for name, cell in zip(headings, cells[3:], strict=True)}  # fmt: skip
            tables[headings]["rows"].append({**head, **found})
        elif len(cells) == 6:
            read = column(cells[4])
            values.append({**head, "device": None if cells[3] == "-" else cells[3],
                           "metric": read.key, "value": read.read(cells[5])})  # fmt: skip
        else:
            skipped.append(Skipped(line, "no value of sadf"))
    if not tables and not values and not restarts:
        raise foreign("sadf", "JSON, heading line or value")
    data = {"tables": list(tables.values()), "values": values, "restarts": restarts}
    return Extract(data, skipped)


def _is_interval(cell: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,9}", cell) is not None


def _interval(cell: str) -> int | None:
    return None if cell.startswith("-") else int(cell)
