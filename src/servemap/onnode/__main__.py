"""Entry point on a node: `CMD ARGS...`, importing only the module of the command."""

import sys
from importlib import import_module
from typing import List

from .any_text import take_any_text

# command -> (module of this package, its function taking argv and returning the exit status)
COMMANDS = {
    "ask": ("ask", "main"),
    "bench": ("bench", "main"),
    "calibrate": ("calibrate", "main"),
    "clock": ("clock", "main"),
    "collect": ("collect", "main"),
    "end": ("end", "main"),
    "end-loads": ("end_loads", "main"),
    "facts": ("facts", "main"),
    "pack": ("pack", "main"),
    "hold": ("hold", "main"),
    "holders": ("holders", "main"),
    "patch": ("patch", "main"),
    "patch-notes": ("patch_notes", "main"),
    "run-client": ("run_client", "main"),
    "programs": ("programs", "main"),
    "reference-server": ("reference", "main"),
    "segments": ("segments", "main"),
    "spawn": ("spawn", "main"),
    "supervise": ("supervise", "main"),
    "survey": ("survey", "main"),
    "sweep": ("sweep", "main"),
    "tcp-probe": ("tcp", "probe_main"),
    "tcp-serve": ("tcp", "serve_main"),
    "timed": ("timed", "main"),
}


def main(argv: List[str]) -> int:
    """Run the command named by argv[0] with the rest; 2 on a wrong command."""
    if not argv or argv[0] not in COMMANDS:
        print("usage: onnode {%s} ARGS..." % ",".join(sorted(COMMANDS)), file=sys.stderr)
        return 2
    take_any_text()
    module, function = COMMANDS[argv[0]]
    status: int = getattr(import_module("." + module, __package__), function)(argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
