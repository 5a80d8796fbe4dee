"""What AIPerf and GenAI-Perf measured: the tables that they draw, and AIPerf's export as JSON."""

import re
from typing import Any

from servemap.parsers.cells import Number, is_missing, key, scaled, unit
from servemap.parsers.frame import Extract, Kind, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import amount, is_json, mapping, string
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_BORDER = re.compile(r"[┏┳┓┡╇┩└┴┘━─╰╯╭╮┬├┼┤ ]+")
_FIRST = ("Metric", "Statistic")
_NAME = re.compile(r"([^()]{1,120}?) ?\(([^()]{1,40})\)")
# Thousands are grouped, and a mark always stands before the decimals.
_NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3}){0,6}|[0-9]{1,20})(\.[0-9]{1,9})?")
_WIDEST = 200
_UNITS = {"sec": "s", "KB": "KiB"}


def parse_aiperf(text: str) -> Extract:
    """What aiperf or genai-perf profile measured: their tables, or AIPerf's export as JSON.

    `tables`, one each: `title` (null of JSON), and `metrics`: {name: {`avg`, `min`, `max`, `p99`,
    `p90`, `p75`, `std`}}, the statistics that there are, null for `N/A`. A name is as printed in
    lower case with `_` and its unit: `time_to_first_token_s`, `request_latency_s`,
    `output_sequence_length_tokens`, `output_token_throughput_tokens_per_s`,
    `request_throughput_per_s`. The last row of a table that has no lower border is left out: the
    rest of its name may stand below it. `was_cancelled` is what the export says, null of tables.
    AIPerf's KB are of 1024 bytes.

    Raises:
        ParseError: there is no heading with `Metric` or `Statistic` and `avg`, and no such export.
    """
    if is_json(text):
        return _from_json(text)
    tables: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    title: str | None = None
    statistics: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    for line, row in ended(text, skipped):
        if row.lstrip()[:1] not in ("┃", "│"):
            if not _BORDER.fullmatch(row):
                title = row.strip()[:_WIDEST]
            elif statistics and row.lstrip()[:1] in ("└", "╰"):
                tables[-1]["metrics"] = _metrics(statistics, rows, skipped)
                title, statistics, rows = None, [], []
            continue
        cells = [cell.strip() for cell in row.strip().strip("┃│").replace("┃", "│").split("│")]
        if cells[0] in _FIRST and "avg" in cells:
            statistics, rows = cells[1:], []
            tables.append({"title": title, "metrics": {}})
        elif len(cells) - 1 != len(statistics):
            skipped.append(
                Skipped(line, f"{len(cells)} cells under {len(statistics) + 1} headings")
            )
        elif rows and not any(cells[1:]):
            rows[-1][1][0] += f" {cells[0]}"
        else:
            rows.append((line, cells))
    if not tables:
        raise foreign("aiperf", "heading with Metric and avg")
    if rows:
        skipped.append(Skipped(rows[-1][0], "the table is cut here"))
        tables[-1]["metrics"] = _metrics(statistics, rows[:-1], skipped)
    return Extract({"tables": tables, "was_cancelled": None}, sorted(skipped))


def _from_json(text: str) -> Extract:
    document = read_document("aiperf", text)
    top = mapping(document.value)
    metrics: dict[str, dict[str, Number | None]] = {}
    for printed, item in top.items():
        found = mapping(item)
        spelled = string(found.get("unit"))
        if spelled is not None and "avg" in found:
            name, factor = _name(f"{printed[:_WIDEST]} ({spelled[:40]})")
            metrics[name] = {
                one: scaled(amount(cell), 1 if one == "count" else factor)
                for one, cell in found.items()
                if one != "unit"
            }
    if not metrics:
        raise foreign("aiperf", "metric with a unit and an avg")
    was_cancelled = top.get("was_cancelled")
    data = {
        "tables": [{"title": None, "metrics": metrics}],
        "was_cancelled": was_cancelled if isinstance(was_cancelled, bool) else None,
    }
    return Extract(data, document.skipped)


def _metrics(
    statistics: list[str], rows: list[tuple[int, list[str]]], skipped: list[Skipped]
) -> dict[str, dict[str, Number | None]]:
    metrics: dict[str, dict[str, Number | None]] = {}
    for line, (printed, *cells) in rows:
        name, factor = _name(printed[:_WIDEST])
        values = [_number(cell) for cell in cells]
        if not name or any(
            value is None and not is_missing(cell)
            for value, cell in zip(values, cells, strict=True)
        ):
            skipped.append(Skipped(line, "a cell that is no number"))
            continue
        metrics[name] = {
            key(one): scaled(value, factor) for one, value in zip(statistics, values, strict=True)
        }
    return metrics


def _name(printed: str) -> tuple[str, Number]:
    """Return a name with its unit, and what its values are multiplied by."""
    match = _NAME.fullmatch(printed)
    if match is None:
        return key(printed), 1
    if kept := unit(_UNITS.get(match[2], match[2])):
        return f"{key(match[1])}_{kept.suffix}", kept.factor
    # The name says that it is of a user.
    spelled = re.sub(r"(?:/|\bper )sec(?:ond)?\b", " per s", match[2].removesuffix("/user"))
    return f"{key(match[1])}_{key(spelled)}", 1


def _number(cell: str) -> Number | None:
    match = _NUMBER.fullmatch(cell)
    if match is None or ("," in cell and not match[1]):
        return None
    plain = cell.replace(",", "")
    return float(plain) if match[1] else int(plain)


KINDS: tuple[Kind, ...] = (
    Kind(
        "aiperf",
        parse_aiperf,
        "aiperf profile, genai-perf profile",
        "recorded tables of AIPerf and GenAI-Perf, and the export of AIPerf 0.13",
    ),
)
