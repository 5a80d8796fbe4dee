"""What tests of a really started server share: its session, its processes, what it leaves."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from servemap.onnode.segments import mapped
from servemap.server.context import Context
from servemap.server.hold import session
from servemap.server.launch import boots
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError


@contextmanager
def begun(context: Context) -> Iterator[None]:
    """A session; after it nothing of the server is left, whatever happened to it."""
    session._ended.clear()
    session.begin(context)
    used: set[str] = set()
    try:
        yield
        used |= mapped([one.pid for one in marked(start_ids(context))])
    finally:
        session.end(context, "the campaign ended", [])
        while session._run_lock:
            session._run_lock.pop().close()
    assert [" ".join(one.cmdline()) for one in marked(start_ids(context))] == []
    assert [path for path in used if Path(path).exists()] == []


@contextmanager
def swept(context: Context) -> Iterator[None]:
    """Remove the shared memory of starts that end before servemap has looked at what they map."""
    ended = threading.Event()
    used: set[str] = set()

    def look() -> None:
        while not ended.wait(0.1):
            used.update(mapped([one.pid for one in marked(start_ids(context))]))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for path in used:
            Path(path).unlink(missing_ok=True)


def start_ids(context: Context) -> set[str]:
    """Ids of all starts of this run."""
    return {boot.boot_id for boot in boots.read_boots(context.run_dir, "baseline")}


def marked(boot_ids: set[str]) -> list[psutil.Process]:
    """The living processes that carry the mark of a start, the first one first."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = boot_ids & set(process.environ().values())
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return sorted(found, key=lambda one: one.create_time())


def named(context: Context, name: str) -> psutil.Process:
    """The process of the newest start that calls itself so."""
    newest = {boots.read_boots(context.run_dir, "baseline")[-1].boot_id}
    return next(one for one in marked(newest) if name in " ".join(one.cmdline()))


def gate(context: Context, served: Served) -> dict[str, Any]:
    """The record of the start's gates."""
    assert served.boot_id is not None
    folder = boots.boot_dir(context.run_dir, "baseline", served.boot_id)
    found: dict[str, Any] = json.loads((folder / "gate.json").read_text())
    return found


def log_of(context: Context) -> str:
    """The log of the newest start."""
    boot = boots.read_boots(context.run_dir, "baseline")[-1]
    return boots.log_file(context.run_dir, "baseline", boot.boot_id, "n1").read_text()


def refused(context: Context) -> NotRunError:
    """What a launch that must fail says."""
    with begun(context), pytest.raises(NotRunError) as caught:
        ensure_server(context, "baseline")
    return caught.value
