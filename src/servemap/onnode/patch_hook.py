"""Notes which source each process of a server compiles of the Python files that patches changed.

It lies in a folder of one start, as `sitecustomize.py` beside `watched` and `notes`. The folder
comes first on the server's PYTHONPATH, so that every Python process of the server runs it before
anything else (library reference, `site`); a sitecustomize of the environment's own runs after it.
A watched file is compiled from its source whatever byte code is cached, so what is hashed is what
runs. Another file of the same module name is noted too: a copy that shadows the patched one.

watched: paths, one a line. notes: a line for each event, its fields separated by tabs:
PID START began; PID START imported|inherited SHA256 FILE MODULE. START is field 22 of
/proc/PID/stat. A forked process inherits what its parent imported, and says so.
"""

import os
import sys
from importlib.machinery import PathFinder, SourceFileLoader, SourcelessFileLoader
from typing import Any, Dict, List, Optional, Tuple

PACKAGE = "__init__.py"


def module_name(path: str) -> str:
    """Return the last part of the name under which a source file is imported."""
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == PACKAGE else name[: -len(".py")]


def noted_as(watched: List[str], fullname: str, path: str) -> Optional[str]:
    """Return the path to note for a module's source; None for one that is not watched.

    That is a watched path if it is that file, whatever links lead to it, and else its real path if
    it stands in the place of a watched file: the same file of the same package, found below another
    folder. A watched file inside a package is never the one of a module with a shorter name.
    """
    real = os.path.realpath(path)
    for one in watched:
        if os.path.realpath(one) == real:
            return one
    parts = fullname.count(".") + (2 if os.path.basename(path) == PACKAGE else 1)
    ending = "/" + "/".join(path.split("/")[-parts:])
    for one in watched:
        root = one[: -len(ending)]
        if not one.endswith(ending) or os.path.exists(os.path.join(root, PACKAGE)):
            continue
        if parts > 1 or root in map(os.path.realpath, sys.path):
            return real
    return None


def digest(data: bytes) -> str:
    """Return the sha256; `unknown` where it is hashlib itself that is being imported."""
    try:
        from hashlib import sha256
    except ImportError:
        return "unknown"
    return sha256(data).hexdigest()


def watch(folder: str) -> None:
    """Note the imports of this process and of those forked from it.

    Where the list of watched files cannot be read, nothing is noted, which the gate notices.
    """
    try:
        with open(os.path.join(folder, "watched"), encoding="utf-8") as handle:
            watched = [line for line in handle.read().split("\n") if line]
    except OSError:
        return
    notes = os.path.join(folder, "notes")
    named: Dict[str, List[str]] = {}
    for one in watched:
        named.setdefault(module_name(one), []).append(one)
    imported: List[Tuple[str, str, str]] = []
    compiled, loaded = SourceFileLoader.get_code, SourcelessFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> Any:
        # By its file: a module may be loaded from it under any name.
        candidates = named.get(module_name(self.path))
        if candidates is None:
            return compiled(self, fullname)
        path = os.path.abspath(self.get_filename(fullname))
        noted = noted_as(candidates, fullname, path)
        if noted is None:
            return compiled(self, fullname)
        data = self.get_data(path)
        code = self.source_to_code(data, path)
        imported.append((digest(data), noted, fullname))
        say(notes, ["imported\t%s\t%s\t%s" % imported[-1]])
        return code

    def get_bare_code(self: SourcelessFileLoader, fullname: str) -> Any:
        # Byte code without its source, in the place of a watched file: a copy of it, never it.
        path = os.path.abspath(self.get_filename(fullname))
        source = os.path.splitext(path)[0] + ".py"
        if noted_as(named.get(module_name(source), []), fullname, source) is not None:
            imported.append((digest(self.get_data(path)), path, fullname))
            say(notes, ["imported\t%s\t%s\t%s" % imported[-1]])
        return loaded(self, fullname)

    # No import in here: another thread may hold a lock of one at the time of the fork.
    def forked() -> None:
        say(notes, ["began"] + ["inherited\t%s\t%s\t%s" % one for one in imported])

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    SourcelessFileLoader.get_code = get_bare_code  # type: ignore[method-assign]
    os.register_at_fork(after_in_child=forked)
    say(notes, ["began"])


def say(notes: str, events: List[str]) -> None:
    """Add lines to the notes at once; a server never fails for it."""
    try:
        with open("/proc/self/stat", "rb") as handle:
            start = int(handle.read().rpartition(b")")[2].split()[19])
        who = "%d\t%d\t" % (os.getpid(), start)
        text = "".join(who + event + "\n" for event in events)
        target = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(target, text.encode("utf-8", "replace"))
        finally:
            os.close(target)
    except OSError:
        return


def run_next(folder: str) -> None:
    """Run the environment's own sitecustomize.

    The folder stays on the search path: torch starts its compile workers with a PYTHONPATH that it
    makes of it (torch/_inductor/utils.py, 2.13).
    """
    others = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    here = os.path.dirname(os.path.abspath(__file__))
    watch(here)
    run_next(here)
