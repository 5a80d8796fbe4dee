"""A program that is run for what it prints: bounded, and ended with all that it started."""

import os
import select
import signal
import subprocess
import threading
import time
import uuid
from contextlib import closing, suppress
from typing import BinaryIO, Callable, Dict, Generator, List, NamedTuple, Optional

from .marked import TOOL_MARK, end_marked

# A program that ended, or was told to stop, is noticed in this time.
LOOK_S = 0.5
# What a program started may go on printing for so long once it has ended itself.
LINGER_S = 0.2
STOP_GRACE_S = 3.0
AFTER_KILL_S = 2.0
BLOCK = 1 << 16
# Linux gives a pipe of a user without privileges no more (pipe(7), pipe-max-size).
PIPE_BYTES = 1 << 20
END_BYTES = 1 << 16
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.0005, 0.05


def tool_environment() -> Dict[str, str]:
    """Return the environment of a tool: ours, with words, numbers and times as everywhere."""
    return dict(os.environ, LC_ALL="C")


class Ends:
    """The first and the last END_BYTES of what is added; what lies between is only counted.

    Args:
        handle: a file that they are written to, the last at `close`.
        count: called with the size of all that is added.
    """

    def __init__(
        self,
        handle: Optional[BinaryIO] = None,
        count: Optional[Callable[[int], None]] = None,
    ) -> None:
        self._handle = handle
        self._count = count
        self._first = b""
        self._last = b""
        self._size = 0

    def add(self, block: bytes) -> None:
        """Add bytes; OSError when the file's disk is full, and what `count` raises."""
        if self._count is not None:
            self._count(len(block))
        self._size += len(block)
        taken = block[: END_BYTES - len(self._first)]
        self._first += taken
        self._last = (self._last + block[len(taken) :])[-END_BYTES:]
        if self._handle is not None and taken:
            self._handle.write(taken)
            self._handle.flush()

    def rest(self) -> bytes:
        """Return what follows the first part: how much is left out, and the last part."""
        lost = self._size - len(self._first) - len(self._last)
        return (b"\n[%d bytes are left out]\n" % lost if lost else b"") + self._last

    def text(self) -> str:
        """Return both parts."""
        return (self._first + self.rest()).decode("utf-8", "replace")

    def close(self) -> None:
        """Write the last part and close the file."""
        if self._handle is not None:
            with self._handle:
                self._handle.write(self.rest())


class Tool:
    """A running program in a session of its own, marked; OSError where it cannot be started.

    Args:
        argv: the program and its arguments.
        err: takes its stderr.
        stop: when set, the program is told to end and has STOP_GRACE_S to do so.
        leaves: whether it is known to leave processes that hold none of its pipes.
    """

    def __init__(
        self,
        argv: List[str],
        err: Ends,
        stop: Optional[threading.Event] = None,
        leaves: bool = False,
    ) -> None:
        self._err = err
        self._leaves = leaves
        self._stop = stop
        self._mark = uuid.uuid4().hex
        self.late = False
        self._process = subprocess.Popen(
            argv,
            env=dict(tool_environment(), **{TOOL_MARK: self._mark}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        if stop is not None:
            threading.Thread(target=self._tell, args=(stop,), daemon=True).start()

    def blocks(self, limit_s: float = float("inf")) -> Generator[bytes, None, None]:
        """Yield what it prints until it has ended; then end all that it started.

        A program that takes longer than `limit_s` is killed and `late` from then on. Close the
        iterator where it is not read to its end.
        """
        assert self._process.stdout is not None and self._process.stderr is not None
        out, err = self._process.stdout.fileno(), self._process.stderr.fileno()
        open_ends = {out, err}
        poller = select.poll()
        for number in open_ends:
            poller.register(number, select.POLLIN)
        deadline_s = time.monotonic() + limit_s
        stopping = False
        left = PIPE_BYTES
        pause_s = FIRST_PAUSE_S
        ended_s: Optional[float] = None
        try:
            while open_ends or ended_s is None:
                now_s = time.monotonic()
                if ended_s is None and self._ended():
                    ended_s = now_s
                if self._stop is not None and self._stop.is_set() and not stopping:
                    stopping = True
                    deadline_s = min(deadline_s, now_s + STOP_GRACE_S)
                until_s = deadline_s if ended_s is None else ended_s + LINGER_S
                if now_s >= until_s or left <= 0:
                    self.late = ended_s is None
                    break
                if not open_ends:
                    time.sleep(min(pause_s, until_s - now_s))
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                    continue
                for number, _ in poller.poll(1000 * min(LOOK_S, until_s - now_s)):
                    block = os.read(number, BLOCK)
                    if not block:
                        poller.unregister(number)
                        open_ends.discard(number)
                        continue
                    left -= 0 if ended_s is None else len(block)
                    if number == out:
                        yield block
                    else:
                        self._err.add(block)
        finally:
            self._end(bool(open_ends))

    def code(self) -> Optional[int]:
        """Return its exit status, negative for a signal; None where even SIGKILL did not end it."""
        return self._process.returncode

    def _tell(self, stop: threading.Event) -> None:
        stop.wait()
        self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        # Once it is collected its number may be another's.
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _ended(self) -> bool:
        """Whether it has ended; it is not collected, so that its group keeps its number."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, how) is not None
        except ChildProcessError:
            return True

    def _end(self, held: bool) -> None:
        self._signal(signal.SIGKILL)
        if held or self._leaves:
            # What left its group can only be known by the mark.
            end_marked(self._mark)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(AFTER_KILL_S)
        # Orphans of its group are ours where we are their reaper (see collect).
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                continue
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


class Said(NamedTuple):
    """What a program printed.

    `code` is None where it was killed: it did not end in time, or it printed too much.
    """

    code: Optional[int]
    out: bytes
    err: str
    too_much: bool


def run(argv: List[str], limit_s: float, most: int, leaves: bool = False) -> Said:
    """Run a program that prints and ends; OSError where it cannot be started.

    It is killed after `limit_s`, and where it prints more than `most` bytes; `leaves` as of Tool.
    """
    err = Ends()
    parts: List[bytes] = []
    size = 0
    tool = Tool(argv, err, leaves=leaves)
    with closing(tool.blocks(limit_s)) as blocks:
        for block in blocks:
            parts.append(block)
            size += len(block)
            if size > most:
                break
    too_much = size > most
    return Said(
        None if tool.late or too_much else tool.code(), b"".join(parts), err.text(), too_much
    )
