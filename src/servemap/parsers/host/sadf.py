"""sadf: sar's figures for other programs: JSON, XML, with semicolons, or one value a line."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

from servemap.parsers.cells import value
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.host.sysstat import read_json
from servemap.parsers.host.sysstat_columns import column, table_name
from servemap.parsers.records import Skipped

_STAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}(?: [A-Za-z]+)?|[0-9]{9,11})")
_DEEPEST = 20
_HEAD = ("hostname", "interval", "timestamp")


def parse_sadf(text: str) -> Extract:
    """What sadf -j, -x, -d or -p writes of sar's figures.

    -j and -x give `host` and `statistics`, with sysstat's own names and units, as `mpstat` does. -d
    gives `tables`, as `sar` does: a row has `host`, `interval_s` (null for -1), `timestamp` as
    printed and the values. -p gives `values`: {`host`, `interval_s`, `timestamp`, `device`,
    `metric`, `value`}. `restarts`: {`timestamp`}.

    Raises:
        ParseError: it has none of these forms.
    """
    if text.lstrip()[:1] == "{":
        return read_json("sadf", text)
    if "<sysstat" in text:
        return _read_xml(text)
    tables: dict[tuple[str, ...], dict[str, Any]] = {}
    values: list[dict[str, Any]] = []
    restarts: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    headings: tuple[str, ...] = ()
    unended = cut_line(text)
    for line, row in numbered(text):
        cells = [cell.strip() for cell in row.split(";" if ";" in row else "\t")]
        if row.startswith("#"):
            # `[...]` stands behind the columns that come again for each device (-h).
            names = [cells[0].lstrip("# "), *(cell.removesuffix("[...]") for cell in cells[1:])]
            if line == unended:
                skipped.append(Skipped(line, "a line without its end"))
            elif tuple(names[:3]) == _HEAD:
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
        if line == unended:
            skipped.append(Skipped(line, "cut in the last cell"))
            cells[-1] = ""
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


def _read_xml(text: str) -> Extract:
    """Read sadf -x: attributes and elements under their own names, whole records only."""
    parser: ET.XMLPullParser[Any] = ET.XMLPullParser(events=("start", "end"))
    start = text.index("<sysstat")
    parser.feed(text[start:])
    host: dict[str, Any] = {}
    statistics: list[Any] = []
    skipped: list[Skipped] = []
    path: list[ET.Element] = []
    events: Iterator[Any] = parser.read_events()
    try:
        for event, element in events:
            if event == "start":
                path.append(element)
                if len(path) > _DEEPEST:
                    break
                if _tag(element) == "host":
                    host["host"] = element.get("nodename")
                continue
            path.pop()
            if _tag(element) == "timestamp" and path and _tag(path[-1]) == "statistics":
                statistics.append(_content(element))
            elif path and _tag(path[-1]) == "host" and not len(element):
                host[_tag(element)] = value(element.text or "")
            if not path:
                break
    except ET.ParseError as error:
        line = text.count("\n", 0, start) + error.position[0]
        skipped.append(Skipped(line, "the document breaks off here"))
    else:
        if path:
            skipped.append(Skipped(text.rstrip().count("\n") + 1, "the document breaks off here"))
    if not host and not statistics:
        raise foreign("sadf", "host in the document")
    return Extract({"host": host, "statistics": statistics}, skipped)


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _content(element: ET.Element) -> dict[str, Any]:
    """Return attributes and children of an element; children of one name make a list."""
    found: dict[str, Any] = {name: value(cell) for name, cell in element.attrib.items()}
    for child in element:
        inner: Any = _content(child)
        if not inner:
            inner = value(child.text or "")
        found.setdefault(_tag(child), []).append(inner)
    return {name: item[0] if isinstance(item, list) and len(item) == 1 else item
            for name, item in found.items()}  # fmt: skip


def _is_interval(cell: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,9}", cell) is not None


def _interval(cell: str) -> int | None:
    return None if cell.startswith("-") else int(cell)
