"""A package that is installed in two places: a patch of one copy alone may never be imported."""

import os
from typing import Any, Dict, Iterator, List, Tuple

from .patch_files import Problem
from .patch_plan import written_paths
from .patch_request import Request

_TWINS = {"lib": "lib64", "lib64": "lib"}
_INSTALLED = ("site-packages", "dist-packages")


def copy_problems(request: Request) -> List[Dict[str, Any]]:
    """Return the problems of patches that leave another copy of what they change as it is.

    Copies are looked for in `lib` beside `lib64` and in the folders that the server imports from. A
    link to the patched file, or to a folder above it, is none; a hard link is, since the patched
    file is replaced. A copy that the same set patches too is none.
    """
    written = list(_written(request))
    patched = {path for _, path in written}
    problems = []
    for name, path in written:
        for copy in copies(path, request.search):
            if os.path.realpath(copy) in patched or _place(copy) in patched:
                continue
            problem = Problem(
                f"{path} is installed a second time as {copy}, which would stay as it is",
                f"patches.{name}.target",
                "patch both, with one patch for each; or remove one copy, or make it a link",
                name,
            )
            problems.append(problem.as_json())
            break
    return problems


def copies(path: str, search: List[str]) -> List[str]:
    """Return where else a file of a package is, or should be because the package is there too.

    Args:
        path: the real path of the file, which a patch may only be about to add.
        search: folders that the server imports from.
    """
    found = [twin for folder, twin in _beside(path, search) if _is_copy(path, folder, twin)]
    return list(dict.fromkeys(found))


def _written(request: Request) -> Iterator[Tuple[str, str]]:
    """Return patch id and path of all that is written; what does not lint is named elsewhere."""
    for patch in request.patches:
        try:
            paths = written_paths(patch)
        except Problem:
            continue
        for path in paths:
            yield patch.id, path


def _beside(path: str, search: List[str]) -> Iterator[Tuple[str, str]]:
    """Return where copies may be, each with the folder that holds that copy's package."""
    parts = path.split("/")
    ends = [index for index, part in enumerate(parts) if part in _INSTALLED]
    for index, part in enumerate(parts):
        if part in _TWINS and any(end > index for end in ends):
            other = [*parts[:index], _TWINS[part], *parts[index + 1 :]]
            yield "/".join(other[: ends[-1] + 1]), "/".join(other)
    folders = list(dict.fromkeys(os.path.realpath(folder) for folder in search))
    for own in folders:
        if path.startswith(own.rstrip("/") + "/"):
            for folder in folders:
                if folder != own:
                    yield folder, os.path.join(folder, os.path.relpath(path, own))


def _is_copy(path: str, folder: str, twin: str) -> bool:
    if path in (os.path.realpath(twin), _place(twin)):
        return False
    if os.path.lexists(twin):
        return True
    # a file that a patch adds is missing in the copy of its package
    above = os.path.dirname(twin)
    return (
        not os.path.lexists(path)
        and os.path.isdir(above)
        and os.path.realpath(above) != os.path.realpath(folder)
    )


def _place(path: str) -> str:
    """Return a path with the links above it followed, but not itself."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)
