"""What other work folders of the user have patched on this node, and which of it a server uses."""

import os
from typing import Any, Dict, List

from .patch_claims import claims, taken
from .patch_files import Problem
from .patch_journal import Journal


def others(work: str, uses: List[str]) -> List[Dict[str, Any]]:
    """Return the paths on which patches of other work folders stand.

    What cannot be told of a patch counts as in place; a path whose original is back does not.

    Args:
        work: the own work folder.
        uses: files and folders that the own servers use.

    Returns:
        {"path", "work", "used"}; `used` where the path is one of `uses` or below one.
    """
    folders = [os.path.realpath(path) for path in uses]
    return [
        {"path": path, "work": holder, "used": any(_within(path, folder) for folder in folders)}
        for path, holder in claims(work)
        if holder != work and _stands(holder, path)
    ]


def refuse_used(found: List[Dict[str, Any]]) -> None:
    """Refuse to go on where a patch of another work folder would be taken for the original.

    Raises:
        Problem: names the path and the run that patched it.
    """
    for one in found:
        if one["used"]:
            raise taken(one["path"], one["work"])


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _stands(work: str, path: str) -> bool:
    if not os.path.exists(os.path.join(work, "journal.json")):
        return True
    try:
        places = Journal(work).places()
    except Problem:
        return True
    return any(one["path"] == path and one["place"] not in ("before", "both") for one in places)
