"""Programs that stand for nccl-tests, mpirun and copies between cards, and replay recorded output.

Each says of itself that it is simulated, so that whatever is measured with it says so too.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

OPERATIONS = {
    "all_reduce_perf": "nccl_tests/016_interleaved_info_2xA100_pcie.log",
    "alltoall_perf": "nccl_tests/002_sb_alltoall_8xA100_no_redop.log",
    "reduce_scatter_perf": "nccl_tests/004_sb_reducescatter_old.log",
}
TWO_NODES = "nccl_tests/019_efa_16gpu_2node_prefixed_full.log"

# A row takes the recorded time of both halves as often as it is asked to run, times the pace.
_PERF = """#!{python}
# servemap: simulated
import re, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
turns = int(options["-n"]) + int(options["-w"])
tag = r"^(?:\\S+<stdout>:|\\d+: )?"
row = re.compile(tag + r"\\s*\\d+\\s+\\d+\\s+[a-z]\\w+\\s.*?(\\d+\\.?\\d*)\\s+\\d")
for line in open({recorded!r}):
    if {pace!r} and (found := row.match(line)):
        time.sleep(2 * turns * float(found[1]) * 1e-6 * {pace!r})
    print(line, end="", flush=True)
sys.exit({code!r})
"""

_MPIRUN = """#!{python}
# servemap: simulated
import os, sys
words = sys.argv[1:]
while words and words[0].startswith("-"):
    del words[:1 if words[0] in ("--allow-run-as-root", "--tag-output") else 2]
os.execvp(words[0], words)
"""

_PRINT = """#!{python}
# servemap: simulated
print(open({recorded!r}).read(), end="", flush=True)
"""


def _program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def perf(folder: Path, program: str, recorded: Path, *, pace: float = 1.0, code: int = 0) -> None:
    """Put a program of nccl-tests into a folder that replays a recorded run of it.

    Args:
        folder: where.
        program: such as `all_reduce_perf`.
        recorded: what it prints.
        pace: 1 for the pace of the recording, 0 for none.
        code: its exit status.
    """
    text = _PERF.format(python=sys.executable, recorded=str(recorded), pace=pace, code=code)
    _program(folder, program, text)


def mpirun(folder: Path) -> None:
    """Put an `mpirun` into a folder that runs the program once, on this machine."""
    _program(folder, "mpirun", _MPIRUN.format(python=sys.executable))


def nccl_tests(
    folder: Path, corpus: Path, programs: Iterable[str] = OPERATIONS, *, pace: float = 1.0
) -> None:
    """Put programs of nccl-tests and mpirun into a folder."""
    for program in programs:
        perf(folder, program, corpus / OPERATIONS[program], pace=pace)
    mpirun(folder)


def copies(folder: Path, program: str, recorded: Path) -> None:
    """Put `nvbandwidth` or `p2pBandwidthLatencyTest` into a folder."""
    _program(folder, program, _PRINT.format(python=sys.executable, recorded=str(recorded)))
