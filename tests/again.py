"""Run pytest, and the tests that failed once more, alone: `python -m tests.again ARGUMENT...`.

One test of thousands that meets a stall of a shared machine does not hide what the others say. A
few are run again and named, since each is to be mended; more are no stall.
"""

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
PYTEST = [sys.executable, "-m", "pytest"]


def main(arguments: list[str]) -> int:
    """Return pytest's exit status; 0 as well where all that failed passed when it ran again."""
    LAST_FAILED.unlink(missing_ok=True)
    code = subprocess.run([*PYTEST, *arguments], check=False).returncode
    if code != 1 or not LAST_FAILED.exists():
        return code
    failed = sorted(json.loads(LAST_FAILED.read_text()))
    if len(failed) > MOST:
        return code
    print("once more, alone:", *failed, sep="\n  ", flush=True)
    code = subprocess.run([*PYTEST, *failed], check=False).returncode
    if code == 0:
        print("passed only when they ran again, to be mended:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
