"""One rank's session of Nsight Systems, step by step; each step that fails is named.

checked (the tool is there and new enough) > launched (the session stands and collects nothing) >
started > stopped > collected (the report is there, whole) > exported (its database too).
"""

import time
from dataclasses import dataclass, field
from typing import Any

from servemap.engines import nsys
from servemap.measure.nsight.installed import ASK_S, WORDS, NsysError, State, last_words
from servemap.model.errors import NodeError
from servemap.model.files import parse_json
from servemap.nodes.base import Completed, Node
from servemap.parsers.values import integer, mapping, text

START_S = 60.0
STOP_S = 300.0
"""A stop answers when the report is written."""
EXPORT_S = 900.0
SETTLE_S = 60.0
PAUSE_S = 0.5


@dataclass
class RankSession:
    """Where a rank's session is and what became of it.

    Attributes:
        node: the rank's node.
        rank: its number.
        program: nsys, as it is called there.
        name: of the session.
        inside: words before each command that runs in the rank's container; none without one.
        env: variables of the rank that decide where nsys looks for its sessions.
        folder: where reports go, as nsys sees it.
        reached: {state: epoch ns of this machine}, in their order.
        said: what `timed` said of the start and of the stop.
        problem: the state that was not reached, and why; None where nothing went wrong.
    """

    node: Node
    rank: int
    program: str
    name: str
    folder: str
    inside: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: dict[str, str] | None = None

    @property
    def output(self) -> str:
        """The report without its ending."""
        return f"{self.folder}/rank{self.rank}"

    @property
    def where(self) -> str:
        """How errors name it."""
        return f"{self.node.name}: session {self.name}"

    def run(self, argv: list[str], limit_s: float = ASK_S) -> Completed:
        """Run a command where the session is."""
        return self.node.run([*self.inside, *argv], timeout_s=limit_s, env=self.env)

    def reach(self, state: State) -> None:
        """Note that a state was reached."""
        self.reached[state] = time.time_ns()

    def state_there(self) -> str | None:
        """Return the session's state as nsys tells it, None where it knows none of this name."""
        listed = self.run(nsys.sessions_argv(self.program))
        return nsys.read_sessions(listed.stdout).get(self.name)

    def failed(self, state: State, what: str, done: Completed | None, remedy: str) -> NsysError:
        """Return the error of a step, with the tool's own last words."""
        words = last_words(done.stdout, done.stderr) if done else ""
        return NsysError(state, what + (f": {words}" if words else ""), self.where, remedy)


def look_where(session: RankSession, pid: int) -> None:
    """Have nsys look for sessions where the rank of this pid has them: in its TMPDIR."""
    environ = session.node.run(["cat", f"/proc/{pid}/environ"], timeout_s=ASK_S).stdout
    pairs = (item.partition("=") for item in environ.split("\0"))
    session.env = {name: value for name, _, value in pairs if name == "TMPDIR"}


def see_launched(session: RankSession) -> None:
    """See that the session stands and collects nothing; end what was collected before.

    Raises:
        NsysError: it is not there, or is in another state.
    """
    state = session.state_there()
    if state == "Collection":
        session.run(nsys.cancel_argv(session.program, session.name), STOP_S)
        state = session.state_there()
    if state != "Launched":
        raise session.failed(
            "launched",
            "the server runs, but its session does not stand"
            + (f" (its state is {state})" if state else ""),
            None,
            "read the server's log for what nsys said; another user's nsys sees no session",
        )
    made = session.run(["mkdir", "-p", session.folder])
    if made.code:
        raise session.failed(
            "launched", "the folder of reports cannot be made", made, "let this user write there"
        )
    session.run(["rm", "-f", *_files(session)])
    session.reach("launched")


def start(session: RankSession, at_ns: int) -> None:
    """Begin to collect at a time of the node's clock.

    Raises:
        NsysError: the session refused.
    """
    argv = nsys.start_argv(session.program, session.name, session.output)
    _timed(session, "started", argv, at_ns, START_S)
    # A start that finds no session of this name makes an empty one, and says nothing of it.
    state = session.state_there()
    if state != "Collection":
        del session.reached["started"]
        raise session.failed(
            "started",
            f"nsys start said nothing, and the session is {state or 'gone'} and collects nothing",
            None,
            "see that the server still runs, then take the capture again",
        )


def stop(session: RankSession, at_ns: int) -> None:
    """End collecting at a time of the node's clock.

    Raises:
        NsysError: the session is gone, or no report was finished in time.
    """
    _timed(session, "stopped", nsys.stop_argv(session.program, session.name), at_ns, STOP_S)


def _timed(session: RankSession, state: State, argv: list[str], at_ns: int, limit_s: float) -> None:
    words = ["timed", "--at", str(at_ns), "--limit", str(limit_s), "--", *session.inside, *argv]
    wait_s = max(0.0, (at_ns - time.time_ns()) / 1e9)
    done = session.node.run(
        session.node.agent_argv(*words),
        timeout_s=2 * wait_s + limit_s + ASK_S,
        env=session.env,
    )
    try:
        said = mapping(parse_json(done.stdout.encode()))
    except ValueError:
        said = {}
    session.said[state] = said
    if said.get("code") == 0:
        session.reach(state)
        return
    word = "start" if state == "started" else "stop"
    said_words = last_words(text(said.get("stdout")) or "", text(said.get("stderr")) or "")
    why = text(said.get("error")) or said_words or done.stderr.strip()[-WORDS:] or "no answer"
    raise NsysError(
        state,
        f"nsys {word} failed: {why}",
        session.where,
        "see `nsys sessions list` there; the capture can be taken again"
        if state == "started"
        else "see that the server still runs and the disk has room, then take the capture again",
    )


def _files(session: RankSession) -> list[str]:
    return [session.output + end for end in (nsys.REPORT, nsys.UNFINISHED, nsys.EXPORT)]


def collect(session: RankSession) -> None:
    """Wait until the report is there and does not grow.

    Raises:
        NsysError: it is not, or only what an importer would make it of.
    """
    sizes: dict[str, int] = {}
    last = -1
    deadline = time.monotonic() + SETTLE_S
    while True:
        listed = session.run(["stat", "-c", "%s %n", *_files(session)])
        pairs = [line.split(" ", 1) for line in listed.stdout.splitlines() if " " in line]
        sizes = {name: int(size) for size, name in pairs if size.isdigit()}
        size = sizes.get(session.output + nsys.REPORT, 0)
        if size and size == last:
            session.reach("collected")
            return
        last = size
        if time.monotonic() > deadline or (not size and session.output + nsys.UNFINISHED in sizes):
            break
        time.sleep(PAUSE_S)
    if session.output + nsys.UNFINISHED in sizes:
        raise NsysError(
            "collected",
            f"nsys left a {nsys.UNFINISHED} file and no report: its importer is not there",
            session.where,
            "install the host part of Nsight Systems beside it too (package nsight-systems)",
        )
    heard = session.said.get("stopped", {})
    words = last_words(text(heard.get("stdout")) or "", text(heard.get("stderr")) or "")
    why = "it still grows" if size else f"there is none; nsys stop said: {words or 'nothing'}"
    raise NsysError(
        "collected",
        f"the report is not whole after {SETTLE_S:g} s: {why}",
        session.where,
        "see that the disk has room, then take the capture again with fewer `seconds`",
    )


def export(session: RankSession) -> None:
    """Make a database of the report.

    Raises:
        NsysError: the report cannot be read.
    """
    argv = nsys.export_argv(
        session.program, session.output + nsys.REPORT, session.output + nsys.EXPORT
    )
    done = session.run(argv, EXPORT_S)
    there = session.run(["test", "-s", session.output + nsys.EXPORT])
    if done.code or there.code:
        raise session.failed(
            "exported",
            "nsys export failed",
            done,
            "the report is kept; export it by hand: nsys export --type sqlite FILE.nsys-rep",
        )
    session.reach("exported")


def abandon(session: RankSession) -> str | None:
    """Throw away what is being collected; return in words what may go on, None if nothing.

    A session that does not end so is ended with its server.
    """
    try:
        if session.state_there() != "Collection":
            return None
        session.run(nsys.cancel_argv(session.program, session.name), STOP_S)
        if session.state_there() != "Collection":
            return None
        session.run(nsys.shutdown_argv(session.program, session.name), STOP_S)
        if session.state_there() in (None, "Shutdown"):
            return None
    except NodeError as error:
        return f"session {session.name} may still collect on {session.node.name} ({error.what})"
    return f"session {session.name} still collects on {session.node.name}"


def record(session: RankSession) -> dict[str, Any]:
    """Return what became of the session, for capture.json."""
    times = {
        state: {key: integer(said.get(key)) for key in ("asked_ns", "began_ns", "ended_ns")}
        for state, said in session.said.items()
    }
    return {
        "rank": session.rank,
        "session": session.name,
        "state": next(reversed(session.reached), None),
        "reached": dict(session.reached),
        "times": times,
        "problem": session.problem,
    }
