"""Measure the project's own speed, print it, record it, and fail where a limit is broken.

`python -m benchmarks` measures all; `python -m benchmarks dryrun`, `demo`, `ssh`, `lab`, `trace`,
`client`, `metrics`, `align`, `parsers`, `raw` or `watching` one part. Without the corpus of
recorded output (`SERVEMAP_CORPUS`) `trace` and `parsers` are left out, without a C compiler or on
one core `client`, without vLLM `watching`.
"""

import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import (
    align,
    client,
    demo,
    dryrun,
    lab,
    metrics,
    parsers,
    raw,
    ssh,
    trace,
    watching,
)  # fmt: skip

RESULTS = Path(__file__).parent / "results"
PARTS = {
    "dryrun": dryrun.measure,
    "demo": demo.measure,
    "ssh": ssh.measure,
    "lab": lab.measure,
    "trace": trace.measure,
    "client": client.measure,
    "metrics": metrics.measure,
    "align": align.measure,
    "parsers": parsers.measure,
    "raw": raw.measure,
    "watching": watching.measure,
}
# Parts that need what not every machine has.
CAN_MEASURE = {
    "trace": trace.can_measure,
    "parsers": parsers.can_measure,
    "client": client.can_measure,
    "watching": watching.can_measure,
}

BROKEN = {
    "ssh": ssh.broken,
    "lab": lab.broken,
    "trace": trace.broken,
    "client": client.broken,
    "metrics": metrics.broken,
    "align": align.broken,
    "parsers": parsers.broken,
    "raw": raw.broken,
    "watching": watching.broken,
}


def broken(part: str, figures: dict[str, Any], cores: int) -> tuple[list[str], list[str]]:
    """Return the limits that the figures break, and the remarks on what cannot be judged."""
    failures, remarks = [], []
    if part == "dryrun":
        ratio = figures["ratio_min"]["bare_same_jobs"]
        if ratio > dryrun.LIMIT:
            failures.append(f"dry run: {ratio} times a bare Snakefile, limit {dryrun.LIMIT}")
        return failures, remarks
    if part in BROKEN:
        found = BROKEN[part](figures)
        # all machines share the cores of one with whatever else runs
        if max(figures["load_average"]) > cores:
            return failures, [f"{text}; not judged, load average is high" for text in found]
        return found, remarks
    for name in ("snakemake_peak_mb", "largest_child_peak_mb"):
        if figures[name] >= demo.MEMORY_LIMIT_MB:
            failures.append(f"{name}: {figures[name]} MB, limit {demo.MEMORY_LIMIT_MB}")
    overhead = figures["overhead_per_case_s"]
    # the demo itself keeps one to two cores busy: more than that is somebody else's load
    if overhead > demo.OVERHEAD_LIMIT_S:
        text = f"overhead: {overhead} s a case, limit {demo.OVERHEAD_LIMIT_S}"
        if max(figures["load_average"]) > cores:
            remarks.append(f"{text}; not judged, load average {figures['load_average']}")
        else:
            failures.append(text)
    return failures, remarks


def main(names: list[str]) -> int:
    """Measure the named parts; return 1 where a limit is broken."""
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        print(f"there is no part {unknown[0]!r}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    cores = os.cpu_count() or 1
    failed = False
    for name in names or [name for name in PARTS if name not in CAN_MEASURE or CAN_MEASURE[name]()]:
        with tempfile.TemporaryDirectory(prefix="servemap-bench-") as folder:
            figures = PARTS[name](Path(folder))
        machine = {"cores": cores, "python": platform.python_version(), "arch": platform.machine()}
        failures, remarks = broken(name, figures, cores)
        text = json.dumps({"part": name, "machine": machine, **figures}, indent=1)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(text + "\n")
        print(text)
        for remark in remarks:
            print(f"remark: {remark}")
        for failure in failures:
            print(f"LIMIT BROKEN: {failure}")
        failed = failed or bool(failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
