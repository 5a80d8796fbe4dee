"""`spawn`: start a program that outlives us and the connection.

Request (JSON on stdin): `{"argv", "env", "cwd", "log"}`, where `env` is added to our environment
and `cwd` may be null. Answer (JSON on stdout): `{"pid", "start", "boot_id"}`, or `{"error"}` with
the exit status 1. The environment comes on stdin because it may hold secrets.
"""

import json
import os
import subprocess
import sys
from typing import Any, Dict, List, Optional

from .files import private
from .ident import machine_boot_id, read_stat


def spawn(argv: List[str], env: Dict[str, str], cwd: Optional[str], log: str) -> Dict[str, Any]:
    """Start `argv` in a session of its own, its output appended to `log`.

    Raises:
        OSError: the log cannot be written, or there is no such program or folder.
    """
    os.makedirs(os.path.dirname(log) or ".", exist_ok=True)
    environment = dict(os.environ, LC_ALL="C")
    environment.update(env)
    with open(log, "ab", opener=private) as target:
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Not collected yet, so that even a program that ended at once still has its identity.
    stat = read_stat(process.pid)
    # It is left to init when we end; Popen must not warn of that.
    process.returncode = 0
    if stat is None:
        raise OSError("process %d vanished when it was started; is /proc hidden?" % process.pid)
    return {"pid": stat.pid, "start": stat.start, "boot_id": machine_boot_id()}


def main(argv: List[str]) -> int:
    """Serve one request; 1 when the program cannot be started, 2 on a bad request."""
    if argv:
        print("usage: spawn < REQUEST", file=sys.stderr)
        return 2
    try:
        request = json.load(sys.stdin)
        wanted = (request["argv"], request["env"], request["cwd"], request["log"])
    except (ValueError, KeyError, TypeError) as error:
        print("spawn: bad request: %r" % error, file=sys.stderr)
        return 2
    try:
        answer = spawn(*wanted)
    except OSError as error:
        # Of a folder that is not there only the file name tells.
        answer = {"error": error.strerror or str(error), "path": error.filename or wanted[0][0]}
    json.dump(answer, sys.stdout)
    print()
    return int("error" in answer)
