"""A controller's session: begun before the first job of a real execution, ended after the last."""

import contextlib
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

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
from servemap.server.events import append_event, read_events, session_lines
from servemap.server.hold.lease import (
    LEASE_RENEW_S,
    LEASE_TTL_S,
    check_lease,
    release_lease,
    renew_lease,
    take_lease,
)
from servemap.server.hold.leftover import left_running
from servemap.server.hold.manifest import check_manifest, write_manifest
from servemap.server.launch import process
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
        ConfigError: this version cannot reach a node of the campaign.
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
    _ = context.nodes  # finds a transport for each
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
    """Take all nodes; nothing is taken anywhere where one of them cannot be reached or used."""
    _on_each(context, lambda node_id: _reach(context, node_id))
    _on_each(
        context,
        lambda node_id: take_lease(context.nodes[node_id], context.run_dir, _ttl_s(context)),
    )
    _on_each(context, lambda node_id: _write_there(context, node_id))


def _ttl_s(context: Context) -> float:
    """Return when a node's lease is stale: not before a server that nobody renews has ended."""
    policy = context.policy
    return max(LEASE_TTL_S, policy.lease_ttl_s + policy.stop_grace_s + LEASE_RENEW_S)


def _reach(context: Context, node_id: str) -> None:
    context.nodes[node_id].state_dir()


def _write_there(context: Context, node_id: str) -> None:
    """Write the server's heartbeat once, so that a folder that takes no file is noticed now.

    Raises:
        NodeError: the run's folder on the node cannot be written to.
    """
    folder = context.workdir(node_id)
    try:
        process.own_folder(context.nodes[node_id], folder)
        process.renew(context.nodes[node_id], folder)
    except ConnectionLostError:
        raise
    except NodeError as error:
        raise NodeError(
            f"the run's folder on node {node_id} cannot be written to: {error.what}",
            f"{node_id}:{folder}",
            f"let the node's user write there, or name another folder as nodes.{node_id}.workdir",
        ) from error


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
    ttl_s = _ttl_s(context)
    due_s = time.monotonic() + LEASE_RENEW_S
    while not _ended.is_set():
        with contextlib.suppress(ServemapError):
            process.renew(node, context.workdir(node_id))
        try:
            if time.monotonic() >= due_s:
                renew_lease(node, context.run_dir, ttl_s)
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
        lambda: _keep_logs(context, logs),
    ]
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - the leases are given back whatever a step meets
            _say(error if isinstance(error, ServemapError | OSError) else repr(error))


def _say(text: object) -> None:
    print(redact_text(str(text)), file=sys.stderr)  # noqa: T201 - the controller's last word to a person


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
    """Release the nodes' leases and close their connections, whatever becomes of the others.

    A node on which a server of ours still runs, or may, keeps its lease until that is stale.
    """
    _ended.set()
    left = {one.node: one.reason for one in left_running(context)}

    def give_back(node_id: str) -> None:
        node = context.nodes[node_id]
        _renewers[node_id].join()  # a renewal under way would take the lease again
        if node_id in left:
            _say_left(context, node_id, left[node_id])
        else:
            try:
                release_lease(node, context.run_dir)
            except NodeError as error:
                _say(f"node {node_id}: its lease was not given back: {error.what}")
        node.close()

    _on_each(context, give_back)


def _say_left(context: Context, node_id: str, why: str) -> None:
    """Name what is left on a node, in the run's events and in one line."""
    append_event(context.run_dir, "lease_kept", node=node_id, reason=why)
    _say(
        f"node {node_id}: its lease was not given back: {why}; what still runs "
        "there ends by itself: load and collectors within their case's time limit, a "
        f"server when nobody renewed it for {context.policy.lease_ttl_s:g} s"
    )


def _keep_logs(context: Context, logs: list[Path]) -> None:
    """Append Snakemake's logs of this session to the run's.

    Snakemake writes nothing with `--quiet all`; what was done is then told from the run's events.
    """
    texts = [log.read_text(encoding="utf-8", errors="replace") for log in logs]
    with (context.run_dir / "run.log").open("a", encoding="utf-8") as handle:
        handle.writelines(texts)
        if not "".join(texts).strip():
            handle.writelines(session_lines(read_events(context.run_dir)))
