"""Raw telemetry to samples one by one, as simply as it can be written.

What the fast way (`parsers.sampler`, `parsers.proc`, `parsers.prometheus`) is held against.
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from string import Formatter
from typing import Any

from servemap.model.errors import ParseError
from servemap.parsers.cells import key
from servemap.parsers.clean import clean
from servemap.parsers.counters import delta, interval_s
from servemap.parsers.fields import Field, Reading
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.kinds import KINDS
from servemap.parsers.pages import PAGES, as_pages
from servemap.parsers.printed import PRINTED
from servemap.parsers.proc import CPU_FIELDS, NET_FIELDS
from servemap.parsers.prometheus import parse_exposition
from servemap.parsers.records import Sample
from servemap.parsers.values import integer, mapping, number, sequence, text

Row = Mapping[str, Any]
At = tuple[int, int]


def plain_samples(lines: Iterable[JsonLine], interval: float, reading: Reading) -> list[Sample]:
    """Return the samples of a collector's raw lines."""
    rows = _printed_rows if reading.kind in PRINTED else _page_rows
    before: dict[tuple[str, str], tuple[At, float]] = {}
    found: list[Sample] = []
    for at, row in rows(lines, reading):
        identity = [name for _, name, _, _ in Formatter().parse(reading.entity) if name]
        if any(row.get(name) is None for name in identity):
            continue
        entity = reading.entity.format_map(row).casefold()
        for field in reading.fields:
            for one in _spread(field, row) if field.metric.endswith("*") else [field]:
                value = _value(one, row)
                if value is not None:
                    found += _sample(before, at, entity, one, value, interval)
    return found


def _printed_rows(lines: Iterable[JsonLine], reading: Reading) -> Iterator[tuple[At, Row]]:
    """Yield the rows that each line adds to what the kind finds in all lines up to it."""
    printed, rows = "", 0
    for line in lines:
        at, said = _at(line), text(line.value.get("line"))
        if at is None or said is None:
            continue
        printed += clean(said).replace("\n", " ") + "\n"
        try:
            whole = KINDS[reading.kind].parse(printed).data.get("rows") or []
        except ParseError:
            continue
        yield from ((at, row) for row in whole[rows:])
        rows = len(whole)


def _page_rows(lines: Iterable[JsonLine], reading: Reading) -> Iterator[tuple[At, Row]]:
    page = PAGES[reading.kind]
    for line in as_pages(lines, page):
        at, said = _at(line), text(line.value.get("text"))
        if at is None or said is None:
            continue
        try:
            data = page.parse(clean(said)).data
        except ParseError:
            continue
        of = text(line.value.get("of"))
        for row in page.rows(data):
            yield at, row if of is None else {**row, "of": of}


def _spread(field: Field, row: Row) -> Iterator[Field]:
    for name in row:
        if any(fnmatchcase(name, one) for one in field.fields) and not any(
            fnmatchcase(name, one) for one in field.but
        ):
            metric = field.metric.removesuffix("*") + key(name)
            yield field._replace(metric=metric, fields=(name,))


def _value(field: Field, row: Row) -> float | None:
    found = next((row[name] for name in field.fields if row.get(name) is not None), None)
    return number(found) if field.words is None else field.words.get(str(found))


def _sample(
    before: dict[tuple[str, str], tuple[At, float]],
    at: At,
    entity: str,
    field: Field,
    value: float,
    interval: float,
) -> Iterator[Sample]:
    (t_ns, mono_ns), what = at, (entity, field.metric, field.unit)
    place = entity, field.metric
    earlier = before.get(place)
    if field.counter:
        if earlier is not None and mono_ns >= earlier[0][1]:
            seconds = interval_s(earlier[0][1], mono_ns, interval / 4)
            if seconds is None:
                return
            if value >= earlier[1]:
                rate = (value - earlier[1]) / seconds
                yield Sample(t_ns, earlier[0][0], *what, rate * field.scale)
        before[place] = at, value
        return
    before[place] = at, value
    if field.over is None:
        yield Sample(t_ns, None, *what, value * field.scale)
        return
    asked_ns = round(interval * 1e9)
    length_ns = asked_ns if earlier is None else mono_ns - earlier[0][1]
    if length_ns <= 0:
        return
    if field.over == "count":
        length_ns = asked_ns if length_ns > 1.5 * asked_ns else length_ns
        value = value * 1e9 / length_ns
    yield Sample(t_ns, t_ns - length_ns, *what, value * field.scale)


def plain_counters(lines: Iterable[JsonLine], interval: float) -> list[Sample]:
    """Return the samples of cores and network interfaces in `proc` lines."""
    found: list[Sample] = []
    base: tuple[At, dict[str, Any]] | None = None
    for line in lines:
        at = _at(line)
        if at is None:
            continue
        if base is None or at[1] < base[0][1]:
            base = at, line.value
            continue
        seconds = interval_s(base[0][1], at[1], interval / 4)
        if seconds is None:
            continue
        span = at[0], base[0][0]
        whole = [0.0] * len(CPU_FIELDS)
        lost = False
        for core, ticks in _moved(base[1], line.value, "cpu", len(CPU_FIELDS), "iowait"):
            if ticks is None:
                lost = True
            elif sum(ticks) > 0:
                whole = [a + b for a, b in zip(whole, ticks, strict=True)]
                found += _shares(span, core, ticks)
        if sum(whole) > 0 and not lost:
            found += _shares(span, "cpu_all", whole)
        for interface, moved in _moved(base[1], line.value, "net", len(NET_FIELDS)):
            for (metric, unit), value in zip(NET_FIELDS, moved or [], strict=moved is not None):
                found.append(Sample(*span, interface, metric, unit, value / seconds))
        base = at, line.value
    return found


def _moved(
    before: dict[str, Any], after: dict[str, Any], part: str, width: int, may_fall: str = ""
) -> Iterator[tuple[str, list[float] | None]]:
    """Yield what both have, with None for one of which a counter ran backwards."""
    earlier = mapping(before.get(part))
    for name, row in mapping(after.get(part)).items():
        sides = [
            [one for one in map(number, sequence(side)) if one is not None]
            for side in (earlier.get(name), row)
        ]
        if [len(side) for side in sides] == [width] * 2:
            if may_fall:
                place = CPU_FIELDS.index(may_fall)
                sides[1][place] = max(side[place] for side in sides)
            yield name, delta(*sides)


def _shares(span: tuple[int, int], core: str, ticks: list[float]) -> Iterator[Sample]:
    share = {name: 100.0 * one / sum(ticks) for name, one in zip(CPU_FIELDS, ticks, strict=True)}
    for metric, value in (
        ("cpu_util", 100.0 - share["idle"] - share["iowait"]),
        ("cpu_system", share["system"] + share["irq"] + share["softirq"]),
        ("cpu_iowait", share["iowait"]),
        ("cpu_steal", share["steal"]),
    ):
        yield Sample(*span, core, metric, "percent", value)


def plain_scrapes(lines: Iterable[JsonLine], interval: float) -> list[Sample]:
    """Return the samples of `http` lines, without units."""
    found: list[Sample] = []
    base: tuple[At, dict[tuple[str, str], float]] | None = None
    for line in lines:
        at, body = _at(line), text(line.value.get("text"))
        if at is None or body is None:
            continue
        try:
            gauges, counters = parse_exposition(body)
        except (ValueError, KeyError, IndexError, OverflowError):
            continue
        found += [Sample(at[0], None, *series, "", value) for series, value in gauges.items()]
        if base is None or at[1] < base[0][1]:
            base = at, counters
            continue
        seconds = interval_s(base[0][1], at[1], interval / 4)
        if seconds is None:
            continue
        for series, value in counters.items():
            if series in base[1] and value >= base[1][series]:
                rate = (value - base[1][series]) / seconds
                found.append(Sample(at[0], base[0][0], *series, "", rate))
        base = at, counters
    return found


def _at(line: JsonLine) -> At | None:
    t_ns, mono_ns = integer(line.value.get("t_ns")), integer(line.value.get("mono_ns"))
    return None if t_ns is None or mono_ns is None else (t_ns, mono_ns)
