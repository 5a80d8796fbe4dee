"""Raw telemetry of one attempt to aligned series and coverage."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from servemap.analysis.cached import EngineHits
from servemap.analysis.server_marks import Marks, process_mark, root_pids, scrape_mark
from servemap.parsers.jsonl import JsonLine, stream_jsonl
from servemap.parsers.proc import parse_proc, process_names
from servemap.parsers.prometheus import parse_scrapes
from servemap.parsers.readings import Readings, parse_raw
from servemap.parsers.records import Skipped, skip_summary
from servemap.parsers.series import Parsed
from servemap.parsers.values import mapping, moment, number
from servemap.telemetry.align import AlignedSeries, Coverage, Segment, align, coverage
from servemap.telemetry.catalogue import engine_metrics
from servemap.telemetry.clock import epoch_of, node_clock, rebuilt
from servemap.telemetry.collectors import Collector
from servemap.telemetry.declared import known_collector

Parser = Callable[[Iterable[JsonLine], float], Parsed]

PARSERS: dict[str, Parser] = {"proc": parse_proc, "prometheus": parse_scrapes}
_EVENTS = "collect.events.jsonl"


class Telemetry(NamedTuple):
    """Aligned series, coverage, what was skipped by NODE/NAME, names of processes, and marks."""

    series: list[AlignedSeries]
    coverages: list[Coverage]
    skipped: dict[str, list[str]]
    processes: dict[str, dict[str, str]]
    marks: list[Marks]


def read_telemetry(
    folder: Path,
    segments: list[Segment],
    collectors: dict[str, Any],
    clock: dict[str, Any],
    only: str = "*",
) -> Telemetry:
    """Read `folder`/NODE/NAME.jsonl.

    Args:
        folder: the attempt's raw/telemetry; it may be absent.
        segments: the measured intervals.
        collectors: meta.json's `collectors` by NODE/NAME, for the intervals they ran at.
        clock: meta.json's `clock` by node; a node that is not there is on the head's clock.
        only: the collector to read; all of them if it is not given.
    """
    result = Telemetry([], [], {}, {}, [])
    for path in sorted(folder.glob(f"*/{only}.jsonl")):
        if path.name == _EVENTS:
            continue
        node, name = path.parent.name, path.stem
        key = f"{node}/{name}"
        on_node = node_clock(clock.get(node))
        record = mapping(collectors.get(key))
        known = known_collector(name, record)
        interval = number(record.get("interval_s"))
        interval = interval or (known.interval_s if known else 1.0)
        skipped: list[Skipped] = []
        lines = rebuilt(stream_jsonl(path, skipped), epoch_of(path.parent))
        seen: dict[str, str] = {}
        if known and known.parser == "proc":
            roots = root_pids(path.parent)
            lines = _named(lines, seen)
            if roots:
                mark = partial(process_mark, node, roots=roots, clock=on_node)
                lines = _marked(lines, mark, result.marks)
        elif known and known.parser == "prometheus":
            lines = _marked(lines, partial(scrape_mark, node, clock=on_node), result.marks)
        parsed, names = _parsed(known, lines, interval)
        said = skip_summary([*skipped, *parsed.skipped])
        if said:
            result.skipped[key] = said
        result.series.extend(align(node, name, parsed.series, on_node, segments))
        result.coverages.extend(coverage(node, name, parsed.times_ns, on_node, interval, segments))
        if seen or names:
            result.processes.setdefault(node, {}).update(seen or names)
    return result


def _marked(
    lines: Iterable[JsonLine], mark: Callable[[JsonLine], Marks | None], marks: list[Marks]
) -> Iterator[JsonLine]:
    """Yield lines and keep the mark of each."""
    for line in lines:
        if (found := mark(line)) is not None:
            marks.append(found)
        yield line


def _named(lines: Iterable[JsonLine], names: dict[str, str]) -> Iterator[JsonLine]:
    """Yield lines and keep the names of their processes, of a pid that comes again the last."""
    for line in lines:
        names.update(process_names(line))
        yield line


def _parsed(known: Collector | None, lines: Iterable[JsonLine], interval: float) -> Readings:
    if known is None:
        return Readings(_times_only(lines), {})
    if known.reading is None:
        return Readings(PARSERS[known.parser](lines, interval), {})
    return parse_raw(lines, interval, known.reading)


def _times_only(lines: Iterable[JsonLine]) -> Parsed:
    """A collector without a parser still shows when it delivered."""
    times = [t for t in (moment(line.value.get("t_ns")) for line in lines) if t is not None]
    return Parsed([], times, [])


def engine_cache_hits(
    series: Iterable[AlignedSeries], segments: Sequence[Segment]
) -> EngineHits | None:
    """Return cached over all prompt tokens as the engine counted them inside the segments.

    Only what lies between two scrapes inside a segment is counted, so that no warm-up is in it; a
    prompt at a segment's edge may not be, either. None where no engine's counters are there or no
    prompt token passed.
    """
    counts: dict[str, float] = {}
    covered: dict[tuple[str, str], int] = {}
    for one in series:
        if one.unit == "per_s" and one.from_ns is not None and one.inside.any():
            lengths = (one.t_ns - one.from_ns)[one.inside]
            count = float((one.value[one.inside] * lengths).sum())
            counts[one.metric] = counts.get(one.metric, 0.0) + count
            place = one.metric, f"{one.node} {one.entity}"
            covered[place] = covered.get(place, 0) + int(lengths.sum())
    for names in engine_metrics().values():
        queries = sum(counts.get(name, 0.0) for name in names.cache_queries)
        if names.cache_hits in counts and queries > 0:
            seen = max(length for (name, _), length in covered.items() if name == names.cache_hits)
            window_s = sum(segment.duration_s for segment in segments)
            return EngineHits(counts[names.cache_hits] / queries, seen / 1e9, window_s)
    return None
