"""A rank's log on its node, read in bounded pieces however long it or a line of it is."""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator

from servemap.model.errors import NodeError
from servemap.nodes.base import PIECE_BYTES, Node
from servemap.onnode.redact import hidden_values, redact_text

HEAD_BYTES, TAIL_BYTES = 1 << 20, 63 << 20
"""What is kept of a log that is longer than both: how it began and what it said last."""
LOOK_BYTES = 4 << 20
"""How much of a log's end is looked at for what went wrong."""
LINE_CHARS = 1 << 20
"""A line without an end is cut when it is longer."""
SHOWN_CHARS = 4096
HOLD_CHARS = 1 << 16
STAT_S = 30.0
KEY, KEY_END = "-----BEGIN ", re.compile(r"-----END [A-Z ]*-----.*\n")


def log_size(node: Node, path: str) -> int:
    """Return how many bytes a log has.

    Raises:
        NodeError: there is none.
    """
    done = node.run(["stat", "-L", "-c", "%s", "--", path], timeout_s=STAT_S)
    if done.code != 0 or not done.stdout.strip().isdigit():
        raise NodeError(
            f"the log cannot be read: {redact_text(done.stderr.strip())[-300:]}",
            f"node {node.name}: {path}",
            "see that the file is there and this user may read it",
        )
    return int(done.stdout)


def pieces(node: Node, path: str, begin: int, end: int) -> Iterator[bytes]:
    """Yield what a file holds between two offsets."""
    while begin < end:
        data = node.read_since(path, begin, min(PIECE_BYTES, end - begin))
        if not data:
            return
        begin += len(data)
        yield data


def bounded(
    node: Node, path: str, head: int = HEAD_BYTES, tail: int = TAIL_BYTES
) -> Iterator[bytes]:
    """Yield a log, or its first and last bytes with a line between that says what is left out.

    Raises:
        NodeError: there is none, or the node cannot be asked.
    """
    size = log_size(node, path)
    if size <= head + tail:
        yield from pieces(node, path, 0, size)
        return
    begun = b"".join(pieces(node, path, 0, head))
    yield begun[: begun.rfind(b"\n") + 1] or begun
    left_out = f"[servemap: about {size - head - tail} bytes are left out here; "
    yield f"\n{left_out}the whole log is on node {node.name}: {path}]\n".encode()
    ended = pieces(node, path, size - tail, size)
    first = next(ended, b"")
    yield first[first.find(b"\n") + 1 :]
    yield from ended


def log_reader(node: Node, path: str) -> Callable[[], str]:
    """Return a function that gives what a log on a node gained since its last call.

    The log is one start's own, so the first call begins with its first byte. What it gains faster
    than it is read is passed over, up to its last piece.
    """
    offset = 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> str:
        nonlocal offset
        data = node.read_since(path, offset, PIECE_BYTES)
        offset += len(data)
        text = decoder.decode(data)
        if len(data) == PIECE_BYTES:
            behind = log_size(node, path) - offset - PIECE_BYTES
            if behind > 0:
                offset += behind
                decoder.reset()
                text += f"\n[servemap: {behind} bytes are passed over here]\n"
        return text

    return read


def read_log(node: Node, path: str) -> str:
    """Return the beginning and the end of a log, its long lines cut; empty where there is none."""
    try:
        data = b"".join(bounded(node, path, HEAD_BYTES, LOOK_BYTES))
    except NodeError:
        return ""
    text = data.decode("utf-8", "replace")
    return "".join(
        line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}\n"
        for line in text.splitlines(keepends=True)
    )


def redacted(data: Iterable[bytes]) -> Iterator[str]:
    """Yield a log's text with credentials taken out, in pieces of a bounded length."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = ""
    for piece in data:
        held += decoder.decode(piece)
        cut = safe_cut(held)
        if cut:
            yield redact_text(held[:cut])
            held = held[cut:]
    held += decoder.decode(b"", True)
    if held:
        yield redact_text(held)


def safe_cut(text: str) -> int:
    """Return where a text that goes on may be cut so that no credential lies across; 0 if nowhere.

    That is after a line, and before a key whose end is still to come.
    """
    limit = len(text)
    key = text.rfind(KEY)
    if key >= 0 and limit - key < HOLD_CHARS and not KEY_END.search(text, key):
        limit = key
    cut = max(text.rfind("\n", 0, limit), text.rfind("\r", 0, limit)) + 1
    if cut or limit <= LINE_CHARS:
        return cut
    cut = limit - HOLD_CHARS
    cut = text.rfind(" ", 0, cut) + 1 or cut
    for value in hidden_values():
        across = text.find(value, max(0, cut - len(value) + 1), cut + len(value) - 1)
        if across >= 0:
            cut = across
    return cut
