"""What it takes from raw telemetry files to the tables' figures: time and memory.

2 nodes with 8 cards of 31 metrics each (`nvidia_smi`, `dcgm`, `nvidia_pmon`) and 200 host series
(`proc`), a sample a second, as the agent writes them; made up, with values that seldom repeat.
`python -m benchmarks raw` takes an hour of it, `python -m benchmarks.raw HOURS FOLDER` any time.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.trace import cost, least
from servemap.analysis.parts import WHOLE, Parts
from servemap.analysis.series_figures import series_figures
from servemap.analysis.telemetry import read_telemetry
from servemap.analysis.telemetry_store import write_telemetry
from servemap.telemetry.align import Segment

HOURS = 1.0
CARDS = 8
CORES = 40
INTERFACES = 4
T0 = 1_790_000_000_000_000_000
S = 1_000_000_000
TURNS = 2
MEMORY_LIMIT_MB = 2000.0

SMI_NAMES = (
    "index, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], "
    "power.draw [W], power.limit [W], temperature.gpu, temperature.memory, "
    "clocks.current.sm [MHz], clocks.current.memory [MHz], pstate, "
    "clocks_event_reasons.sw_power_cap, clocks_event_reasons.hw_slowdown, "
    "clocks_event_reasons.hw_thermal_slowdown, clocks_event_reasons.hw_power_brake_slowdown, "
    "clocks_event_reasons.sw_thermal_slowdown, ecc.errors.corrected.volatile.total, "
    "ecc.errors.uncorrected.volatile.total"
)
PMON_NAMES = (
    "# gpu         pid   type     sm    mem    fb   ccpm    command",
    "# Idx           #    C/G      %      %    MB     MB    name",
)
DCGM_NAMES = (
    "#Entity   GRACT  SMACT  SMOCC  TENSO  DRAMA  PCITX       PCIRX       NVLTX       NVLRX",
    "ID",
)


def smi(second: int, draw: random.Random) -> Iterator[str]:
    """Yield what nvidia-smi prints in a second."""
    if not second:
        yield SMI_NAMES
    for card in range(CARDS):
        power = draw.uniform(90, 700)
        held = "Active" if power > 690 else "Not Active"
        yield (
            f"{card}, {draw.randrange(101)} %, {draw.randrange(60)} %, "
            f"{draw.randrange(20_000, 140_000)} MiB, 143771 MiB, {power:.2f} W, 700.00 W, "
            f"{draw.randrange(30, 80)}, {draw.randrange(30, 90)}, {draw.randrange(400, 1980)} MHz, "
            f"3201 MHz, P0, {held}, Not Active, Not Active, Not Active, Not Active, "
            f"{second // 9}, 0"
        )


def dcgm(second: int, draw: random.Random) -> Iterator[str]:
    """Yield what dcgmi dmon prints in a second, its headings every twenty rows of a card."""
    if not second % 20:
        yield from DCGM_NAMES
    for card in range(CARDS):
        shares = "  ".join(f"{draw.random():.3f}" for _ in range(5))
        rates = "  ".join(str(draw.randrange(10**10)) for _ in range(4))
        yield f"GPU {card}     {shares}  {rates}"


def pmon(second: int, draw: random.Random) -> Iterator[str]:
    """Yield what nvidia-smi pmon prints in a second."""
    if not second % 20:
        yield from PMON_NAMES
    for card in range(CARDS):
        yield (
            f"    {card}    {4700 + card}     C    {draw.randrange(100):3d}    "
            f"{draw.randrange(100):3d}  {draw.randrange(140_000):6d}      0    python3"
        )


def proc(second: int, draw: random.Random) -> dict[str, Any]:
    """Return what the agent keeps of /proc in a second; counters grow by what was drawn."""
    grown = [second * 100 + draw.randrange(50) for _ in range(8)]
    moved = [second * 10**8 + draw.randrange(10**7) for _ in range(8)]
    process = {"pid": 4700, "ppid": 1, "comm": "python3", "start": 9, "utime": grown[0]}
    rest = {"stime": grown[1], "threads": 200, "rss_pages": draw.randrange(10**6)}
    return {
        "hz": 100,
        "page": 4096,
        "cpu": {f"cpu{core}": [core + one for one in grown] for core in range(CORES)},
        "mem": {"MemTotal": 10**9, "MemAvailable": draw.randrange(10**9)},
        "net": {f"eth{port}": moved for port in range(INTERFACES)},
        "procs": [{**process, **rest, "vcsw": None, "ivcsw": None}],
        "ctxt": second * 1000,
        "load": [1.5, 1, 1],
    }


def write(folder: Path, hours: float) -> None:
    """Write the raw files of both nodes."""
    for node in range(2):
        own = folder / f"n{node}"
        own.mkdir(parents=True)
        draw = random.Random(node)
        for name, printed in (("nvidia_smi", smi), ("dcgm", dcgm), ("nvidia_pmon", pmon)):
            with (own / f"{name}.jsonl").open("w") as out:
                for second in range(round(hours * 3600)):
                    for place, line in enumerate(printed(second, draw)):
                        now = second * S + place * 1_000_000
                        stamps = f'{{"t_ns":{T0 + now},"mono_ns":{7 * S + now},"line":'
                        out.write(f"{stamps}{json.dumps(line)}}}\n")
        with (own / "proc.jsonl").open("w") as out:
            for second in range(round(hours * 3600)):
                stamps = {"t_ns": T0 + second * S, "mono_ns": (7 + second) * S}
                record = {**stamps, **proc(second, draw)}
                out.write(json.dumps(record, separators=(",", ":")) + "\n")


def work(folder: Path) -> dict[str, float]:
    """Read, align, cut and write one segment of it all; return the seconds of each part."""
    newest = max(folder.glob("*/proc.jsonl")).read_bytes()[-8192:].splitlines()[-1]
    segment = Segment("main", T0, json.loads(newest)["t_ns"] + S)
    names = ("nvidia_smi", "dcgm", "nvidia_pmon", "proc")
    records = {f"n{node}/{name}": {"interval_s": 1.0} for node in range(2) for name in names}
    begun = time.monotonic()
    telemetry = read_telemetry(folder, [segment], records, {})
    read = time.monotonic()
    parts = Parts(segment.start_ns, segment.end_ns, [])
    inside = sum(series_figures(one, parts, WHOLE, 1.0).n for one in telemetry.series)
    figured = time.monotonic()
    write_telemetry(folder / "telemetry.parquet", telemetry.series, 1)
    return {
        "series": len(telemetry.series),
        "samples_inside": inside,
        "read_and_align_s": round(read - begun, 2),
        "figures_s": round(figured - read, 2),
        "write_s": round(time.monotonic() - figured, 2),
    }


def measure(folder: Path) -> dict[str, Any]:
    """Return wall and processor time, peak memory and the parts, by turn."""
    return {"hours": HOURS, **measured(folder, HOURS)}


def measured(folder: Path, hours: float) -> dict[str, Any]:
    """Return the same of so many hours."""
    loads = [round(os.getloadavg()[0], 2)]
    write(folder / "raw", hours)
    size = sum(path.stat().st_size for path in (folder / "raw").glob("*/*.jsonl"))
    argv = [sys.executable, "-m", "benchmarks.raw", "work", str(folder / "raw")]
    turns = []
    path = f"PYTHONPATH={Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"
    for _ in range(TURNS):
        spent = cost(["env", path, *argv], folder)
        turns.append({**spent, **json.loads((folder / "raw" / "parts.json").read_text())})
        loads.append(round(os.getloadavg()[0], 2))
    speed = round(size / 1e6 / least(turns, "read_and_align_s"), 1)
    return {"bytes": size, "read_mb_per_s": speed, "turns": turns, "load_average": loads}


def broken(figures: dict[str, Any]) -> list[str]:
    """Return whether memory breaks its limit; reading has none of its own."""
    peak = least(figures["turns"], "peak_mb")
    over = peak > MEMORY_LIMIT_MB
    return [f"raw: {peak} MB, limit {MEMORY_LIMIT_MB}"] if over else []


if __name__ == "__main__":
    if sys.argv[1] == "work":
        spent = work(Path(sys.argv[2]))
        (Path(sys.argv[2]) / "parts.json").write_text(json.dumps(spent))
    else:
        print(json.dumps(measured(Path(sys.argv[2]), float(sys.argv[1])), indent=1))
