"""A controller's session: begun before the first job of a real execution, ended after the last."""

import contextlib
import sys
import threading
import uuid
from pathlib import Path
from typing import TextIO

from servemap.engines.registry import get_adapter
from servemap.model.canon import write_json_atomic
from servemap.model.errors import LockedError, ResultsError, ServemapError
from servemap.onnode.redact import redact_text
from servemap.server import process
from servemap.server.context import Context
from servemap.server.ending import stop_server
from servemap.server.events import append_event
from servemap.server.lease import check_lease, release_lease, take_lease
from servemap.server.locks import describe_self, fence_orphan, read_holder, say_holder, try_lock
from servemap.server.manifest import check_manifest, write_manifest

# Held until this process ends: the kernel releases the lock even after kill -9.
_run_lock: list[TextIO] = []
_ended = threading.Event()


def begin(context: Context) -> None:
    """Take the run and its nodes for this process, and fence what a dead controller left.

    Raises:
        ConfigError: this version cannot reach a node or start an engine of the campaign.
        LockedError: another controller drives the run or a node.
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
    lock_path = run_dir / ".lock"
    if not lock_path.exists():
        # A run that never began has no lock to ask, and a refused one leaves no folder.
        for node in context.nodes:
            check_lease(node)
    handle = try_lock(lock_path, session)
    if handle is None:
        holder = read_holder(lock_path)
        raise LockedError(
            f"run {context.run!r} is already driven by {say_holder(holder)}",
            str(lock_path),
            f"watch it with `servemap status {context.run}`, end it with "
            f"`servemap stop {context.run} --after-case --reason TEXT`",
        )
    _run_lock.append(handle)
    for node in context.nodes:
        take_lease(node, run_dir)
    fenced = fence_orphan(run_dir)
    write_json_atomic(run_dir / ".session.json", session)
    write_manifest(run_dir, context.plan.campaign, session)
    append_event(run_dir, "session_begin", session=session["session"], pid=session["pid"])
    if fenced:
        append_event(run_dir, "fence", pid=fenced.get("pid"), job=fenced.get("job"))
    threading.Thread(target=_renew, args=(context,), name="renew", daemon=True).start()


def _check_drivable(context: Context) -> None:
    """Refuse what this version can only plan for: other transports, engines it cannot start.

    Raises:
        ConfigError: names the node or the engine.
    """
    _ = context.nodes  # connects to each
    for variant in context.plan.items().variants:
        get_adapter(context.server(variant))


def _renew(context: Context) -> None:
    """Renew the server's lease on every node while this process lives."""
    pause_s = min(context.policy.lease_ttl_s / 4, 15.0)
    while not _ended.is_set():
        for node_id, node in context.nodes.items():
            with contextlib.suppress(ServemapError):
                process.renew(node, context.workdir(node_id))
        _ended.wait(pause_s)


def end(context: Context, reason: str, logs: list[Path]) -> None:
    """Stop the server, give the nodes back, keep Snakemake's logs; errors are said, not raised.

    A controller that never got the run's lock ends nothing.
    """
    if not _run_lock:
        return
    _ended.set()
    for step in (
        lambda: stop_server(context, reason),
        lambda: release_lease(context.run_dir),
        lambda: append_event(context.run_dir, "session_end", reason=reason),
        lambda: _keep_logs(logs, context.run_dir / "run.log"),
    ):
        try:
            step()
        except (ServemapError, OSError) as error:
            print(error, file=sys.stderr)  # noqa: T201 - the controller's last word to a person


def _keep_logs(logs: list[Path], target: Path) -> None:
    """Append Snakemake's logs of this session to the run's."""
    with target.open("a", encoding="utf-8") as handle:
        for log in logs:
            handle.write(log.read_text(encoding="utf-8", errors="replace"))
