"""Programs that stand for nccl-tests: a made-up table of the sizes that they are given."""

import sys
from pathlib import Path

NAMES = ("all_reduce_perf", "all_gather_perf")

# While the file `hold` lies beside it, a program says its pid in `running` and waits.
_PROGRAM = """#!{python}
# servemap: simulated
import os, pathlib, sys, time
here = pathlib.Path(__file__).resolve().parent
if (here / "hold").exists():
    (here / "running.new").write_text(str(os.getpid()))
    (here / "running.new").rename(here / "running")
while (here / "hold").exists():
    time.sleep(0.02)
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
ranks, size = int(given["-g"]), int(given["-b"])
print("# nThread 1 nGpus %d minBytes %s maxBytes %s step: 2(factor) warmup iters: 1 iters: 2 "
      "agg iters: 1 validation: 1 graph: 0" % (ranks, given["-b"], given["-e"]))
print("# Using devices")
for rank in range(ranks):
    print("#  Rank  %d Group  0 Pid   4001 on     made01 device  %d [0000:0%d:00] Made card"
          % (rank, rank, rank + 1))
print("#       size         count      type   redop    root     time   algbw   busbw  #wrong"
      "     time   algbw   busbw  #wrong ")
gather = "all_gather" in sys.argv[0]
share = (1 if gather else 2) * (ranks - 1) / ranks
redop = "none" if gather else "sum"
while size <= int(given["-e"]):
    half = "%7.1f %7.2f %7.2f       0" % (size / 1e4, 10.0, 10.0 * share)
    print("%12d %12d     float  %6s      -1 %s %s" % (size, size // 4, redop, half, half))
    size *= int(given["-f"])
print("# Out of bounds values : 0 OK")
print("# Avg bus bandwidth    : 10")
"""


def put_programs(folder: Path) -> str:
    """Put the programs into a folder and return it, as `programs` of a baseline."""
    folder.mkdir()
    for name in NAMES:
        path = folder / name
        path.write_text(_PROGRAM.format(python=sys.executable))
        path.chmod(0o755)
    return str(folder)
