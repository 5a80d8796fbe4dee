"""What the ranks of a server say: read while they start, kept in the results."""

import os
from collections.abc import Callable
from pathlib import Path

from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch import boots, process
from servemap.server.launch.node_log import (
    HEAD_BYTES,
    TAIL_BYTES,
    bounded,
    log_reader,
    redacted,
    safe_cut,
)
from servemap.server.launch.process import Running


def keep_log(context: Context, node_id: str, rank: Running) -> None:
    """Copy a rank's log from its node into the results, credentials taken out, its length bounded.

    Of a log that is too long the beginning and the end are kept.
    """
    source = process.log_path(context.workdir(node_id), rank.boot_id)
    target = boots.log_file(context.run_dir, rank.variant, rank.boot_id, node_id)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", newline="") as kept:
            for text in redacted(bounded(context.nodes[node_id], source)):
                kept.write(text)
        temporary.replace(target)
    except NodeError as error:
        append_event(context.run_dir, "log_not_fetched", boot_id=rank.boot_id, error=error.what)
    except OSError as error:
        append_event(context.run_dir, "log_not_fetched", boot_id=rank.boot_id, error=str(error))
    finally:
        temporary.unlink(missing_ok=True)


def follow_logs(context: Context, ranks: dict[str, Running]) -> Callable[[], str]:
    """Return a function that gives the whole lines that all ranks said since its last call.

    Each state of a progress bar, which returns the carriage, is a line of its own.

    Each call adds them to the kept logs, so that a start can be watched in the results. A node
    that cannot be reached for a moment says nothing.
    """
    readers = {
        node_id: log_reader(
            context.nodes[node_id], process.log_path(context.workdir(node_id), rank.boot_id)
        )
        for node_id, rank in ranks.items()
    }
    begun = dict.fromkeys(ranks, "")

    def read(node_id: str) -> str:
        try:
            text = begun[node_id] + readers[node_id]()
        except ConnectionLostError:
            return ""
        cut = safe_cut(text)
        whole, begun[node_id] = text[:cut], text[cut:]
        if whole:
            rank = ranks[node_id]
            _add(boots.log_file(context.run_dir, rank.variant, rank.boot_id, node_id), whole)
        return whole

    return lambda: "\n".join(text for text in each(list(ranks), read).values() if text)


def _add(target: Path, text: str) -> None:
    """Add to a kept log as long as it is short; its end comes when the start is over."""
    with target.open("a", encoding="utf-8", newline="") as kept:
        if kept.tell() < HEAD_BYTES + TAIL_BYTES:
            kept.write(redact_text(text))
