"""A folder for the temporary files of one server, removed when the server has ended.

Engines leave sockets and the files by which their ranks meet there, also when they end in order.
"""

import getpass
import os
import re
import shutil
import tempfile
from typing import Dict, Optional

PREFIX = "servemap-server-"
# Engines bind sockets there, named by a UUID; unix(7) allows paths of 107 characters.
LONGEST = 45


def make(env: Dict[str, str]) -> Optional[str]:
    """Make the folder; None where the server's own variables name one, or none can be made."""
    try:
        base = tempfile.gettempdir()
        if "TMPDIR" in env or len(base) > LONGEST:
            return None
        return tempfile.mkdtemp(prefix=PREFIX, dir=base)
    except OSError:
        return None


def variables(folder: Optional[str], env: Dict[str, str]) -> Dict[str, str]:
    """Return the variables that make a server use the folder for all but what it shall find again.

    PyTorch keeps compiled kernels in the folder for temporary files, unless it is told otherwise
    (`default_cache_dir` in torch/_inductor/runtime/cache_dir_utils.py).
    """
    if folder is None:
        return {}
    found = {"TMPDIR": folder}
    if "TORCHINDUCTOR_CACHE_DIR" not in env and "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        try:
            user = getpass.getuser()
        except (KeyError, ImportError, OSError):
            user = "uid_%d" % os.getuid()
        name = "torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", user)
        found["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.path.dirname(folder), name)
    return found


def remove(folder: Optional[str]) -> None:
    """Remove a folder that `make` made, with all that is in it."""
    if folder and os.path.basename(folder).startswith(PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
