"""What every rule's script shares: a log, errors in words, and an orderly end on a signal."""

import contextlib
import errno
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from servemap.model.errors import OrphanedError, ServemapError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Set by Snakemake for every job from its number of cores; a measured server must not get them."""
KEPT = "SERVEMAP_THREAD_VARIABLES"


def keep_thread_variables() -> None:
    """Note what the user set, in the controller, before Snakemake sets the same for its jobs."""
    os.environ[KEPT] = json.dumps(
        {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    )


def restore_thread_variables() -> None:
    """Give a job, and the server that it starts, the user's variables back."""
    kept = json.loads(os.environ.get(KEPT, "{}"))
    for name in THREAD_VARIABLES:
        os.environ.pop(name, None)
        if name in kept:
            os.environ[name] = kept[name]


class InterruptedByController(BaseException):
    """The controller asked this job to end; not an error of the job."""


def _raise(_signal: int, _frame: FrameType | None) -> None:
    # Ctrl-C comes from the terminal and again from the controller: once is enough, and the second
    # must not interrupt the orderly end. (Not SIG_IGN, which programs started then would inherit.)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    raise InterruptedByController


@contextlib.contextmanager
def rule_script(log: Path) -> Iterator[None]:
    """Run the body of a rule's script.

    A ServemapError or an error of the operating system is said on stderr without a traceback; any
    other exception in a line that names the log. All go to the log and end the process with 1.
    """
    restore_thread_variables()
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    for number in SIGNALS:
        signal.signal(number, _raise)
    with log.open("a", encoding="utf-8") as handle:
        _note(handle, f"{started} begin, pid {os.getpid()}")
        try:
            yield
        except InterruptedByController:
            _note(handle, "ended by the controller")
            sys.exit(130)
        except OrphanedError:
            _note(handle, "the controller died; the next one goes on from here")
            sys.exit(1)
        except ServemapError as error:
            _note(handle, str(error))
            sys.exit(f"error: {error}")
        except OSError as error:
            _note(handle, traceback.format_exc())
            sys.exit(f"error: {say_os_error(error)}")
        except Exception as error:  # noqa: BLE001 - the last place that can say it in words
            _note(handle, traceback.format_exc())
            sys.exit(
                f"error: {type(error).__name__}: {error}\n  where: {log}\n"
                "  remedy: the log has the details; this is a fault of servemap or of its machine"
            )
        _note(handle, "end")


def _note(handle: TextIO, text: str) -> None:
    """Write to the log; a full disk must not hide the error that is being logged."""
    with contextlib.suppress(OSError):
        handle.write(f"{text}\n")
        handle.flush()


def say_os_error(error: OSError) -> str:
    """Return an error of the operating system as what, where and remedy."""
    remedy = {
        errno.ENOSPC: "make room on that disk, then start again; nothing measured was lost",
        errno.EDQUOT: "make room in that quota, then start again; nothing measured was lost",
        errno.EACCES: "give this user the right to use that path",
        errno.EROFS: "choose a folder that can be written to",
    }.get(error.errno or 0, "mend that path, then start again")
    return (
        f"{error.strerror or error}\n  where: {error.filename or 'the results folder'}\n"
        f"  remedy: {remedy}"
    )


def say(text: str) -> None:
    """Print a line of progress for people."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the script's voice
