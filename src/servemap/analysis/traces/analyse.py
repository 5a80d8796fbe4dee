"""From trace files to everything that is said about them."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from servemap.analysis.traces.captures import Source, check_one_capture, source_of
from servemap.analysis.traces.classes import class_kinds
from servemap.analysis.traces.collectives import RankCollectives, match, rank_collectives
from servemap.analysis.traces.device import DeviceFigures, device_figures, device_work
from servemap.analysis.traces.experts import ExpertLoad, expert_load
from servemap.analysis.traces.host import CallTime, HostFigures, host_figures, runtime_calls
from servemap.analysis.traces.intervals import Spans
from servemap.analysis.traces.phases import (
    PhaseFigures,
    StepFigures,
    phase_figures,
    step_figures,
    steps_of_work,
)
from servemap.analysis.traces.ranks import AcrossRanks, across_ranks
from servemap.analysis.traces.steps import NO_STEP, Step, find_steps
from servemap.analysis.traces.timeline import RankTimeline, class_spans
from servemap.parsers.experts import expert_counts
from servemap.parsers.traces.read import read_traces
from servemap.parsers.traces.table import Trace, writable

_MANY_BYTES = 64 << 20
"""Less than this is read sooner than a process starts."""


@dataclass(frozen=True)
class FileFacts:
    """One file: what it is, and what of it could not be used."""

    path: str
    format: str
    rank: int | None
    world_size: int | None
    host: str | None
    base_ns: int | None
    events: int
    bytes_read: int
    skipped: dict[str, int]
    lost: str


@dataclass(frozen=True)
class DeviceReport:
    """One device of one file: its figures, and those by step and phase.

    `outside_steps_ns` is device time that belongs to no step; `by_time` counts the pieces of work
    whose launch is not traced and whose step was told by time alone.
    """

    figures: DeviceFigures
    phases: list[PhaseFigures]
    steps: list[StepFigures]
    outside_steps_ns: int
    by_time: int


@dataclass(frozen=True)
class FileReport:
    """One file: devices, or the host's figures where no device was traced."""

    file: FileFacts
    steps_named_by: str | None
    host_steps: list[Step]
    devices: list[DeviceReport]
    runtime_calls: list[CallTime]
    host: HostFigures | None


@dataclass(frozen=True)
class Analysis:
    """All files of one capture, in order of ranks; `across_missing` says why `across` is None.

    `experts` is None where no record of SGLang's expert distribution was given.
    """

    files: list[FileReport]
    across: AcrossRanks | None
    across_missing: str
    experts: ExpertLoad | None


@dataclass(frozen=True)
class Analysed:
    """An analysis, and what a timeline needs beside it: when each class ran, file by file."""

    analysis: Analysis
    spans: list[dict[str, Spans]]

    def timeline(self) -> list[RankTimeline]:
        """Return what is drawn of each file; clocks are set right where that is known."""
        across = self.analysis.across
        ahead = {one.rank: one.offset_ns for one in across.ranks} if across else {}
        return [
            RankTimeline(
                writable(Path(one.file.path).name)
                if one.file.rank is None
                else f"rank {one.file.rank}",
                (one.file.base_ns or 0) - ahead.get(one.file.rank or 0, 0),
                one.host_steps,
                spans,
                [gap for device in one.devices for gap in device.figures.gaps.longest],
            )
            for one, spans in zip(self.analysis.files, self.spans, strict=True)
        ]


@dataclass(frozen=True)
class _Read:
    report: FileReport
    spans: dict[str, Spans]
    source: Source
    collectives: RankCollectives


def analyse(paths: Sequence[Path], experts: Sequence[Path] = ()) -> Analysed:
    """Return what the files of one capture say; each is read once and then let go.

    Args:
        paths: one trace a rank.
        experts: what SGLang's expert distribution recorder wrote meanwhile.

    Raises:
        OSError: a file cannot be read.
        ParseError: a file is no trace, or the files are not of one capture.
    """
    load = expert_load(expert_counts(experts)) if experts else None
    read = _numbered(_all(paths))
    check_one_capture([one.source for one in read])
    read.sort(key=lambda one: (one.source.rank is None, one.source.rank or 0))
    ranks = [one for one in read if one.source.rank is not None]
    across, missing = None, "there are not two files that name their rank"
    if len(ranks) > 1:
        matched = match([one.collectives for one in ranks])
        across = across_ranks([one.source.rank or 0 for one in ranks], matched)
        missing = "" if across else "the ranks share no collective"
    analysis = Analysis([one.report for one in read], across, missing, load)
    return Analysed(analysis, [one.spans for one in read])


def _numbered(read: list[_Read]) -> list[_Read]:
    """Return the parts with a rank each where only exports of nsys are there, and several parts.

    Such an export does not say which ranks it holds: they are counted over the files as given.
    """
    if len(read) < 2 or any(one.report.file.format != "nsys" for one in read):
        return read
    found = []
    for rank, one in enumerate(read):
        file = replace(one.report.file, rank=rank, world_size=len(read))
        source = one.source._replace(rank=rank, world_size=len(read))
        found.append(replace(one, report=replace(one.report, file=file), source=source))
    return found


def _all(paths: Sequence[Path]) -> list[_Read]:
    """Return the parts of all files; large ones are read by several processes."""
    size = sum(path.stat().st_size for path in paths)
    if len(paths) < 2 or size < _MANY_BYTES:
        return [part for path in paths for part in _parts(path)]
    workers = min(len(paths), os.cpu_count() or 1)
    # A forked process would inherit threads of libraries in an unknown state.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        return [part for parts in pool.map(_parts, paths) for part in parts]


def _parts(path: Path) -> list[_Read]:
    return [_one(trace) for trace in read_traces(path)]


def _one(trace: Trace) -> _Read:
    events = trace.events
    steps, engine = find_steps(events)
    talks = np.array([kind == "communication" for kind in class_kinds()])
    devices = []
    works = device_work(events)
    for work in works:
        model = trace.devices.get(work.device) if isinstance(work.device, int) else None
        of = steps_of_work(events, work, steps)
        communication = talks[work.classes].astype(np.int64)
        of_steps = step_figures(events, work, steps, of, communication)
        devices.append(
            DeviceReport(
                device_figures(events, work, model),
                phase_figures(events, work, of_steps, of, communication),
                of_steps,
                int(work.exposed[of == NO_STEP].sum()),
                int((work.calls < 0).sum()) if steps else 0,
            )
        )
    facts = FileFacts(
        path=writable(str(trace.path)),
        format=trace.format,
        rank=trace.rank,
        world_size=trace.world_size,
        host=trace.host,
        base_ns=trace.base_ns,
        events=len(events),
        bytes_read=trace.bytes_read,
        skipped=dict(trace.skipped),
        lost=trace.lost,
    )
    host = None if devices else host_figures(events, steps)
    report = FileReport(facts, engine, steps, devices, runtime_calls(events), host)
    spans = class_spans(events, works)
    return _Read(
        report, spans, source_of(trace), rank_collectives(events, trace.base_ns or 0, steps)
    )
