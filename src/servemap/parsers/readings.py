"""What a tool printed over time, or files read over time, to samples by the kinds' own parsers.

Which fields of a kind's rows are metrics, and of what, is data (`Reading`): the catalogue of
collectors has it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from string import Formatter
from typing import Any, Literal, NamedTuple, TypeVar

from servemap.model.errors import ParseError
from servemap.parsers.accelerators.dcgm import dcgmi_dmon_lines
from servemap.parsers.accelerators.nvidia_csv import csv_lines
from servemap.parsers.accelerators.nvidia_dmon import dmon_lines
from servemap.parsers.cells import key
from servemap.parsers.clean import clean
from servemap.parsers.columns import COLUMNS, parse_columns
from servemap.parsers.counters import delta, interval_s
from servemap.parsers.frame import Printed, check_size
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.pages import PAGES, Page, as_pages
from servemap.parsers.records import Parsed, Sample, Skipped
from servemap.parsers.values import integer, number, text

Row = Mapping[str, Any]
T = TypeVar("T")

PRINTED: dict[str, Callable[[str], Printed]] = {
    "nvidia-smi-csv": csv_lines,
    "nvidia-smi-dmon": dmon_lines,
    "dcgmi-dmon": dcgmi_dmon_lines,
}
"""What reads the output of a command that prints on, by kind."""


class Field(NamedTuple):
    """One metric: the fields that may hold it (the first that is there does) and how it is read.

    Args:
        counter: of a total, which becomes a rate per second.
        scale: multiplies the value.
        words: the numbers that words stand for.
        over: how a value tells of the time since the row before it: an `average`, or a `count`,
            which becomes a rate per second. None for one of the moment.
        but: where the metric ends in `*` and stands for every field that matches a pattern of
            `fields`, patterns of those that it does not stand for.
    """

    metric: str
    unit: str
    fields: tuple[str, ...]
    counter: bool = False
    scale: float = 1.0
    words: Mapping[str, float] | None = None
    over: Literal["average", "count"] | None = None
    but: tuple[str, ...] = ()


class Reading(NamedTuple):
    """How rows of a kind become samples.

    Args:
        kind: of `PRINTED` or `PAGES`.
        entity: a template of the row's fields, such as `gpu{index}`; a row without them is of none.
        fields: the metrics.
        name: the field that says what an entity is, such as the command of a process; None if none.
        columns: headings of a table that a campaign declares (kind `columns`), first that of the
            field `entity`; none otherwise.
    """

    kind: str
    entity: str
    fields: tuple[Field, ...]
    name: str | None = None
    columns: tuple[str, ...] = ()


class Readings(NamedTuple):
    """Samples, and the names of entities."""

    parsed: Parsed
    names: dict[str, str]


class _At(NamedTuple):
    """When a row was received: epoch and monotonic ns."""

    t_ns: int
    mono_ns: int


class _Sampler:
    """Makes samples of rows in the order of time; keeps the last value of every counter."""

    def __init__(self, reading: Reading, interval: float) -> None:
        self._reading = reading
        self._identity = [name for _, name, _, _ in Formatter().parse(reading.entity) if name]
        self._interval_ns = round(interval * 1e9)
        self._least_s = interval / 4
        self._spread: dict[tuple[Field, str], Field | None] = {}
        self._row_before: dict[tuple[str, str], _At] = {}
        self._before: dict[tuple[str, str], tuple[_At, float]] = {}
        self.samples: list[Sample] = []
        self.names: dict[str, str] = {}

    def add(self, row: Row, at: _At) -> str | None:
        """Add the samples of a row; return its entity, None where it is of none."""
        if any(row.get(name) is None for name in self._identity):
            return None
        entity = self._reading.entity.format_map(row).casefold()
        if self._reading.name and (name := text(row.get(self._reading.name))) is not None:
            self.names[entity] = name
        for field in self._reading.fields:
            for one in self._each(field, row) if field.metric.endswith("*") else (field,):
                value = _value(one, row)
                if value is None:
                    continue
                if one.counter:
                    self._count(at, entity, one, value)
                elif one.over is not None:
                    self._since(at, entity, one, value)
                else:
                    self._keep(at.t_ns, None, entity, one, value)
        return entity

    def _each(self, field: Field, row: Row) -> Iterator[Field]:
        """Yield a field of its own for every name in a row that a pattern stands for."""
        for name in row:
            if (field, name) not in self._spread:
                wanted = any(fnmatchcase(name, pattern) for pattern in field.fields)
                left = any(fnmatchcase(name, pattern) for pattern in field.but)
                metric = field.metric.removesuffix("*") + key(name)
                own = field._replace(metric=metric, fields=(name,))
                self._spread[(field, name)] = own if wanted and not left else None
            if (found := self._spread[(field, name)]) is not None:
                yield found

    def _since(self, at: _At, entity: str, field: Field, value: float) -> None:
        """Keep what tells of the time since the row before; of the first one an interval."""
        series = (entity, field.metric)
        before = self._row_before.get(series)
        self._row_before[series] = at
        length_ns = self._interval_ns if before is None else at.mono_ns - before.mono_ns
        if length_ns <= 0:
            return
        if field.over == "count":
            # A count is of one interval, also where the one before it was not counted or lost.
            if length_ns > 1.5 * self._interval_ns:
                length_ns = self._interval_ns
            value = value * 1e9 / length_ns
        self._keep(at.t_ns, at.t_ns - length_ns, entity, field, value)

    def _count(self, at: _At, entity: str, field: Field, value: float) -> None:
        series = (entity, field.metric)
        before = self._before.get(series)
        seconds = None
        if before is not None and at.mono_ns >= before[0].mono_ns:
            seconds = interval_s(before[0].mono_ns, at.mono_ns, self._least_s)
            if seconds is None:
                return
        self._before[series] = (at, value)
        moved = delta([before[1]], [value]) if before is not None else None
        if before is not None and seconds is not None and moved is not None:
            self._keep(at.t_ns, before[0].t_ns, entity, field, moved[0] / seconds)

    def _keep(
        self, t_ns: int, from_ns: int | None, entity: str, field: Field, value: float
    ) -> None:
        self.samples.append(
            Sample(t_ns, from_ns, entity, field.metric, field.unit, value * field.scale)
        )


def parse_printed(lines: Iterable[JsonLine], interval: float, reading: Reading) -> Readings:
    """Return samples of what a command printed about every `interval` seconds, `line` by line.

    A row is of the time at which its line was received. A time of delivery is that of the first
    row of a round: a new round begins where an entity comes again, or after half an interval.
    """
    stamps: list[_At] = []
    printed: list[str] = []
    numbers: list[int] = []
    skipped: list[Skipped] = []
    for line in lines:
        at, said = _at(line), text(line.value.get("line"))
        if at is None or said is None:
            skipped.append(Skipped(line.line, "no t_ns, mono_ns or line"))
            continue
        stamps.append(at)
        numbers.append(line.line)
        printed.append(clean(said).replace("\n", " "))
    try:
        found = _read(PRINTED[reading.kind], "".join(f"{row}\n" for row in printed))
    except ParseError as error:
        return Readings(Parsed([], [], [*skipped, Skipped(1, error.what)]), {})
    data = found.extract.data
    skipped += [Skipped(numbers[one.line - 1], one.reason) for one in found.extract.skipped]
    if (said := text(data.get("error"))) is not None:
        skipped.append(Skipped(numbers[0], f"the tool said: {said}"))
    sampler = _Sampler(reading, interval)
    times: list[int] = []
    seen: set[str] = set()
    last: _At | None = None
    for place, row in zip(found.lines, data.get("rows") or [], strict=True):
        at = stamps[place - 1]
        entity = sampler.add(row, at)
        gone_s = None if last is None else (at.mono_ns - last.mono_ns) / 1e9
        if gone_s is None or entity in seen or gone_s > interval / 2:
            times.append(at.t_ns)
            seen.clear()
        if entity is not None:
            seen.add(entity)
        last = at
    return Readings(Parsed(sampler.samples, times, skipped), sampler.names)


def parse_pages(lines: Iterable[JsonLine], interval: float, reading: Reading) -> Readings:
    """Return samples of pages (`text`), each the whole state at one time, of all or `of` one thing.

    A page that holds nothing of the kind is skipped; rates around it span the longer interval.
    Pages of less than half an interval after the first of a round are of the same delivery.
    """
    kind = _page_kind(reading)
    sampler = _Sampler(reading, interval)
    times: list[int] = []
    skipped: list[Skipped] = []
    begun: _At | None = None
    for line in as_pages(lines, kind):
        at, page = _at(line), text(line.value.get("text"))
        if at is None or page is None:
            reason = text(line.value.get("error")) or "no t_ns, mono_ns or text"
            skipped.append(Skipped(line.line, reason))
            continue
        try:
            found = _read(kind.parse, clean(page))
        except ParseError as error:
            skipped.append(Skipped(line.line, error.what))
            continue
        skipped += [Skipped(line.line, one.reason) for one in found.skipped]
        gone_ns = None if begun is None else at.mono_ns - begun.mono_ns
        if gone_ns is None or not 0 <= gone_ns < interval * 5e8:
            times.append(at.t_ns)
            begun = at
        of = text(line.value.get("of"))
        for row in kind.rows(found.data):
            sampler.add(row if of is None else {**row, "of": of}, at)
    return Readings(Parsed(sampler.samples, times, skipped), sampler.names)


def parse_raw(lines: Iterable[JsonLine], interval: float, reading: Reading) -> Readings:
    """Return samples of a collector's raw lines, whichever way its kind is read."""
    read = parse_printed if reading.kind in PRINTED else parse_pages
    return read(lines, interval, reading)


def _page_kind(reading: Reading) -> Page:
    if reading.kind != COLUMNS:
        return PAGES[reading.kind]
    heading = reading.columns[0]
    return Page(
        partial(parse_columns, headings=reading.columns),
        lambda data: [{**row, "entity": row[heading]} for row in data["rows"]],
    )


def _read(parse: Callable[[str], T], page: str) -> T:
    """Return what a text of the usual size holds; its lines are numbered as they are."""
    check_size(len(page), "telemetry")
    return parse(page)


def _at(line: JsonLine) -> _At | None:
    t_ns, mono_ns = integer(line.value.get("t_ns")), integer(line.value.get("mono_ns"))
    return None if t_ns is None or mono_ns is None else _At(t_ns, mono_ns)


def _value(field: Field, row: Row) -> float | None:
    found = next((row[name] for name in field.fields if row.get(name) is not None), None)
    if field.words is not None:
        return field.words.get(str(found))
    return number(found)
