"""`holders`: what holds cards and ports of this machine or is left of a server of ours, as JSON.

`{"schema", "view" (see view.py), "cards", "processes", "failed" (see holders_cards.py), "devices":
{pid: {file: computes}}, "hidden": processes that could not be looked into, "boots": {pid: boot id},
"known": [boot id], "containers": [{"id", "name", "runtime", "boot_id"}], "containers_failed"}`.
"""

import argparse
import json
import sys
from typing import Any, Dict, List

from . import holders_cards, holders_left
from .view import read_view


def read_holders(workdirs: List[str]) -> Dict[str, Any]:
    """Return what this user sees; `workdirs` are the folders of the run on this machine."""
    # The tools come first: while one runs it has device files open itself.
    found: Dict[str, Any] = {"schema": 1, **holders_cards.cards()}
    rows, failed = holders_left.containers()
    view = read_view()
    devices, hidden = holders_left.open_devices(view["processes"])
    pids = [process.pid for process in view["processes"]]
    boots = holders_left.in_containers(pids, rows)
    boots.update(holders_left.recorded(workdirs))
    boots.update(holders_left.marks(pids))
    found.update(
        view=view,
        devices=devices,
        hidden=hidden,
        boots=boots,
        known=holders_left.known_boots(workdirs),
        containers=rows,
        containers_failed=failed,
    )
    return found


def main(argv: List[str]) -> int:
    """Run `holders` and print its JSON."""
    parser = argparse.ArgumentParser(prog="holders")
    parser.add_argument("--workdir", action="append", default=[], help="folder of the run here")
    json.dump(read_holders(parser.parse_args(argv).workdir), sys.stdout)
    print()
    return 0
