"""What a tool printed over time, or files read over time, to samples by the kinds' own parsers.

Which fields of a kind's rows are metrics, and of what, is data (`Reading`): the catalogue of
collectors has it. Lines are read one by one, and samples are kept as columns, so that memory is
that of the samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from servemap.model.errors import ParseError
from servemap.parsers.clean import clean
from servemap.parsers.columns import COLUMNS, parse_columns
from servemap.parsers.fields import Reading
from servemap.parsers.frame import Notes, check_size
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.pages import PAGES, Page, as_pages, one_line
from servemap.parsers.printed import PRINTED
from servemap.parsers.records import Skipped
from servemap.parsers.sampler import Sampler
from servemap.parsers.series import Parsed
from servemap.parsers.values import moment, text


class Readings(NamedTuple):
    """Samples, and the names of entities."""

    parsed: Parsed
    names: dict[str, str]


# When a row was received: epoch and monotonic ns.
_At = tuple[int, int]


def parse_printed(lines: Iterable[JsonLine], interval: float, reading: Reading) -> Readings:
    """Return samples of what a command printed about every `interval` seconds, `line` by line.

    A row is of the time at which its line was received. A time of delivery is that of the first
    row of a round: a new round begins where an entity comes again, or after half an interval.
    """
    notes = Notes([], [])
    printed = _Lines(lines, notes.said)
    sampler = Sampler(reading, interval)
    times: list[int] = []
    seen: set[str] = set()
    last_mono_ns: int | None = None
    try:
        for line, row in PRINTED[reading.kind](printed, notes):
            t_ns, mono_ns = printed.taken(line)
            entity = sampler.add(row, t_ns, mono_ns)
            gone_s = None if last_mono_ns is None else (mono_ns - last_mono_ns) / 1e9
            if gone_s is None or entity in seen or gone_s > interval / 2:
                times.append(t_ns)
                seen.clear()
            if entity is not None:
                seen.add(entity)
            last_mono_ns = mono_ns
    except ParseError as error:
        return Readings(Parsed([], [], [*printed.skipped, Skipped(1, error.what)]), {})
    said = [Skipped(printed.said_at, f"the tool said: {one}") for one in notes.said[:1]]
    skipped = [*printed.skipped, *notes.skipped, *said]
    return Readings(Parsed(sampler.series(), times, skipped), sampler.names)


class _Lines:
    """The printed lines of raw records, with their times until their rows are taken."""

    def __init__(self, lines: Iterable[JsonLine], said: Sequence[str]) -> None:
        self._lines = lines
        self._said = said
        self._waiting: dict[int, _At] = {}
        self.said_at = 0
        self.skipped: list[Skipped] = []

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of every line that is not blank."""
        for line in self._lines:
            at, said = _at(line), text(line.value.get("line"))
            if at is None or said is None:
                self.skipped.append(Skipped(line.line, "no t_ns, mono_ns or line"))
                continue
            if row := one_line(said).rstrip():
                self._waiting[line.line] = at
                yield line.line, row
                # Who read the line noted it as what the tool said.
                if self._said and not self.said_at:
                    self.said_at = line.line

    def taken(self, line: int) -> _At:
        """Return when a line was received; the lines before it gave no row, or have given it."""
        at = self._waiting.pop(line)
        while self._waiting and (before := next(iter(self._waiting))) < line:
            del self._waiting[before]
        return at


def parse_pages(lines: Iterable[JsonLine], interval: float, reading: Reading) -> Readings:
    """Return samples of pages (`text`), each the whole state at one time, of all or `of` one thing.

    A page that holds nothing of the kind is skipped; rates around it span the longer interval.
    Pages of less than half an interval after the first of a round are of the same delivery.
    """
    kind = _page_kind(reading)
    sampler = Sampler(reading, interval)
    times: list[int] = []
    skipped: list[Skipped] = []
    begun_ns: int | None = None
    for line in as_pages(lines, kind):
        at, page = _at(line), text(line.value.get("text"))
        if at is None or page is None:
            reason = text(line.value.get("error")) or "no t_ns, mono_ns or text"
            skipped.append(Skipped(line.line, reason))
            continue
        try:
            check_size(len(page), "telemetry")
            found = kind.parse(clean(page))
        except ParseError as error:
            skipped.append(Skipped(line.line, error.what))
            continue
        skipped += [Skipped(line.line, one.reason) for one in found.skipped]
        t_ns, mono_ns = at
        if begun_ns is None or not 0 <= mono_ns - begun_ns < interval * 5e8:
            times.append(t_ns)
            begun_ns = mono_ns
        of = text(line.value.get("of"))
        for row in kind.rows(found.data):
            sampler.add(row if of is None else {**row, "of": of}, t_ns, mono_ns)
    return Readings(Parsed(sampler.series(), times, skipped), sampler.names)


def parse_raw(lines: Iterable[JsonLine], interval: float, reading: Reading) -> Readings:
    """Return samples of a collector's raw lines, whichever way its kind is read."""
    read = parse_printed if reading.kind in PRINTED else parse_pages
    return read(lines, interval, reading)


def _page_kind(reading: Reading) -> Page:
    if reading.kind != COLUMNS:
        return PAGES[reading.kind]
    heading = reading.columns[0]
    return Page(
        partial(parse_columns, headings=reading.columns, units={}),
        lambda data: [{**row, "entity": row[heading]} for row in data["rows"]],
    )


def _at(line: JsonLine) -> _At | None:
    t_ns, mono_ns = moment(line.value.get("t_ns")), moment(line.value.get("mono_ns"))
    return None if t_ns is None or mono_ns is None else (t_ns, mono_ns)
