"""Facts of a server's own software: the packages of its interpreter, the files of its package.

The interpreter that runs this program is another one as a rule, so each is asked in a process of
its own.
"""

import hashlib
import json
import os
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from .facts_models import Checksums
from .probe import run_tool

MAX_FILES = 50_000
LIST_S = 60.0
DIGITS = 12
SOURCES = (
    ".py", ".pyx", ".so", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".json", ".yaml",
    ".yml", ".toml", ".jinja",
)  # fmt: skip
# It has to run under whatever Python a server has; the first one on the path gets imported.
LIST = """
import json, platform, sys
from importlib import metadata
packages, damaged = {}, 0
for one in metadata.distributions():
    try:
        name, version = one.metadata["Name"], one.version
    except Exception:
        name = version = None
    if name and version:
        packages.setdefault(name, version)
    else:
        damaged += 1
print(json.dumps({"version": platform.python_version(), "executable": sys.executable,
    "implementation": platform.python_implementation(), "packages": packages,
    "damaged_packages": damaged}))
"""


def interpreter(python: str) -> Dict[str, Any]:
    """Return version, executable and distributions ({name: version}) of an interpreter.

    ValueError if it does not run or says something else.
    """
    record = run_tool([python, "-c", LIST], LIST_S)
    if record.get("code") != 0:
        said = record.get("error") or str(record.get("stderr")).strip()[-300:]
        raise ValueError(said or "%s gave no answer" % python)
    found = json.loads(record["stdout"].strip().splitlines()[-1])
    found["packages"] = dict(sorted(found["packages"].items(), key=lambda one: one[0].lower()))
    return dict(found)


def is_source(name: str) -> bool:
    """Return whether a file of a package decides what it does: code, libraries, settings."""
    return name.endswith(SOURCES) or ".so." in name


def source_files(folder: str, apart: Set[str]) -> Iterator[Tuple[str, str]]:
    """Yield (path, name below the folder) of a package's sources in order, without `apart`."""
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name != "__pycache__"
            and not name.startswith(".")
            and _real(os.path.join(base, name)) not in apart
        )
        for name in sorted(names):
            path = os.path.join(base, name)
            if is_source(name) and _real(path) not in apart:
                yield path, os.path.relpath(path, folder)


def _real(path: str) -> str:
    """Return a path with the links of its folder followed; it may be a link itself."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def package_files(folder: str, apart: List[str], checksums: Checksums) -> Dict[str, Any]:
    """Return what the sources of a package are.

    Args:
        folder: the package's.
        apart: files and folders that patches change; the records of the patches tell of them.
        checksums: sha256 of files.

    Returns:
        `{"files", "sha256", "digests", "apart", "errors"}`: how many there are, one digest of all,
        {name below the folder: first digits of its digest}, and which were left out.
    """
    whole = hashlib.sha256()
    digests: Dict[str, str] = {}
    errors: List[str] = []
    left_out = {_real(path) for path in apart}
    if not os.path.isdir(folder):
        errors.append("no such folder")
    for path, name in source_files(folder, left_out):
        if len(digests) == MAX_FILES:
            errors.append("more than %d files; the rest is not looked at" % MAX_FILES)
            break
        try:
            digest = checksums.sha256(path)
        except (OSError, ValueError) as error:
            errors.append("%s: %s" % (name, error))
            continue
        whole.update(("%s %s\n" % (name, digest)).encode("utf-8", "surrogateescape"))
        digests[name] = digest[:DIGITS]
    below = os.path.realpath(folder)
    return {
        "files": len(digests),
        "sha256": whole.hexdigest() if digests else None,
        "digests": digests,
        "apart": sorted(
            os.path.relpath(path, below) for path in left_out if path.startswith(below + os.sep)
        ),
        "errors": errors[:20],
    }


def packages(folders: List[str], apart: List[str], cache: Optional[str]) -> Dict[str, Any]:
    """Return {folder: its sources}, checksums kept in the cache."""
    checksums = Checksums(cache)
    found = {folder: package_files(folder, apart, checksums) for folder in folders}
    checksums.save()
    return found
