"""The agent's `proc` collector: CPU, memory, network and the server's process tree.

Counters (jiffies, bytes, context switches) become rates over the monotonic clock; fields as
in proc_stat(5), proc_meminfo(5), proc_net_dev(5) and proc_pid_stat(5).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.parsers.counters import delta, interval_s
from servemap.parsers.grown import Counters, Stamps, Steps, steps
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.records import Sample, Skipped
from servemap.parsers.series import Floats, Ints, Parsed, Series, series_of
from servemap.parsers.values import integer, mapping, moment, number, sequence, text

CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
# "The value in this field may decrease in certain conditions":
# https://man7.org/linux/man-pages/man5/proc_stat.5.html
_MAY_FALL = (CPU_FIELDS.index("iowait"),)
NET_FIELDS = (
    ("net_rx", "bytes_per_s"),
    ("net_rx_packets", "per_s"),
    ("net_rx_errors", "per_s"),
    ("net_rx_dropped", "per_s"),
    ("net_tx", "bytes_per_s"),
    ("net_tx_packets", "per_s"),
    ("net_tx_errors", "per_s"),
    ("net_tx_dropped", "per_s"),
)
SERVER = "server"
ALL_CORES = "cpu_all"


class _Process(NamedTuple):
    cpu_ticks: float
    rss_bytes: float
    threads: float
    switches: tuple[float, float] | None


class _Snapshot(NamedTuple):
    t_ns: int
    mono_ns: int
    hz: float
    processes: dict[tuple[int, int], _Process]
    context_switches: float | None

    @property
    def has_switches(self) -> bool:
        """Whether the sampler read the processes' context switches this time.

        It reads them less often than the rest where a tree has many threads.
        """
        return any(process.switches is not None for process in self.processes.values())


def parse_proc(lines: Iterable[JsonLine], interval: float) -> Parsed:
    """Return samples from `proc` lines that were taken every `interval` seconds.

    Entities: `cpu_all`, `cpu0`.., `memory`, `system`, one per interface, `pid:N`, and `server`
    (the whole process tree). A process is known by pid and start time, so a reused pid begins
    anew. `server` rates cover the processes that lived through the whole interval.
    """
    times: list[int] = []
    skipped: list[Skipped] = []
    stamps = Stamps()
    cpu, net = Counters(len(CPU_FIELDS)), Counters(len(NET_FIELDS))

    def samples() -> Iterator[Sample]:
        base: _Snapshot | None = None
        switches: _Snapshot | None = None
        for line in lines:
            snapshot = _snapshot(line.value)
            if snapshot is None:
                skipped.append(Skipped(line.line, "no t_ns or mono_ns"))
                continue
            times.append(snapshot.t_ns)
            stamps.add(snapshot.t_ns, snapshot.mono_ns)
            cpu.add(mapping(line.value.get("cpu")))
            net.add(mapping(line.value.get("net")))
            yield from _gauges(snapshot, line.value)
            if base is None or snapshot.mono_ns < base.mono_ns:
                base = snapshot
                switches = snapshot if snapshot.has_switches else None
                continue
            if snapshot.has_switches:
                if switches is not None:
                    yield from _switch_rates(switches, snapshot, interval)
                switches = snapshot
            seconds = interval_s(base.mono_ns, snapshot.mono_ns, interval / 4)
            if seconds is None:
                continue
            yield from _rates(base, snapshot, seconds)
            base = snapshot

    series = series_of(samples())
    t_ns, mono_ns = stamps.arrays()
    if t_ns.size:
        moves = _Moves(t_ns, steps(mono_ns, interval / 4))
        series += [*_cpu_series(cpu, moves), *_net_series(net, moves)]
    return Parsed(series, times, skipped)


class _Moves:
    """What counters did from each snapshot to the next one that counts."""

    def __init__(self, t_ns: Ints, found: Steps) -> None:
        self._found = found
        self._t_ns, self._from_ns = t_ns[found.after], t_ns[found.before]

    def of(self, values: Floats, may_fall: Sequence[int] = ()) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the differences of shape (steps, width), and which steps have them.

        A step has none where one of its rows is missing or a counter ran backwards; of those that
        `may_fall` the difference is then 0.
        """
        moved = values[self._found.after] - values[self._found.before]
        for place in may_fall:
            moved[:, place] = np.maximum(moved[:, place], 0.0)
        return moved, np.logical_and.reduce(moved >= 0, axis=1)

    @property
    def seconds(self) -> Floats:
        """The length of each step."""
        return self._found.length_ns / 1e9

    def series(
        self, entity: str, known: NDArray[np.bool_], metrics: Iterable[tuple[str, str, Floats]]
    ) -> Iterator[Series]:
        """Yield a series for each metric, unit and values of the steps that are known."""
        if not known.any():
            return
        t_ns, from_ns = self._t_ns, self._from_ns
        if not known.all():
            t_ns, from_ns = t_ns[known], from_ns[known]
        for metric, unit, values in metrics:
            yield Series(entity, metric, unit, t_ns, from_ns, values)


def _cpu_series(cpu: Counters, moves: _Moves) -> Iterator[Series]:
    whole: Floats | None = None
    lost: Any = False
    for core, values in cpu.tables():
        ticks, known = moves.of(values, _MAY_FALL)
        lost |= ~known & ~np.isnan(ticks).any(axis=1)
        known &= ticks.sum(axis=1) > 0
        ticks[~known] = 0.0
        whole = ticks if whole is None else whole + ticks
        yield from moves.series(core, known, _cpu_shares(ticks[known]))
    if whole is not None:
        # All cores without one whose counters ran backwards would be busier than they were.
        known = (whole.sum(axis=1) > 0) & ~lost
        yield from moves.series(ALL_CORES, known, _cpu_shares(whole[known]))


def _cpu_shares(ticks: Floats) -> Iterator[tuple[str, str, Floats]]:
    """Yield the metrics of ticks of shape (steps, fields), of which each step has some."""
    share = dict(zip(CPU_FIELDS, (100.0 * ticks / ticks.sum(axis=1)[:, None]).T, strict=True))
    yield "cpu_util", "percent", 100.0 - share["idle"] - share["iowait"]
    yield "cpu_system", "percent", share["system"] + share["irq"] + share["softirq"]
    # Copies: what is a part of all shares would keep them all.
    yield "cpu_iowait", "percent", share["iowait"].copy()
    yield "cpu_steal", "percent", share["steal"].copy()


def _net_series(net: Counters, moves: _Moves) -> Iterator[Series]:
    for interface, values in net.tables():
        moved, known = moves.of(values)
        rates = (moved[known] / moves.seconds[known, None]).T
        metrics = ((*what, rate.copy()) for what, rate in zip(NET_FIELDS, rates, strict=True))
        yield from moves.series(interface, known, metrics)


def _snapshot(record: dict[str, Any]) -> _Snapshot | None:
    t_ns, mono_ns = moment(record.get("t_ns")), moment(record.get("mono_ns"))
    if t_ns is None or mono_ns is None:
        return None
    page = number(record.get("page")) or 4096.0
    processes: dict[tuple[int, int], _Process] = {}
    for item in sequence(record.get("procs")):
        fields = mapping(item)
        pid, start = integer(fields.get("pid")), integer(fields.get("start"))
        values = [number(fields.get(name)) for name in ("utime", "stime", "rss_pages", "threads")]
        known = [value for value in values if value is not None]
        if pid is None or start is None or len(known) != len(values):
            continue
        utime, stime, rss, threads = known
        voluntary, involuntary = number(fields.get("vcsw")), number(fields.get("ivcsw"))
        switches = None if voluntary is None or involuntary is None else (voluntary, involuntary)
        processes[(pid, start)] = _Process(utime + stime, rss * page, threads, switches)
    return _Snapshot(
        t_ns,
        mono_ns,
        number(record.get("hz")) or 100.0,
        processes,
        number(record.get("ctxt")),
    )


def _gauges(snapshot: _Snapshot, record: dict[str, Any]) -> Iterator[Sample]:
    t_ns = snapshot.t_ns
    memory = {name: number(value) for name, value in mapping(record.get("mem")).items()}
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    swap_total, swap_free = memory.get("SwapTotal"), memory.get("SwapFree")
    if total is not None and available is not None:
        yield Sample(t_ns, None, "memory", "mem_used", "bytes", (total - available) * 1024)
    if available is not None:
        yield Sample(t_ns, None, "memory", "mem_available", "bytes", available * 1024)
    if swap_total is not None and swap_free is not None:
        yield Sample(t_ns, None, "memory", "swap_used", "bytes", (swap_total - swap_free) * 1024)
    load = sequence(record.get("load"))
    if load and (load1 := number(load[0])) is not None:
        yield Sample(t_ns, None, "system", "load1", "processes", load1)
    for (pid, _), process in snapshot.processes.items():
        entity = f"pid:{pid}"
        yield Sample(t_ns, None, entity, "proc_rss", "bytes", process.rss_bytes)
        yield Sample(t_ns, None, entity, "proc_threads", "threads", process.threads)
    if snapshot.processes:
        rss = sum(process.rss_bytes for process in snapshot.processes.values())
        threads = sum(process.threads for process in snapshot.processes.values())
        count = float(len(snapshot.processes))
        yield Sample(t_ns, None, SERVER, "proc_rss", "bytes", rss)
        yield Sample(t_ns, None, SERVER, "proc_threads", "threads", threads)
        yield Sample(t_ns, None, SERVER, "proc_count", "processes", count)


def _rates(before: _Snapshot, after: _Snapshot, seconds: float) -> Iterator[Sample]:
    yield from _process_rates(before, after, seconds)
    if before.context_switches is not None and after.context_switches is not None:
        switched = delta([before.context_switches], [after.context_switches])
        if switched is not None:
            value = switched[0] / seconds
            yield Sample(after.t_ns, before.t_ns, "system", "context_switches", "per_s", value)


def _process_rates(before: _Snapshot, after: _Snapshot, seconds: float) -> Iterator[Sample]:
    moved = {
        identity: delta([before.processes[identity].cpu_ticks], [process.cpu_ticks])
        for identity, process in after.processes.items()
        if identity in before.processes
    }
    yield from _tree_rates(
        before, after, moved, [("proc_cpu", "percent_of_core", 100.0 / after.hz)], seconds
    )


def _switch_rates(before: _Snapshot, after: _Snapshot, interval: float) -> Iterator[Sample]:
    """Rates of context switches between the last two samples in which they were read."""
    seconds = interval_s(before.mono_ns, after.mono_ns, interval / 4)
    if seconds is None:
        return
    moved = {
        identity: delta(list(earlier.switches), list(process.switches))
        for identity, process in after.processes.items()
        if (earlier := before.processes.get(identity)) is not None
        and earlier.switches is not None
        and process.switches is not None
    }
    metrics = [
        ("proc_voluntary_switches", "per_s", 1.0),
        ("proc_involuntary_switches", "per_s", 1.0),
    ]
    yield from _tree_rates(before, after, moved, metrics, seconds)


def _tree_rates(
    before: _Snapshot,
    after: _Snapshot,
    moved: dict[tuple[int, int], list[float] | None],
    metrics: list[tuple[str, str, float]],
    seconds: float,
) -> Iterator[Sample]:
    """Yield each process' rates and their sum over the server's tree."""
    totals: list[float] | None = None
    for (pid, _), counts in moved.items():
        if counts is None:
            continue
        totals = counts if totals is None else [a + b for a, b in zip(totals, counts, strict=True)]
        for (metric, unit, scale), value in zip(metrics, counts, strict=True):
            yield Sample(
                after.t_ns, before.t_ns, f"pid:{pid}", metric, unit, value * scale / seconds
            )
    if totals is not None:
        for (metric, unit, scale), value in zip(metrics, totals, strict=True):
            yield Sample(after.t_ns, before.t_ns, SERVER, metric, unit, value * scale / seconds)


def process_names(line: JsonLine) -> dict[str, str]:
    """Return the command name of every `pid:N` entity of a snapshot."""
    names: dict[str, str] = {}
    for item in sequence(line.value.get("procs")):
        fields = mapping(item)
        pid, comm = integer(fields.get("pid")), text(fields.get("comm"))
        if pid is not None and comm is not None:
            names[f"pid:{pid}"] = comm
    return names
