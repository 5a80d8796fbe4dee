"""Ending the server, whoever started it, and keeping what it said."""

from servemap.model.errors import NodeError
from servemap.server import boots, process
from servemap.server.context import Context
from servemap.server.events import append_event


def finish(context: Context, running: process.Running, status: boots.Status, reason: str) -> None:
    """Stop a server that may still run, keep its log, record how it ended."""
    node = context.head
    workdir = context.head_workdir
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
    """Copy a start's log from its node into the results."""
    node = context.head
    source = process.log_path(context.head_workdir, boot_id)
    target = boots.boot_dir(context.run_dir, variant, boot_id) / f"{node.name}.log"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        node.get(source, target)
    except NodeError as error:
        append_event(context.run_dir, "log_not_fetched", boot_id=boot_id, error=error.what)
