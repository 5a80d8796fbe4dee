"""Where programs are on a node: `programs NAME...`, each by its path or to be found on PATH."""

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
    print(json.dumps(find(argv)))
    return 0
