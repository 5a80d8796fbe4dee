"""perf stat: counts of events, as csv (-x), JSON (-j) or the text for people."""

import re
from typing import Any, NamedTuple

from servemap.parsers.cells import Number, is_missing, number
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.records import Skipped

Event = dict[str, Any]

_INSTANCE = re.compile(r"S[0-9]+(?:-[A-Z]+[0-9]+)*|CPU[0-9]+|N[0-9]+|[^,;]{1,40}-[0-9]+")
_SECONDS = re.compile(r"\s*[0-9]+[.,][0-9]+")


def parse_perf_stat(text: str) -> Extract:
    """Counts of events: perf stat with -x, with -j, or as it prints for people.

    `events`: one a line: `event`, `value` (null for <not supported> and <not counted>), `unit`
    (`msec`, `Joules`, null for a count), `time_s` (-I, else null), `instance` (CPU, core or socket
    of -A and --per-*, else null), `running_ns` and `running_percent` (how long the event was
    counted; below 100 the value is an estimate of perf's), `noise_percent` (the deviation over the
    runs of -r), `metric` and `metric_unit` (what perf derives: 2.16, `insn per cycle`).
    `elapsed_s`, `user_s`, `system_s`: the last lines of the text for people, else null. In that
    text digits may be grouped by comma, point, blank or apostrophe; where a number can be read in
    two ways it is null.

    Raises:
        ParseError: there is no event.
    """
    first = next((row for _, row in numbered(text) if not row.startswith("#")), "")
    if first.lstrip().startswith("{"):
        return _read_json(text)
    separator = next((mark for mark in (";", "\t", ",") if _is_csv(text, mark)), None)
    return _read_text(text) if separator is None else _read_csv(text, separator)


_NAMES = ("time_s", "instance", "event", "value", "unit", "running_ns", "running_percent",
          "noise_percent", "metric", "metric_unit")  # fmt: skip
_EMPTY = dict.fromkeys(_NAMES)


def _event(**known: Any) -> Event:
    return {**_EMPTY, **known}


def _is_csv(text: str, mark: str) -> bool:
    return any(
        _csv_value(row.split(mark)[:4]) is not None
        for _, row in zip(range(200), (r for _, r in numbered(text)), strict=False)
        if row.count(mark) >= 3
    )


def _csv_value(fields: list[str]) -> int | None:
    """Return which field is the value, behind a time, an instance and its count."""
    at = 0
    if len(fields) > 1 and _SECONDS.fullmatch(fields[0]) and _is_value(fields[1]):
        return 1
    if len(fields) > 1 and _SECONDS.fullmatch(fields[0]) and _INSTANCE.fullmatch(fields[1].strip()):
        at = 1
    if at < len(fields) and _INSTANCE.fullmatch(fields[at].strip()):
        at += 1
        if at + 1 < len(fields) and fields[at].isdecimal() and _is_value(fields[at + 1]):
            at += 1
    return at if at < len(fields) and _is_value(fields[at]) else None


def _is_value(field: str) -> bool:
    return number(field) is not None or field.strip().startswith("<not ")


def _read_csv(text: str, mark: str) -> Extract:
    events: list[Event] = []
    skipped: list[Skipped] = []
    unended = cut_line(text)
    for line, row in numbered(text):
        if row.startswith("#"):
            continue
        fields = row.split(mark)
        if not any(fields[:3]) and events and len(fields) > 3:
            _more_metric(events, fields)
            continue
        at = _csv_value(fields[:4])
        found = None if at is None or len(fields) < at + 3 else _csv_event(fields, at, mark)
        if found is None or line == unended:
            skipped.append(Skipped(line, "no event, or cut"))
        else:
            events.append(found)
    if not events:
        raise foreign("perf stat", "event")
    return Extract(_data(events), skipped)


def _csv_event(fields: list[str], at: int, mark: str) -> Event | None:
    """Return the event of a line whose value is field `at`; its name may hold the separator."""
    end = next((i for i in range(at + 3, len(fields) - 1)
                if fields[i].isdecimal() and _is_percent(fields[i + 1])), None)  # fmt: skip
    named = fields[at + 2 : end]
    noise = number(named.pop()[:-1]) if len(named) > 1 and named[-1].endswith("%") else None
    event = mark.join(named)
    if not event.strip()[:1].isalpha() or (end is None and len(fields) > at + 3):
        return None
    lead = fields[:at]
    time = number(lead[0]) if lead and _SECONDS.fullmatch(lead[0]) else None
    instance = next((each.strip() for each in lead if _INSTANCE.fullmatch(each.strip())), None)
    rest = [] if end is None else fields[end:]
    metric_unit = mark.join(rest[3:]).strip() or None
    return _event(
        time_s=time,
        instance=instance,
        event=event.strip(),
        value=number(fields[at]),
        unit=fields[at + 1].strip() or None,
        running_ns=int(rest[0][:20]) if rest else None,
        running_percent=number(rest[1]) if rest else None,
        noise_percent=noise,
        # perf writes 0 where it derives nothing, as of an event that was not counted.
        metric=number(rest[2]) if len(rest) > 2 and number(fields[at]) is not None else None,
        metric_unit=metric_unit,
    )


def _is_percent(field: str) -> bool:
    found = number(field)
    return isinstance(found, float) and 0 <= found <= 100


def _more_metric(events: list[Event], fields: list[str]) -> None:
    """Take a line that only has another metric of the event before it."""
    filled = [field.strip() for field in fields if field.strip()]
    if len(filled) == 2 and (amount := number(filled[0])) is not None:
        events.append(_event(event=events[-1]["event"], metric=amount, metric_unit=filled[1]))


def _data(events: list[Event], **ends: Number | None) -> dict[str, Any]:
    return {
        "events": events,
        "elapsed_s": ends.get("elapsed"),
        "user_s": ends.get("user"),
        "system_s": ends.get("sys"),
    }


def _read_json(text: str) -> Extract:
    lines, skipped = parse_jsonl(text.encode())
    events = []
    for line, row in lines:
        if not isinstance(row.get("event"), str):
            skipped.append(Skipped(line, "no event"))
            continue
        counted = _plain(row.get("counter-value")) is not None
        instance = next((row[name] for name in ("cpu", "core", "socket", "die", "node", "thread")
                         if isinstance(row.get(name), str)), None)  # fmt: skip
        events.append(
            _event(
                time_s=_plain(row.get("interval")),
                instance=instance,
                event=row["event"],
                value=_plain(row.get("counter-value")),
                unit=row.get("unit") or None,
                running_ns=_plain(row.get("event-runtime")),
                running_percent=_plain(row.get("pcnt-running")),
                noise_percent=_plain(row.get("variance")),
                metric=_plain(row.get("metric-value"))
                if row.get("metric-unit") and counted
                else None,
                metric_unit=row.get("metric-unit") or None,
            )
        )
    if not events:
        raise foreign("perf stat", "event")
    return Extract(_data(events), sorted(skipped))


def _plain(cell: Any) -> Number | None:
    return None if isinstance(cell, bool) or cell is None else number(str(cell))


_TEXT_LINE = re.compile(
    r"\s*(?:(?P<time>[0-9]+[.,][0-9]{6,})\s+)?"
    r"(?:(?P<instance>CPU[0-9]+|[SN][0-9]+(?:-[A-Z]+[0-9]+)*)\s+(?:[0-9]+\s+(?=[0-9<]))?)?"
    r"(?P<value><not [a-z]+>|[0-9][0-9.,'\u00a0\u202f]*)\s+(?P<event>\S.*)"
)
_END = re.compile(
    r"\s*([0-9]+[.,][0-9]+)(?:\s+\+-\s+[0-9.,]+)?\s+seconds (time elapsed|user|sys)\b.*"
)
_SHARE = re.compile(r"\(\s*([0-9]+[.,][0-9]+)\s*%\)\s*$")
_UNITS = ("msec", "Joules", "MiB", "ns", "usec")
_NOISE = re.compile(r"\(\s*\+-\s*([0-9]+[.,][0-9]+)\s*%\s*\)")
# A grouped number does not begin with 0.
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:([.,' \u00a0\u202f])[0-9]{3})(?:\1[0-9]{3})*")


class _Marks(NamedTuple):
    """The marks of the tool's locale: decimal, and grouping; None where the text does not tell."""

    decimal: str | None
    group: str | None


def _marks(text: str) -> _Marks:
    """Find the marks in seconds, whose fraction always has many digits."""
    end = re.search(
        r"(?m)[0-9]([.,])[0-9]{4,}(?:\s+seconds|\s+\+-)|^\s*[0-9]+([.,])[0-9]{9}\s", text
    )
    both = re.search(r"[0-9]([.,'\u00a0\u202f])[0-9]{3}([.,])[0-9]{2}\s", text)
    decimal = end[1] or end[2] if end else both[2] if both else None
    return _Marks(decimal, {".": ",", ",": "."}.get(decimal or ""))


def _grouped(cell: str, marks: _Marks) -> Number | None:
    """Return a number whose digits may be grouped; None where it can be read in two ways."""
    word = cell.strip()
    match = _GROUPED.fullmatch(word)
    if marks.decimal is not None:
        plain = re.sub(r"[' \u00a0\u202f]", "", word).replace(marks.group or "", "")
        return number(plain.replace(marks.decimal, "."))
    if match and (word.count(match[1]) > 1 or match[1] not in ".,"):
        return int(re.sub(r"[^0-9]", "", word))
    return None if match else number(word)


def _read_text(text: str) -> Extract:
    marks = _marks(text)
    events: list[Event] = []
    ends: dict[str, Number | None] = {}
    skipped: list[Skipped] = []
    unended = cut_line(text)
    for line, row in numbered(text):
        if row.lstrip().startswith(("Performance counter stats", "#")):
            continue
        if match := _END.fullmatch(row):
            ends[match[2].removeprefix("time ")] = number(match[1])
            continue
        head, _, derived = row.partition("#")
        if len(row) > 500 or line == unended:
            skipped.append(Skipped(line, "no event"))
            continue
        noise = _NOISE.search(row)
        share = _SHARE.search(row)
        head = _SHARE.sub("", _NOISE.sub("", head))
        match = _TEXT_LINE.fullmatch(head.rstrip())
        words = match["event"].split() if match else []
        unit = words.pop(0) if len(words) > 1 and words[0] in _UNITS else None
        if match is None or not words or not re.match(r"[A-Za-z]", words[0]):
            skipped.append(Skipped(line, "no event"))
            continue
        metric = re.match(r"\s*([0-9.,]+)\s*(%?)\s*(.*?)\s*(?:\(|$)", derived)
        events.append(
            _event(
                time_s=number(match["time"] or ""),
                instance=match["instance"],
                event=words[0],
                value=None if is_missing(match["value"]) else _grouped(match["value"], marks),
                unit=unit,
                running_percent=number(share[1]) if share else None,
                noise_percent=number(noise[1]) if noise else None,
                metric=_grouped(metric[1], marks) if metric else None,
                metric_unit=" ".join(filter(None, metric.groups()[1:])) or None if metric else None,
            )
        )
    if not events:
        raise foreign("perf stat", "event")
    return Extract(_data(events, **ends), skipped)
