"""`survey`: whether a machine is ready to be a node, as one JSON object on stdout.

It reads a request (JSON) from stdin, so that one start of a process answers nearly everything:

    {"workdir": PATH, "paths": [PATH...], "ports": [N...], "tools": [NAME...],
     "netdevs": [NAME...], "hcas": [NAME...], "sudo": BOOL, "cards": BOOL,
     "address": NAME or null, "engines": [{"python": PROGRAM, "modules": [NAME...],
     "root": PATH or null}...], "clients": [as engines...],
     "runtime": {"argv": [WORD...], "images": [NAME...]} or null, "urls": [URL...]}

Every key may be absent. A section that cannot be read is `{"error": REASON}`. Files are read below
`--root`, so that a copy of another machine's /proc and /sys can be surveyed.
"""

import argparse
import json
import sys
from functools import partial
from typing import Any, Callable, Dict, List

from . import survey_fabric, survey_host, survey_software
from .facts import section


def each(names: List[str], read: Callable[[str], Any]) -> Dict[str, Any]:
    """Return a section for each name."""
    return {name: section(partial(read, name)) for name in names}


def survey(request: Dict[str, Any], root: str) -> Dict[str, Any]:
    """Return all sections that a request asks for."""
    runtime, address = request.get("runtime"), request.get("address")
    return {
        "schema": 1,
        "python": section(survey_host.python),
        "user": section(survey_host.user),
        "kernel": section(lambda: survey_host.kernel(root)),
        "disk": section(lambda: survey_host.disk(request.get("workdir") or "/", root)),
        "paths": each(request.get("paths", []), survey_host.listing),
        "ports": section(lambda: survey_host.listeners(request.get("ports", []), root)),
        "memlock": section(survey_host.memlock),
        "perf_event_paranoid": section(lambda: survey_host.perf_event_paranoid(root)),
        "netdevs": section(lambda: survey_fabric.netdevs(request.get("netdevs", []), root)),
        "rdma": section(lambda: survey_fabric.devices(root)),
        "peer_memory": section(lambda: survey_fabric.peer_memory(root)),
        "tools": section(lambda: survey_software.tools(request.get("tools", []))),
        "cards": section(survey_software.cards) if request.get("cards") else None,
        "sudo": section(survey_software.sudo) if request.get("sudo") else None,
        "runtime": section(lambda: survey_software.runtime(**runtime)) if runtime else None,
        "address": section(lambda: survey_host.address(address)) if address else None,
        "engines": [
            section(partial(survey_software.engine, **one)) for one in request.get("engines", [])
        ],
        "clients": [
            section(partial(survey_software.engine, **one)) for one in request.get("clients", [])
        ],
        "urls": each(request.get("urls", []), survey_software.get),
    }


def main(argv: List[str]) -> int:
    """Run `survey` and print its JSON; 2 on a request that is none."""
    parser = argparse.ArgumentParser(prog="survey", description="reads a request from stdin")
    parser.add_argument("--root", default="", help="folder that stands for / of the machine")
    arguments = parser.parse_args(argv)
    try:
        request = json.loads(sys.stdin.read() or "{}")
        if not isinstance(request, dict):
            raise ValueError("it is not an object")
    except (ValueError, RecursionError) as error:
        print("survey: the request cannot be read: %s" % error, file=sys.stderr)
        return 2
    json.dump(survey(request, arguments.root), sys.stdout)
    print()
    return 0
