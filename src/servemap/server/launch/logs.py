"""What the ranks of a server say: read while they start, kept in the results."""

from collections.abc import Callable
from pathlib import Path

from servemap.model.canon import write_text_atomic
from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.gates.ready import log_reader
from servemap.server.launch import boots, process
from servemap.server.launch.process import Running

MAX_REDACTED_BYTES = 50_000_000
"""A longer log is kept as it is: reading it would hold up the campaign."""


def keep_log(context: Context, node_id: str, rank: Running) -> None:
    """Copy a rank's log from its node into the results, credentials taken out."""
    source = process.log_path(context.workdir(node_id), rank.boot_id)
    target = boots.log_file(context.run_dir, rank.variant, rank.boot_id, node_id)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        context.nodes[node_id].get(source, target)
        _redact_file(target)
    except NodeError as error:
        append_event(context.run_dir, "log_not_fetched", boot_id=rank.boot_id, error=error.what)
    except OSError as error:
        target.unlink(missing_ok=True)
        append_event(context.run_dir, "log_not_fetched", boot_id=rank.boot_id, error=str(error))


def _redact_file(path: Path) -> None:
    if path.stat().st_size > MAX_REDACTED_BYTES:
        return
    text = path.read_bytes().decode("utf-8", "replace")  # keeps the ends of lines
    redacted = redact_text(text)
    if redacted != text:
        write_text_atomic(path, redacted)


def follow_logs(context: Context, ranks: dict[str, Running]) -> Callable[[], str]:
    """Return a function that gives the whole lines that all ranks said since its last call.

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
        whole, _, begun[node_id] = text.rpartition("\n")
        if whole:
            rank = ranks[node_id]
            target = boots.log_file(context.run_dir, rank.variant, rank.boot_id, node_id)
            with target.open("a", encoding="utf-8") as kept:
                kept.write(f"{redact_text(whole)}\n")
        return whole

    return lambda: "\n".join(text for text in each(list(ranks), read).values() if text)
