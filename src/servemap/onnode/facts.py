"""`facts`: what a node is, as one JSON object on stdout; `facts --state`: what it is doing.

A section that cannot be read is `{"error": REASON}`; no machine is too bare to be described. With
`--engine` it reads from stdin what servers run: `{"pythons": [PROGRAM...], "packages":
[FOLDER...], "apart": [PATH that patches change...]}`.
"""

import argparse
import json
import sys
import time
from functools import partial
from typing import Any, Callable, Dict, List

from . import facts_engine, facts_host, facts_models, facts_pci, facts_software, facts_state


def section(read: Callable[[], Any]) -> Any:
    """Return what `read` finds, or `{"error": REASON}`: one odd file must not hide the rest."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - see above
        return {"error": "%s: %s" % (type(error).__name__, error)}


def facts(
    model_paths: List[str], prefixes: List[str], cache: Any, engine: Dict[str, List[str]]
) -> Dict[str, Any]:
    """Return all sections of a node's facts."""
    pythons = {
        python: section(partial(facts_engine.interpreter, python))
        for python in engine.get("pythons", [])
    }
    folders, apart = engine.get("packages", []), engine.get("apart", [])
    return {
        "schema": 1,
        "taken_ns": time.time_ns(),
        "kernel": section(facts_host.kernel),
        "cpu": section(facts_host.cpu),
        "memory": section(facts_host.memory),
        "numa": section(facts_host.numa),
        "nics": section(facts_host.nics),
        "pci": section(facts_pci.pci),
        "python": section(facts_software.python),
        "accelerators": section(facts_software.cards),
        "containers": section(facts_software.containers),
        "env": section(lambda: facts_software.environment(prefixes)),
        "models": section(lambda: facts_models.models(model_paths, cache)),
        "engine_python": pythons,
        "engine_files": section(lambda: facts_engine.packages(folders, apart, cache)),
    }


def main(argv: List[str]) -> int:
    """Run `facts` and print its JSON."""
    parser = argparse.ArgumentParser(prog="facts")
    parser.add_argument("--state", action="store_true", help="only what comes and goes")
    parser.add_argument("--model", nargs="*", action="append", default=[], help="file or folder")
    parser.add_argument("--env-prefix", default="", help="variables to record, comma separated")
    parser.add_argument("--cache", help="file that keeps checksums between runs")
    parser.add_argument("--engine", action="store_true", help="read what servers run from stdin")
    arguments = parser.parse_args(argv)
    if arguments.state:
        found = {"schema": 1, "taken_ns": time.time_ns(), **facts_state.state()}
    else:
        paths = [path for group in arguments.model for path in group]
        prefixes = [prefix for prefix in arguments.env_prefix.split(",") if prefix]
        engine = json.load(sys.stdin) if arguments.engine else {}
        found = facts(paths, prefixes, arguments.cache, engine)
    json.dump(found, sys.stdout)
    print()
    return 0
