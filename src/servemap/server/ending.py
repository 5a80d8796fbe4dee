"""Ending the server, whoever started it, and keeping what it said."""

from pathlib import Path

from servemap.model.canon import write_text_atomic
from servemap.model.errors import NodeError
from servemap.onnode.redact import redact_text
from servemap.server import boots, process
from servemap.server.context import Context
from servemap.server.events import append_event

MAX_REDACTED_BYTES = 50_000_000
"""A longer log is kept as it is: reading it would hold up the campaign."""


def finish(context: Context, running: process.Running, status: boots.Status, reason: str) -> None:
    """Stop a server that may still run, keep its log, record how it ended."""
    node = context.head
    workdir = context.head_workdir
    reason = redact_text(reason)
    process.stop(node, workdir, running, context.policy.stop_grace_s)
    keep_log(context, running.variant, running.boot_id)
    boots.mark_ended(context.run_dir, running.variant, running.boot_id, status, reason)
    append_event(
        context.run_dir, "stop", variant=running.variant, boot_id=running.boot_id, reason=reason
    )


def stop_server(context: Context, reason: str) -> bool:
    """Stop the run's server, whichever variant it is; return whether there was one.

    Raises:
        LaunchError: it does not end.
    """
    running = process.read_running(context.head, context.head_workdir)
    if running is None:
        return False
    finish(context, running, "stopped", reason)
    return True


def keep_log(context: Context, variant: str, boot_id: str) -> None:
    """Copy a start's log from its node into the results, credentials taken out."""
    node = context.head
    source = process.log_path(context.head_workdir, boot_id)
    target = boots.boot_dir(context.run_dir, variant, boot_id) / f"{node.name}.log"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        node.get(source, target)
        _redact_file(target)
    except NodeError as error:
        append_event(context.run_dir, "log_not_fetched", boot_id=boot_id, error=error.what)
    except OSError as error:
        target.unlink(missing_ok=True)
        append_event(context.run_dir, "log_not_fetched", boot_id=boot_id, error=str(error))


def _redact_file(path: Path) -> None:
    if path.stat().st_size > MAX_REDACTED_BYTES:
        return
    text = path.read_bytes().decode("utf-8", "replace")  # keeps the ends of lines
    redacted = redact_text(text)
    if redacted != text:
        write_text_atomic(path, redacted)
