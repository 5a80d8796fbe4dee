"""What a tool printed over time, or files read over time, to samples by the kinds' own parsers.

Which fields of a kind's rows are metrics, and of what, is data (`Reading`): the catalogue of
collectors has it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple, TypeVar

from servemap.model.errors import ParseError
from servemap.parsers.accelerators.dcgm import dcgmi_dmon_lines
from servemap.parsers.accelerators.nvidia_csv import csv_lines
from servemap.parsers.accelerators.nvidia_dmon import dmon_lines
from servemap.parsers.clean import clean
from servemap.parsers.counters import delta, interval_s
from servemap.parsers.frame import Extract, Printed, check_size
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.network.hca_counters import parse_hca_counters
from servemap.parsers.pressure import parse_pressure
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
PAGES: dict[str, Callable[[str], Extract]] = {
    "hca-counters": parse_hca_counters,
    "pressure": parse_pressure,
}
"""What reads all of some files at one time, by kind."""


class Field(NamedTuple):
    """One metric: the fields that may hold it (the first that is there does) and how it is read.

    `scale` multiplies the value; a counter becomes a rate per second; `words` are the numbers that
    words stand for.
    """

    metric: str
    unit: str
    fields: tuple[str, ...]
    counter: bool = False
    scale: float = 1.0
    words: Mapping[str, float] | None = None


class Reading(NamedTuple):
    """How rows of a kind become samples.

    Args:
        kind: of `PRINTED` or `PAGES`.
        entity: a template of the row's fields, such as `gpu{index}`; a row without them is of none.
        fields: the metrics.
        name: the field that says what an entity is, such as the command of a process; None if none.
    """

    kind: str
    entity: str
    fields: tuple[Field, ...]
    name: str | None = None


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
        self._least_s = interval / 4
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
            value = _value(field, row)
            if value is None:
                continue
            if not field.counter:
                self._keep(at.t_ns, None, entity, field, value)
            else:
                self._count(at, entity, field, value)
        return entity

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
    """Return samples of pages (`text`), each the whole state at one time.

    A page that holds nothing of the kind is skipped; rates around it span the longer interval.
    """
    sampler = _Sampler(reading, interval)
    times: list[int] = []
    skipped: list[Skipped] = []
    for line in lines:
        at, page = _at(line), text(line.value.get("text"))
        if at is None or page is None:
            reason = text(line.value.get("error")) or "no t_ns, mono_ns or text"
            skipped.append(Skipped(line.line, reason))
            continue
        try:
            found = _read(PAGES[reading.kind], clean(page))
        except ParseError as error:
            skipped.append(Skipped(line.line, error.what))
            continue
        skipped += [Skipped(line.line, one.reason) for one in found.skipped]
        times.append(at.t_ns)
        for row in _rows(found.data):
            sampler.add(row, at)
    return Readings(Parsed(sampler.samples, times, skipped), sampler.names)


def _read(parse: Callable[[str], T], page: str) -> T:
    """Return what a text of the usual size holds; its lines are numbered as they are."""
    check_size(len(page), "telemetry")
    return parse(page)


def _rows(data: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of an extract; of `hca-counters` one for each port of each device."""
    rows: Sequence[Row] = data.get("rows") or []
    yield from rows
    for device in data.get("devices") or []:
        for port in device["ports"]:
            counters = {**port["counters"], **port["hw_counters"]}
            yield {**counters, **port, "device": device["name"]}


def _at(line: JsonLine) -> _At | None:
    t_ns, mono_ns = integer(line.value.get("t_ns")), integer(line.value.get("mono_ns"))
    return None if t_ns is None or mono_ns is None else _At(t_ns, mono_ns)


def _value(field: Field, row: Row) -> float | None:
    found = next((row[name] for name in field.fields if row.get(name) is not None), None)
    if field.words is not None:
        return field.words.get(str(found))
    return number(found)
