"""Patches on a node: lint, apply, verify, restore, status, others.

Reads one JSON request from standard input and writes one JSON answer to standard output.

Request: {"schema": 1, "work": FOLDER, "patches": [{"id", "kind", "source", "target", "root",
"eol", "verify": [{"marker"|"sha256"|"python", "file"}], "files": [{"path", "mode", "sha256",
"data": base64}]}], "search": [FOLDER], "uses": [PATH]}; restore and status need only `work`; in
`search` the server finds its modules; `uses` are the files and folders that no other campaign may
have patched. Relative paths start where the program was started. Answer: {"schema": 1,
"ok": true, ...} or {"schema": 1, "ok": false, "problems": [{"patch", "what", "where", "remedy"}]}
with exit status 1.
"""

import fcntl
import json
import os
import sys
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List

from .patch_apply import Answer, apply, lint, verify
from .patch_files import Problem
from .patch_journal import Journal
from .patch_others import others
from .patch_request import SCHEMA, Request, parse

LOCK_TIMEOUT_S = 30.0


def _restore(journal: Journal, _: Any) -> Answer:
    """Put the originals back; the proof of the last time where nothing is in place."""
    changed = bool(journal.entries)
    journal.restore()
    return {"ok": True, "changed": changed, "files": journal.last_restore}


def _status(journal: Journal, _: Any) -> Answer:
    """Say which patches are in place, and how their targets stand."""
    return {
        "ok": True,
        "patches": [entry["id"] for entry in journal.entries],
        "standing": journal.standing(),
        "files": journal.places(),
    }


def _others(_: Journal, request: Request) -> Answer:
    """Say what other work folders have patched."""
    return {"ok": True, "others": others(request.work, request.uses)}


_COMMANDS = {
    "lint": lint,
    "apply": apply,
    "verify": verify,
    "restore": _restore,
    "status": _status,
    "others": _others,
}


@contextmanager
def _alone(work: str) -> Iterator[None]:
    os.makedirs(work, mode=0o700, exist_ok=True)
    path = os.path.join(work, "lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Problem(
                        "another command is changing patches on this node",
                        path,
                        "wait until it has ended",
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)


def _answer(command: str, request: Request) -> Answer:
    with _alone(request.work):
        return _COMMANDS[command](Journal(request.work), request)


def _refused(problem: Problem) -> Dict[str, Any]:
    return {"ok": False, "problems": [problem.as_json()]}


def main(argv: List[str]) -> int:
    """Answer the request on standard input; 0 when it was met, 1 when not, 2 on wrong use."""
    if len(argv) != 1 or argv[0] not in _COMMANDS:
        print("usage: patch {%s} <REQUEST" % "|".join(_COMMANDS), file=sys.stderr)
        return 2
    try:
        answer = _answer(argv[0], parse(sys.stdin.buffer.read()))
    except Problem as problem:
        answer = _refused(problem)
    except OSError as error:
        what = f"cannot change files: {error.strerror or error}"
        remedy = "mend that (permission, space, mount), then run the same command again"
        answer = _refused(Problem(what, str(error.filename or "the node"), remedy))
    print(json.dumps({"schema": SCHEMA, **answer}, sort_keys=True))
    return 0 if answer["ok"] else 1
