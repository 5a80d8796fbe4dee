"""A copy of the workflow in a folder of its own, so that measuring touches no campaign of ours."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("Snakefile", "workflow", "profiles", "config", "src")
PAUSE_S = 0.02


@dataclass(frozen=True)
class Call:
    """What one call of a program cost."""

    wall_s: float
    cpu_s: float
    max_rss_mb: float
    """Peak resident memory of the called process itself, from the kernel's count at its exit."""
    started: float
    """Epoch seconds."""
    text: str
    peaks_mb: dict[str, float]
    """Peak resident memory of the children that were seen, by their program; MB of 10^6 bytes."""


def workflow_copy(folder: Path) -> Path:
    """Copy the workflow into `folder` and return it."""
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which neither state nor leases are shared with other folders."""
    state = folder.parent / f"{folder.name}-state"
    kept = {
        name: value
        for name, value in os.environ.items()
        # without byte code every call compiles hundreds of modules, which no user's call does
        if not name.startswith("SNAKEMAKE") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {
        **kept,
        "PYTHONPATH": str(folder / "src"),
        "XDG_STATE_HOME": str(state),
        "XDG_CACHE_HOME": str(state / "cache"),
        "SERVEMAP_LEASE_DIR": str(state / "lease"),
    }


def free_port() -> int:
    """Return a TCP port that nothing listens on."""
    with socket.socket() as handle:
        handle.bind(("127.0.0.1", 0))
        return int(handle.getsockname()[1])


def snakemake(folder: Path, *args: str, watch_children: bool = False) -> Call:
    """Call Snakemake in `folder` and measure it from outside.

    Raises:
        RuntimeError: Snakemake ended with another code than 0; the end of its output is named.
    """
    log = folder.parent / f"{folder.name}.out"
    peaks: dict[str, float] = {}
    started = time.time()
    begun = time.monotonic()
    with log.open("w") as handle:
        process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", "--cores", "2", *args],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
        )
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, ended, peaks))
        if watch_children:
            watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        if watch_children:
            watcher.join()
    text = log.read_text()
    if process.returncode:
        raise RuntimeError(f"snakemake {' '.join(args)} ended with {status}: {text[-2000:]}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Call(wall_s, cpu_s, usage.ru_maxrss * 1024 / 1e6, started, text, peaks)


def _watch(root: int, ended: threading.Event, peaks: dict[str, float]) -> None:
    while not ended.wait(PAUSE_S):
        for pid in _descendants(root):
            name, peak = _peak(pid)
            if peak is not None:
                peaks[name] = max(peaks.get(name, 0.0), peak)


def _descendants(root: int) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                waiting += [int(word) for word in task.read_text().split()]
            except OSError:
                continue
    return found[1:]


def _peak(pid: int) -> tuple[str, float | None]:
    """Return what a process runs, and its VmHWM in MB; None where it is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "", None
    return program(words), high_water_mb(status)


def program(words: list[bytes]) -> str:
    """Return a short name of a command line: the module or script that Python runs, else argv[0].

    Snakemake writes a rule's script to a temporary file `tmpXXXX.NAME.py`; that is `script NAME`.
    """
    texts = [word.decode(errors="replace") for word in words if word]
    if not texts:
        return ""
    if "-m" in texts[:-1]:
        start = texts.index("-m") + 1
        return " ".join(texts[start : start + 2])
    for text in texts[1:]:
        if text.endswith((".py", ".pyz")):
            name = Path(text).name
            is_script = name.startswith("tmp") and name.count(".") == 2
            return f"script {name.split('.')[1]}" if is_script else name
    return Path(texts[0]).name


def high_water_mb(status: str) -> float | None:
    """Return VmHWM of a /proc/PID/status in MB (10^6 bytes); None where there is none."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return None
