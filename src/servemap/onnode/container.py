"""The containers of one start of a server, known by their label and id: found, looked at, ended.

`runtime` is how the runtime is called on this node: `["docker"]`, `["sudo", "-n", "podman"]`.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import time
import uuid
from typing import Any, BinaryIO, List, NamedTuple, Optional, Sequence, Union

from .files import private
from .ident import is_alive, read_stat
from .marked import TOOL_MARK, end_marked
from .probe import LEAVING

LABEL = "servemap.boot"
CALL_S = 30.0
QUESTIONS = ("ps", "inspect")
SETTLE_S = 5.0
POLL_S = 0.1

# An inspect of these alone never shows the environment, where secrets are.
LOOK = "{{.Id}} {{json .State}}"


class RuntimeFailedError(Exception):
    """The runtime did not answer, so nothing is known of its containers."""


class Look(NamedTuple):
    """A container as the runtime sees it.

    `pid` is the main process as this node counts; None when none runs. `start` is its start time,
    None where this node does not show the process. `code` is the exit code, None while it never ran
    or still runs.
    """

    id: str
    running: bool
    pid: Optional[int]
    start: Optional[int]
    code: Optional[int]
    oom_killed: bool


def _own_signals() -> None:
    # A supervisor blocks the signals that it waits for; a runtime must get its own.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def call(
    runtime: Sequence[str],
    *words: str,
    timeout_s: float = CALL_S,
    output: Union[int, BinaryIO] = subprocess.PIPE,
) -> "subprocess.CompletedProcess[str]":
    """Run the runtime's client with these words; with `output` both its streams go there.

    Raises:
        RuntimeFailedError: it is not there or did not end in time. A non-zero exit is an answer.
    """
    argv = [*runtime, *words]
    mark = uuid.uuid4().hex
    try:
        process = subprocess.Popen(
            argv,
            env=dict(os.environ, **{"LC_ALL": "C", TOOL_MARK: mark}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE if output == subprocess.PIPE else subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_own_signals,
        )
    except OSError as error:
        raise RuntimeFailedError("cannot run %s: %s" % (argv[0], error.strerror)) from error
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # sudo's child is another user's; it is left to end by itself.
        with contextlib.suppress(OSError):
            process.kill()
        raise RuntimeFailedError(
            "%s gave no answer within %g s" % (" ".join(argv[:4]), timeout_s)
        ) from None
    if words[0] in QUESTIONS and LEAVING in runtime:
        end_marked(mark)
    texts = [(data or b"").decode("utf-8", "replace") for data in (stdout, stderr)]
    return subprocess.CompletedProcess(argv, process.returncode, texts[0], texts[1])


def _answer(runtime: Sequence[str], *words: str) -> str:
    done = call(runtime, *words)
    if done.returncode != 0:
        said = done.stderr.strip()[-300:] or "exit code %d" % done.returncode
        raise RuntimeFailedError("%s %s: %s" % (runtime[-1], words[0], said))
    return done.stdout


def find(runtime: Sequence[str], boot_id: str) -> List[str]:
    """Return the ids of the containers of a start, ended ones too.

    Raises:
        RuntimeFailedError: the runtime does not say; that is not the same as none.
    """
    label = "label=%s=%s" % (LABEL, boot_id)
    return _answer(runtime, "ps", "-aq", "--no-trunc", "--filter", label).split()


def parse_look(text: str) -> Look:
    """Parse the answer to an inspect with the format LOOK. ValueError if it is none."""
    container_id, _space, rest = text.strip().partition(" ")
    state = json.loads(rest)
    if not container_id or not isinstance(state, dict):
        raise ValueError("not a container's state")
    running = state.get("Running") is True
    pid = state.get("Pid")
    pid = pid if running and isinstance(pid, int) and pid > 0 else None
    code = state.get("ExitCode")
    ran = state.get("Status") in ("exited", "stopped", "dead")
    return Look(
        container_id,
        running,
        pid,
        None,
        code if ran and isinstance(code, int) else None,
        state.get("OOMKilled") is True,
    )


def look_at(runtime: Sequence[str], container_id: str) -> Optional[Look]:
    """Return a container as it is now; None when there is none of this id or name.

    Raises:
        RuntimeFailedError: the runtime does not say.
    """
    done = call(runtime, "inspect", "--type", "container", "--format", LOOK, container_id)
    if done.returncode != 0:
        said = done.stderr.lower()
        if "no such container" in said or "no such object" in said:
            return None
        raise RuntimeFailedError("%s inspect: %s" % (runtime[-1], done.stderr.strip()[-300:]))
    try:
        look = parse_look(done.stdout)
    except ValueError as error:
        raise RuntimeFailedError("%s inspect gave %s" % (runtime[-1], error)) from error
    stat = None if look.pid is None else read_stat(look.pid)
    return look._replace(start=stat.start if stat else None)


def runs(look: Look) -> bool:
    """Say whether a container's main process runs: by /proc where it is seen, else as looked at."""
    if look.pid is None or look.start is None:
        return look.running
    return is_alive(look.pid, look.start)


def settled(runtime: Sequence[str], container_id: str) -> Optional[Look]:
    """Return a container, once the runtime has noted that its main process is gone if it is."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        look = look_at(runtime, container_id)
        if look is None or not look.running or runs(look) or time.monotonic() > deadline:
            return look
        time.sleep(POLL_S)


def stop(runtime: Sequence[str], container_id: str, grace_s: float) -> Optional[Look]:
    """Stop a container: TERM, `grace_s` to leave, KILL; return it as it is then, None if gone.

    Raises:
        RuntimeFailedError: the runtime does not say how it is.
    """
    look = settled(runtime, container_id)
    if look is None or not look.running:
        return look
    seconds = math.ceil(grace_s)
    for words, timeout_s in ((("stop", "-t", str(seconds)), seconds + CALL_S), (("kill",), CALL_S)):
        # The look below tells what came of it.
        with contextlib.suppress(RuntimeFailedError):
            call(runtime, *words, container_id, timeout_s=timeout_s)
        look = settled(runtime, container_id)
        if look is None or not look.running:
            break
    return look


def remove(runtime: Sequence[str], container_id: str) -> None:
    """Remove a container; whether it is gone is for `find` to say."""
    call(runtime, "rm", "-f", container_id)


def append_log(runtime: Sequence[str], container_id: str, path: str, since_s: int) -> None:
    """Append to a log what the runtime kept of a container's output since an epoch second."""
    with open(path, "ab", opener=private) as log:
        log.write(
            b"supervise: the container's client was lost; from the runtime's own log, where a "
            b"line above may come again:\n"
        )
        log.flush()
        call(runtime, "logs", "--since", str(since_s), container_id, output=log)


def end_all(runtime: Sequence[str], boot_id: str, grace_s: float) -> List[Look]:
    """Stop and remove all containers of a start; return them as they had ended.

    Raises:
        RuntimeFailedError: the runtime does not say.
    """
    ended = []
    for container_id in find(runtime, boot_id):
        look = stop(runtime, container_id, grace_s)
        if look is not None:
            ended.append(look)
            remove(runtime, container_id)
    return ended


def exit_of(look: Look) -> Any:
    """Return `{"code", "signal"}` of an ended container; runtimes give 128 + N for signal N."""
    if look.code is not None and 128 < look.code <= 128 + 64:
        return {"code": None, "signal": look.code - 128}
    return {"code": look.code, "signal": None}
