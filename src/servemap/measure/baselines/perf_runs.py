"""Several commands one after the other: `perf_runs.py PLAN`, on the node that starts them.

PLAN (JSON): `{"programs": [...], "runs": [{"name", "argv"}]}`. Every program is looked for first,
by its path or on PATH; one that is missing stops it before anything runs, as the first command that
fails does the others. What they print goes through; in between stand lines `servemap-run {JSON}`:
`{"program", "path", "simulated"}`, `{"begin": NAME}`, `{"end": NAME, "code"}` and
`{"missing": PROGRAM}`.

It runs under any Python 3.8 and imports nothing of ours.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# As in onnode/sources.py: what a program that only replays recorded output has near its beginning.
SIMULATED = b"servemap: simulated"


def say(**what: Any) -> None:
    """Write one line of ours; a command that was cut may have left one without its end."""
    sys.stdout.write("\nservemap-run " + json.dumps(what, sort_keys=True) + "\n")
    sys.stdout.flush()


def simulated(path: str) -> bool:
    """Return whether a program says of itself that it replays a recording."""
    try:
        with Path(path).open("rb") as handle:
            return SIMULATED in handle.read(4096)
    except OSError:
        return False


def main() -> int:
    """Look for the programs and run the commands; 127 or 1 where one is missing or fails."""
    plan = json.loads(sys.argv[1])
    missing = False
    for name in plan["programs"]:
        path = shutil.which(name)
        if path is None:
            missing = True
            say(missing=name)
        else:
            say(program=name, path=path, simulated=simulated(path))
    if missing:
        return 127
    for run in plan["runs"]:
        say(begin=run["name"])
        code = subprocess.call(run["argv"], env=dict(os.environ, LC_ALL="C"))
        say(end=run["name"], code=code)
        if code != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
