"""What every rule's script shares: a log, errors in words, and an orderly end on a signal."""

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from servemap.model.errors import OrphanedError, ServemapError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


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

    A ServemapError is written to `log` and stderr without a traceback; any other exception goes to
    the log with one, and to stderr in a line that names the log. Both end the process with 1.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    for number in SIGNALS:
        signal.signal(number, _raise)
    with log.open("a", encoding="utf-8") as handle:
        handle.write(f"{started} begin, pid {os.getpid()}\n")
        try:
            yield
        except InterruptedByController:
            handle.write("ended by the controller\n")
            sys.exit(130)
        except OrphanedError:
            handle.write("the controller died; the next one goes on from here\n")
            sys.exit(1)
        except ServemapError as error:
            handle.write(f"{error}\n")
            sys.exit(f"error: {error}")
        except Exception as error:  # noqa: BLE001 - the last place that can say it in words
            handle.write(traceback.format_exc())
            sys.exit(
                f"error: {type(error).__name__}: {error}\n  where: {log}\n"
                "  remedy: the log has the details; this is a fault of servemap or of its machine"
            )
        handle.write("end\n")


def say(text: str) -> None:
    """Print a line of progress for people."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the script's voice
