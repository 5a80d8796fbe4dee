"""Programs that stand for a vendor's tools and replay recorded output at the pace asked for.

Each says of itself that it is simulated, so that whatever is measured with it says so too.
"""

import sys
from pathlib import Path

_SMI = """#!{python}
# servemap: simulated
import itertools, sys, time
cards = {cards}
lines = open({csv!r}).read().replace(*{names!r}).splitlines()
heading = lines[0].split(", ")
plain = [name.split(" [")[0] for name in heading]
if sys.argv[1] == "-L":
    sys.exit(print("GPU 0: replayed"))
if sys.argv[1] == "pmon":
    rows = open({pmon!r}).read().splitlines()
    pause_s = float(sys.argv[sys.argv.index("-d") + 1])
    print("\\n".join(rows[:2]), flush=True)
    for number in itertools.count():
        at = 2 + number * 3 % (len(rows) - 2)
        print("\\n".join(rows[at:at + 3]), flush=True)
        time.sleep(pause_s)
asked = sys.argv[1].split("=")[1].split(",")
for name in asked:
    if name not in plain or name in {unknown!r}:
        sys.exit(print('Field "%s" is not a valid field to query.' % name) or 2)
at = [plain.index(name) for name in asked]
cells = lines[1].split(", ")
print(", ".join(heading[i] for i in at), flush=True)
while True:
    for card in range(cards):
        row = dict(zip(plain, cells), index=str(card))
        print(", ".join(row[name] for name in asked))
    sys.stdout.flush()
    time.sleep(int(sys.argv[-1]) / 1000)
"""

_DCGMI = """#!{python}
# servemap: simulated
import sys, time
if sys.argv[1] == "discovery":
    sys.exit(print(open({discovery!r}).read()))
rows = open({dmon!r}).read().splitlines()
while True:
    print("\\n".join(rows), flush=True)
    time.sleep(int(sys.argv[-1]) / 1000)
"""

_PRINTED = """#!{python}
# servemap: simulated
import os, sys
if os.environ.get("LC_ALL") != "C":
    sys.exit("the language is %s" % os.environ.get("LC_ALL"))
sys.stdout.write(open({file!r}).read())
"""


def _program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def nvidia_smi(
    folder: Path, corpus: Path, *, cards: int = 8, unknown: str = "", older: bool = False
) -> None:
    """Put `nvidia-smi` into a folder: the one card of a recording, as often as `cards` says.

    `unknown` is a field that it does not know; an `older` one has the older names of reasons.
    """
    text = _SMI.format(
        python=sys.executable,
        cards=cards,
        csv=str(corpus / "nvidia_smi/001_h200_query_all_fields_load.csv"),
        pmon=str(corpus / "nvidia_smi/009_h100_mig_pmon_load.txt"),
        unknown=[unknown],
        names=("clocks_event_", "clocks_throttle_" if older else "clocks_event_"),
    )
    _program(folder, "nvidia-smi", text)


def dcgmi(folder: Path, corpus: Path) -> None:
    """Put `dcgmi` into a folder, whose host engine does not answer `discovery`."""
    text = _DCGMI.format(
        python=sys.executable,
        dmon=str(corpus / "dcgm/011_dmon_units_row_mixed_NA.txt"),
        discovery=str(corpus / "dcgm/012_discovery_no_hostengine.txt"),
    )
    _program(folder, "dcgmi", text)


def printing(folder: Path, name: str, file: Path) -> None:
    """Put a tool into a folder that prints a recording, whatever it is asked, in no language."""
    text = _PRINTED.format(python=sys.executable, file=str(file))
    _program(folder, name, text)
