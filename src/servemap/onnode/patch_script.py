"""Running a patch that is a script, on one target file."""

import os
import signal
import subprocess
from typing import Dict, List, Tuple

from .patch_files import Problem, read_bytes, state_of, write_file
from .patch_request import Patch

TIMEOUT_S = 600


def run(patch: Patch, script: str, interpreter: List[str], target: str) -> None:
    """Run `INTERPRETER SCRIPT TARGET` in the patch's root with LC_ALL=C.

    Raises:
        Problem: it failed, did not end, or wrote another file below the root.
    """
    root = os.path.realpath(patch.root)
    if os.stat(target).st_nlink > 1:
        # a script that writes in place must not reach the file's other names
        write_file(target, read_bytes(target), state_of(target))
    before = _times(root, target)
    code, output = _run([*interpreter, script, target], root)
    if code != 0:
        tail = " | ".join(output.decode("utf-8", "replace").strip().splitlines()[-5:])
        raise Problem(
            f"the script {patch.source} ended with {code}: {tail or 'no output'}",
            f"patches.{patch.id}.source",
            "mend the script; the target's original is back",
            patch.id,
        )
    touched = sorted(set(before.items()) ^ set(_times(root, target).items()))
    if touched:
        raise Problem(
            f"the script {patch.source} wrote {touched[0][0]}, which is not its target",
            f"patches.{patch.id}.source",
            "put that file back by hand, and let the script write only the file it is given",
            patch.id,
        )


def _run(argv: List[str], root: str) -> Tuple[object, bytes]:
    try:
        process = subprocess.Popen(
            argv,
            cwd=root,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"{argv[0]} not started", str(error).encode()
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return f"no end within {TIMEOUT_S} s", output
    return process.returncode, output


def _times(root: str, target: str) -> Dict[str, int]:
    """Return the modification times of all files below a folder but the target and bytecode."""
    times = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(folder, name)
            if path != target and os.path.lexists(path):
                times[path] = os.lstat(path).st_mtime_ns
    return times
