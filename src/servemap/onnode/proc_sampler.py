"""Samples of /proc: CPU per core, memory, network interfaces and one process tree.

Built to be cheap enough to run beside a measurement: files stay open, and per-process files are
read for the tree only. The tree is walked again only when the kernel has forked something since.
Formats: proc(5).
"""

import os
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .clock import epoch_ns
from .ident import Stat, all_stats, descendants, parse_stat

MEMORY_KEYS = (
    "MemTotal",
    "MemAvailable",
    "MemFree",
    "Buffers",
    "Cached",
    "SwapTotal",
    "SwapFree",
)
# Walking a tree costs more than sampling it; a process that lives shorter may be missed.
RESCAN_S = 1.0
# The kernel counts context switches per thread, and reading those costs more than all the rest
# (about 14 us a thread). They are read as often as this share of one core allows, and are null in
# the samples between; nor are they read for a tree of more threads than this many open files.
SWITCHES_SHARE = 0.003
MAX_THREAD_FILES = 512


def parse_cpu(text: str) -> Tuple[Dict[str, List[int]], Dict[str, int]]:
    """Parse /proc/stat into ({"cpu0": [user .. steal]}, {"ctxt": n, "processes": n})."""
    cores: Dict[str, List[int]] = {}
    totals: Dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("cpu") and line[3:4].isdigit():
            fields = line.split()
            cores[fields[0]] = [int(field) for field in fields[1:9]]
        elif line.startswith(("ctxt ", "processes ")):
            name, value = line.split()[:2]
            totals[name] = int(value)
    return cores, totals


def parse_meminfo(text: str) -> Dict[str, int]:
    """Parse /proc/meminfo into kB of the kept keys; a key that the kernel lacks is absent."""
    found: Dict[str, int] = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        if name in MEMORY_KEYS:
            found[name] = int(rest.split()[0])
    return found


def parse_net_dev(text: str) -> Dict[str, List[int]]:
    """Parse /proc/net/dev into {"eth0": [bytes, packets, errs, drop of rx, then of tx]}."""
    found: Dict[str, List[int]] = {}
    for line in text.splitlines():
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        if colon and len(fields) >= 12:
            found[name.strip()] = [int(field) for field in fields[0:4] + fields[8:12]]
    return found


def parse_switches(text: str) -> Tuple[int, int]:
    """Parse a task's status into (voluntary, involuntary) context switches. ValueError if none."""
    values = {}
    for line in text.splitlines():
        name, _colon, rest = line.partition(":")
        if name.endswith("_ctxt_switches"):
            values[name] = int(rest)
    if len(values) != 2:
        raise ValueError("no context switches in the status of a task")
    return values["voluntary_ctxt_switches"], values["nonvoluntary_ctxt_switches"]


class OpenFile:
    """A /proc file that stays open and is read again from its start."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._size = 8192

    def read(self) -> str:
        """Return the whole text; OSError (ESRCH) when the process behind it is gone."""
        while True:
            data = os.pread(self._fd, self._size, 0)
            if len(data) < self._size:
                return data.decode("utf-8", "replace")
            self._size *= 2

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class Process:
    """The open files of one process of the tree."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._stat = OpenFile("/proc/%d/stat" % pid)
        self.tasks: Dict[str, OpenFile] = {}

    def stat(self) -> Optional[Stat]:
        """Return the current stat, or None once the process has ended (zombies count as ended)."""
        try:
            stat = parse_stat(self._stat.read())
        except (OSError, ValueError):
            return None
        return None if stat.state in "ZX" else stat

    def switches(self, threads: int, may_open: int) -> Optional[Tuple[int, int]]:
        """Return the switches summed over the threads that live now.

        The counts of a thread that ended leave the sum, so it can fall. None where the threads
        are more than `may_open`, or cannot be read.
        """
        total = self._sum_tasks()
        if total is None or len(self.tasks) != threads:
            if not self._open_tasks(may_open):
                return None
            total = self._sum_tasks()
        return total

    def _sum_tasks(self) -> Optional[Tuple[int, int]]:
        voluntary = involuntary = 0
        for task in self.tasks.values():
            try:
                counts = parse_switches(task.read())
            except (OSError, ValueError):
                return None
            voluntary += counts[0]
            involuntary += counts[1]
        return voluntary, involuntary

    def _open_tasks(self, may_open: int) -> bool:
        folder = "/proc/%d/task" % self.pid
        try:
            present = set(os.listdir(folder))
        except OSError:
            return False
        for name in list(self.tasks):
            if name not in present:
                self.tasks.pop(name).close()
        if len(present) > may_open:
            return False
        for name in present - set(self.tasks):
            try:
                self.tasks[name] = OpenFile("%s/%s/status" % (folder, name))
            except OSError:
                continue
        return True

    def close(self) -> None:
        """Close all files."""
        self._stat.close()
        for task in self.tasks.values():
            task.close()


def children_of(pid: int) -> List[int]:
    """Return the children of a process from task/*/children; FileNotFoundError without that file.

    The file is part of kernels with CONFIG_PROC_CHILDREN; [] when the process is gone.
    """
    folder = "/proc/%d/task" % pid
    try:
        tasks = os.listdir(folder)
    except OSError:
        return []
    found: List[int] = []
    for task in tasks:
        try:
            with open("%s/%s/children" % (folder, task), "rb") as handle:
                found.extend(int(field) for field in handle.read().split())
        except FileNotFoundError:
            if os.path.exists("%s/%s" % (folder, task)):
                raise
        except OSError:
            continue
    return found


def tree(roots: Iterable[int]) -> List[int]:
    """Return the pids of `roots` and of everything below them."""
    pending = list(roots)
    found: List[int] = []
    try:
        while pending:
            pid = pending.pop(0)
            if pid not in found:
                found.append(pid)
                pending.extend(children_of(pid))
        return found
    except FileNotFoundError:
        stats = all_stats()
        below = [stat.pid for pid in roots for stat in descendants(pid, stats)]
        return list(dict.fromkeys([*roots, *below]))


class ProcSampler:
    """Takes one sample per call of `sample`; `close` releases the files."""

    def __init__(self, root_pids: List[int]) -> None:
        self._roots = root_pids
        self._files = {
            name: OpenFile("/proc/" + name) for name in ("stat", "meminfo", "net/dev", "loadavg")
        }
        self._processes: Dict[int, Process] = {}
        self._forks: Optional[int] = None
        self._scanned_s = 0.0
        self._switches_due_s = 0.0
        self._hz = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")

    def sample(self) -> Dict[str, Any]:
        """Return the state of now: ticks of `hz`, kB of memory, bytes, pages of `page` bytes.

        Counters are as the kernel gives them, since boot or the start of a process. A process
        stays in the sample until it ends, also when its parent in the tree has ended.
        """
        t_ns, mono_ns = epoch_ns(), time.monotonic_ns()
        cores, totals = parse_cpu(self._files["stat"].read())
        self._rescan(totals["processes"])
        return {
            "t_ns": t_ns,
            "mono_ns": mono_ns,
            "hz": self._hz,
            "page": self._page,
            "cpu": cores,
            "mem": parse_meminfo(self._files["meminfo"].read()),
            "net": parse_net_dev(self._files["net/dev"].read()),
            "procs": self._sample_processes(),
            "ctxt": totals["ctxt"],
            "load": [float(field) for field in self._files["loadavg"].read().split()[:3]],
        }

    def close(self) -> None:
        """Close all files."""
        for opened in self._files.values():
            opened.close()
        for process in self._processes.values():
            process.close()

    def _rescan(self, forks: int) -> None:
        now_s = time.monotonic()
        if forks == self._forks or (self._forks is not None and now_s - self._scanned_s < RESCAN_S):
            return
        self._forks, self._scanned_s = forks, now_s
        for pid in tree([*self._roots, *self._processes]):
            if pid not in self._processes:
                try:
                    self._processes[pid] = Process(pid)
                except OSError:
                    continue

    def _sample_processes(self) -> List[Dict[str, Any]]:
        stats = {pid: process.stat() for pid, process in self._processes.items()}
        switches = self._sample_switches(stats)
        rows = []
        for pid, stat in stats.items():
            if stat is None:
                self._processes.pop(pid).close()
                continue
            voluntary, involuntary = switches.get(pid) or (None, None)
            rows.append(
                {
                    "pid": stat.pid,
                    "ppid": stat.ppid,
                    "comm": stat.comm,
                    "start": stat.start,
                    "utime": stat.utime,
                    "stime": stat.stime,
                    "threads": stat.threads,
                    "rss_pages": stat.rss_pages,
                    "vcsw": voluntary,
                    "ivcsw": involuntary,
                }
            )
        return rows

    def _sample_switches(
        self, stats: Dict[int, Optional[Stat]]
    ) -> Dict[int, Optional[Tuple[int, int]]]:
        started_s = time.monotonic()
        if started_s < self._switches_due_s:
            return {}
        used_s = time.thread_time()
        found = {}
        for pid, stat in stats.items():
            if stat is not None:
                others = sum(len(one.tasks) for one in self._processes.values() if one.pid != pid)
                process = self._processes[pid]
                found[pid] = process.switches(stat.threads, MAX_THREAD_FILES - others)
        self._switches_due_s = started_s + (time.thread_time() - used_s) / SWITCHES_SHARE
        return found
