"""`end-loads --workdir DIR (--load ID | --but ID)`: end what loads of a run left on this machine.

A load's client and collectors carry a mark in their environment, which their children inherit; so
they are found also where nobody was told their pids. Meant are those of one load, or of all but
one. Answer (JSON): `{"schema", "met": [{"pid", "start", "comm"}], "left": [...]}`.
"""

import argparse
import json
import sys
from typing import Any, Dict, List, Optional

from .ident import Stat, mark_of
from .sweep import end_found, running

MARK = "SERVEMAP_LOAD"
GRACE_S = 5.0


def mark(load_id: str, workdir: str) -> Dict[str, str]:
    """Return the environment that marks what a load starts; `workdir` is its run's folder there."""
    return {MARK: "%s@%s" % (load_id, workdir)}


def of_loads(workdir: str, only: Optional[str], but: Optional[str]) -> List[Stat]:
    """Return the running processes of a run's loads, those of `only` one or of all `but` one."""
    found = []
    for stat in running():
        load_id, _, folder = (mark_of(stat.pid, MARK) or "").partition("@")
        if folder == workdir and load_id != but and only in (None, load_id):
            found.append(stat)
    return found


def answer(workdir: str, only: Optional[str], but: Optional[str], grace_s: float) -> Dict[str, Any]:
    """End them: TERM, `grace_s`, KILL; return which were met and which are still there."""
    met, left = end_found(lambda: of_loads(workdir, only, but), grace_s)
    said: Dict[str, Any] = {"schema": 1}
    for name, stats in (("met", met), ("left", left)):
        said[name] = [{"pid": stat.pid, "start": stat.start, "comm": stat.comm} for stat in stats]
    return said


def main(argv: List[str]) -> int:
    """Run `end-loads` and print its answer; 1 when something is left."""
    parser = argparse.ArgumentParser(prog="end-loads")
    parser.add_argument("--workdir", required=True, help="the run's folder on this machine")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--load", help="the load whose processes are ended")
    which.add_argument("--but", help="the load whose processes are left")
    given = parser.parse_args(argv)
    said = answer(given.workdir, given.load, given.but, GRACE_S)
    json.dump(said, sys.stdout)
    print()
    return int(bool(said["left"]))
