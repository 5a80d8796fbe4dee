"""Where programs are on a node: `programs NAME...`, each by its path or to be found on PATH."""

import argparse
import json
import shutil
from typing import Any, Dict, List

from .sources import is_simulated


def find(names: List[str]) -> Dict[str, Any]:
    """Return {name: {"path", "simulated"} or null}; simulated ones only replay a recording."""
    found: Dict[str, Any] = {}
    for name in names:
        path = shutil.which(name)
        found[name] = path and {"path": path, "simulated": is_simulated(path)}
    return found


def main(argv: List[str]) -> int:
    """Print what `find` returns as one JSON object."""
    parser = argparse.ArgumentParser(prog="programs", description=__doc__)
    parser.add_argument("names", nargs="+", help="a path, or a name that is looked for on PATH")
    print(json.dumps(find(parser.parse_args(argv).names)))
    return 0
