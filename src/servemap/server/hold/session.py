"""A controller's session: begun before the first job of a real execution, ended after the last."""

import contextlib
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from servemap.engines.registry import get_engine
from servemap.model.canon import write_json_atomic
from servemap.model.errors import (
    ConnectionLostError,
    LockedError,
    NodeError,
    ResultsError,
    ServemapError,
)
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.hold.lease import (
    LEASE_RENEW_S,
    check_lease,
    release_lease,
    renew_lease,
    take_lease,
)
from servemap.server.hold.manifest import check_manifest, write_manifest
from servemap.server.launch import process
from servemap.server.launch.commands import check_commands
from servemap.server.launch.ending import stop_server
from servemap.server.locks import (
    describe_self,
    fence_orphan,
    read_holder,
    say_holder,
    server_lock,
    try_lock,
)
from servemap.server.stop import request_stop

# Held until this process ends: the kernel releases the lock even after kill -9.
_run_lock: list[TextIO] = []
_ended = threading.Event()
_renewers: dict[str, threading.Thread] = {}


def begin(context: Context) -> None:
    """Take the run and all its nodes for this process, and fence what a dead controller left.

    What was taken is given back where this fails, and a run that never began leaves no folder.

    Raises:
        ConfigError: this version cannot reach a node or start an engine of the campaign.
        LockedError: another controller drives the run or a node.
        NodeError: a node cannot be reached, or takes no lease.
        ResultsError: the results folder is another campaign's or another version's, or cannot be
            written.
    """
    try:
        _begin(context)
    except OSError as error:
        raise ResultsError(
            f"the session cannot begin: {error.strerror}",
            str(error.filename or context.run_dir),
            "let this user write there, and see that the disk has room",
        ) from error


def _begin(context: Context) -> None:
    run_dir = context.run_dir
    check_manifest(run_dir, context.plan.campaign)
    _check_drivable(context)
    session = describe_self(
        session=str(uuid.uuid4()), argv=[redact_text(word) for word in sys.argv]
    )
    began = (run_dir / ".lock").exists()
    if not began:
        # A run that never began has no lock to ask, and a refused one leaves no folder.
        _on_each(context, lambda node_id: check_lease(context.nodes[node_id]))
    handle = _lock_run(context, session)
    try:
        _take_nodes(context)
        fenced = fence_orphan(run_dir)
        write_json_atomic(run_dir / ".session.json", session)
        write_manifest(run_dir, context.plan.campaign, session)
        append_event(run_dir, "session_begin", session=session["session"], pid=session["pid"])
        if fenced:
            append_event(run_dir, "fence", pid=fenced.get("pid"), job=fenced.get("job"))
    except BaseException:
        _undo(context, handle, began)
        raise
    _run_lock.append(handle)
    for node_id in context.nodes:
        renewer = threading.Thread(
            target=_renew, args=(context, node_id), name=f"renew {node_id}", daemon=True
        )
        _renewers[node_id] = renewer
        renewer.start()


def _check_drivable(context: Context) -> None:
    """Refuse what would fail at each launch: transports and commands that there are none of.

    Raises:
        ConfigError: names the node, or the key that the engine cannot do.
    """
    _ = context.nodes  # finds a transport for each
    for variant in context.plan.items().variants:
        server = context.server(variant)
        if not server.attach:
            check_commands(context, variant, server, get_engine(server.engine))


def _lock_run(context: Context, session: dict[str, Any]) -> TextIO:
    path = context.run_dir / ".lock"
    handle = try_lock(path, session)
    if handle is None:
        raise LockedError(
            f"run {context.run!r} is already driven by {say_holder(read_holder(path))}",
            str(path),
            f"watch it with `servemap status {context.run}`, end it with "
            f"`servemap stop {context.run} --after-case --reason TEXT`",
        )
    return handle


def _on_each(context: Context, function: Callable[[str], None]) -> None:
    each(list(context.nodes), function)


def _take_nodes(context: Context) -> None:
    """Take all nodes; nothing is taken anywhere where one of them cannot be reached."""
    _on_each(context, lambda node_id: _reach(context, node_id))
    _on_each(context, lambda node_id: take_lease(context.nodes[node_id], context.run_dir))


def _reach(context: Context, node_id: str) -> None:
    context.nodes[node_id].state_dir()


def _undo(context: Context, handle: TextIO, began: bool) -> None:
    """Give everything back after a begin that failed; what cannot be reached becomes stale."""

    def give_back(node_id: str) -> None:
        node = context.nodes[node_id]
        with contextlib.suppress(ServemapError):
            release_lease(node, context.run_dir)
        with contextlib.suppress(ServemapError):
            node.close()

    _on_each(context, give_back)
    if not began:
        with contextlib.suppress(OSError):
            (context.run_dir / ".lock").unlink()
            (context.run_dir / ".server.lock").unlink(missing_ok=True)
            context.run_dir.rmdir()
    handle.close()


def _renew(context: Context, node_id: str) -> None:
    """Renew the server's lease and the node's own while this process lives; a thread per node.

    A connection that is lost is tried again at the next turn, and holds no other node up.
    """
    node = context.nodes[node_id]
    pause_s = min(context.policy.lease_ttl_s / 4, LEASE_RENEW_S)
    due_s = time.monotonic() + LEASE_RENEW_S
    while not _ended.is_set():
        with contextlib.suppress(ServemapError):
            process.renew(node, context.workdir(node_id))
        try:
            if time.monotonic() >= due_s:
                renew_lease(node, context.run_dir)
                due_s = time.monotonic() + LEASE_RENEW_S
        except LockedError as error:
            _lose(context, node_id, error)
            return
        except NodeError:
            pass  # tried again at the next turn
        _ended.wait(pause_s)


def _lose(context: Context, node_id: str, error: LockedError) -> None:
    """Measure nothing more: while a node was out of reach, another campaign took it."""
    text = f"the lease of a node was lost: {error.what}"
    with contextlib.suppress(OSError):
        request_stop(context.run_dir, context.session, "abort", text)
        append_event(context.run_dir, "lease_lost", node=node_id, error=error.what)


def end(context: Context, reason: str, logs: list[Path]) -> None:
    """Stop the server, give the nodes back, keep Snakemake's logs; errors are said, not raised.

    A controller that never got the run's lock ends nothing.
    """
    if not _run_lock:
        return
    steps: list[Callable[[], object]] = [
        lambda: _stop(context, reason),
        lambda: _give_back(context),
        lambda: append_event(context.run_dir, "session_end", reason=reason),
        lambda: _keep_logs(logs, context.run_dir / "run.log"),
    ]
    for step in steps:
        try:
            step()
        except (ServemapError, OSError) as error:
            _say(error)


def _say(text: object) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - the controller's last word to a person


def _stop(context: Context, reason: str) -> None:
    """Stop the server; a job that outlived Snakemake and still measures it is ended first."""
    try:
        with server_lock(context.run_dir, "the end of the session"):
            stop_server(context, reason)
    except LockedError:
        fence_orphan(context.run_dir)
        with server_lock(context.run_dir, "the end of the session"):
            stop_server(context, reason)


def _give_back(context: Context) -> None:
    """Release every node's lease and close its connection, whatever becomes of the others."""
    _ended.set()

    def give_back(node_id: str) -> None:
        node = context.nodes[node_id]
        _renewers[node_id].join()  # a renewal under way would take the lease again
        try:
            release_lease(node, context.run_dir)
            node.close()
        except ConnectionLostError as error:
            _say(
                f"node {node_id}: its lease was not given back: {error.what}; what still runs "
                "there ends by itself: load and collectors within their case's time limit, a "
                f"server when nobody renewed it for {context.policy.lease_ttl_s:g} s"
            )
        except NodeError as error:
            _say(f"node {node_id}: its lease was not given back: {error.what}")

    _on_each(context, give_back)


def _keep_logs(logs: list[Path], target: Path) -> None:
    """Append Snakemake's logs of this session to the run's."""
    with target.open("a", encoding="utf-8") as handle:
        for log in logs:
            handle.write(log.read_text(encoding="utf-8", errors="replace"))
