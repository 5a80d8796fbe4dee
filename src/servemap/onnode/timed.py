"""`timed --at NS --limit S -- COMMAND...`: run a command at a time of this machine's clock.

With a time that is past it runs at once; how late that was is seen from the answer (JSON):
`schema`, `asked_ns`, `began_ns` and `ended_ns` (epoch), `code` (null where it was not started or
not ended in time), `stdout`, `stderr` (their ends) and `error` (null where it ran to its end).
"""

import argparse
import json
import subprocess
import sys
import time
from typing import Any, Dict, List

TAIL_CHARS = 4000
# A sleep may end late; the last part of the wait is taken in small ones.
NEAR_S = 0.02
SMALL_S = 0.0005


def wait_until(t_ns: int) -> None:
    """Return as soon as this machine's epoch time is `t_ns` or later."""
    while True:
        left_s = (t_ns - time.time_ns()) / 1e9
        if left_s <= 0:
            return
        time.sleep(left_s - NEAR_S / 2 if left_s > NEAR_S else min(left_s, SMALL_S))


def timed(at_ns: int, limit_s: float, argv: List[str]) -> Dict[str, Any]:
    """Run a command at a time; see the module for what is returned."""
    said: Dict[str, Any] = {"schema": 1, "asked_ns": at_ns, "code": None, "error": None}
    said.update(stdout="", stderr="")
    wait_until(at_ns)
    said["began_ns"] = time.time_ns()
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        said["error"] = "it did not end within %g s and was killed" % limit_s
    except OSError as error:
        said["error"] = "it cannot be started: %s" % (error.strerror or error)
    else:
        said["code"] = done.returncode
        for name, raw in (("stdout", done.stdout), ("stderr", done.stderr)):
            said[name] = raw.decode("utf-8", "replace")[-TAIL_CHARS:]
    said["ended_ns"] = time.time_ns()
    return said


def main(argv: List[str]) -> int:
    """Run `timed` and print its answer; 0 also where the command failed."""
    at = argv.index("--") if "--" in argv else len(argv)
    own, command = argv[:at], argv[at + 1 :]
    parser = argparse.ArgumentParser(prog="timed", usage=(__doc__ or "").split("`")[1])
    parser.add_argument("--at", type=int, required=True, help="epoch ns of this machine")
    parser.add_argument("--limit", type=float, required=True, help="seconds it may take")
    given = parser.parse_args(own)
    if not command:
        parser.error("name the command behind --")
    json.dump(timed(given.at, given.limit, command), sys.stdout)
    print()
    return 0
