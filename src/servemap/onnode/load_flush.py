"""Emptying a server's prefix cache through its own endpoint, before what is measured.

What engines answer, from their sources: vLLM 0.32.0 says 200 and `{"success": false}`, SGLang
0.5.23 says 400, while blocks are still held or requests still run; both may be asked again.
"""

import json
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from .ask import Reply, ask, shorten
from .checked import Table, refuse

ANSWER_S = 10.0
"""Longest that one answer is waited for."""

BUSY_S = 20.0
"""How long a server that refuses is asked again."""

PAUSE_S = 0.25
BUSY = (400, 409, 425, 429, 503)
METHODS = ["POST", "GET"]


class Flush(NamedTuple):
    """The endpoint: its whole path on the server's host, and the method that it takes."""

    path: str
    method: str


def parse_flush(raw: Any) -> Optional[Flush]:
    """Check the key `flush` of a specification; raises SpecError."""
    if raw is None:
        return None
    table = Table(raw, "flush")
    flush = Flush(table.text("path"), table.choice("method", METHODS, "POST"))
    table.finish()
    if not flush.path.startswith("/") or not flush.path.isascii() or " " in flush.path:
        refuse("flush.path", flush.path, "give the path on the server, e.g. /flush_cache")
    return flush


def judge_flush(reply: Reply) -> Tuple[Optional[str], bool]:
    """Return why the cache was not emptied (None: it was), and whether asking again may help."""
    if reply["error"] is not None:
        again = reply["status"] in BUSY
        hint = "" if reply["status"] != 404 else "; the server does not offer it"
        return f"{reply['error']}{hint}", again
    try:
        said = json.loads(reply["text"])
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and said.get("success") is False:
        return f"the server says {shorten(reply['text'])}", True
    return None, False


def empty_cache(
    before: str,
    authority: str,
    flush: Flush,
    api_key: Optional[str],
    deadline_s: float,
    stop: Callable[[], Optional[str]],
    epoch_ns: int,
) -> Dict[str, Any]:
    """Ask until the cache is emptied or that is hopeless; return what happened.

    Args:
        before: name of the segment that follows.
        authority: HOST:PORT of the server.
        flush: the endpoint.
        api_key: goes with the request as a bearer token.
        deadline_s: monotonic time by which the whole load must have ended.
        stop: says why the client must stop, if it must.
        epoch_ns: what turns this process's monotonic ns into epoch ns.

    Returns `before`, `method`, `path`, `start_ns` and `end_ns` (epoch), `tries`, the last answer's
    `status` and `answer` (cut), and `problem`: None where the cache was emptied.
    """
    body: Optional[Dict[str, Any]] = {} if flush.method == "POST" else None
    start_ns = time.monotonic_ns()
    give_up_s = min(deadline_s, start_ns / 1e9 + BUSY_S)
    tries = 0
    while True:
        tries += 1
        left_s = max(deadline_s - time.monotonic(), 0.001)
        url = f"http://{authority}{flush.path}"
        reply = ask(url, min(ANSWER_S, left_s), body, bearer=api_key)
        problem, again = judge_flush(reply)
        if not again or stop() is not None or time.monotonic() + PAUSE_S > give_up_s:
            break
        time.sleep(PAUSE_S)
    return {
        "before": before,
        "method": flush.method,
        "path": flush.path,
        "start_ns": start_ns + epoch_ns,
        "end_ns": time.monotonic_ns() + epoch_ns,
        "tries": tries,
        "status": reply["status"],
        "answer": shorten(reply["text"]),
        "problem": problem,
    }


def why_kept(done: Dict[str, Any]) -> Optional[str]:
    """Return in words why what `empty_cache` did was in vain; None where it was not."""
    if done["problem"] is None:
        return None
    return (
        f"the prefix cache was not emptied before {done['before']}: {done['method']} "
        f"{done['path']}: {done['problem']} (asked {done['tries']} times)"
    )
