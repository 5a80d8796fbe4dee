"""Command lines of Nsight Systems, for a server that it launches and traces for a short time.

A session is launched with the server and collects nothing until it is told to start, so the start
of the server and its warm-up are not in the report. Options as `nsys COMMAND --help` of 2022.4 and
2023.4 gives them: `launch` takes what is traced, `start` where the report goes and whether the CPU
is sampled. Which names `--trace` knows is asked of the tool itself: `nccl` is one of them only in
recent versions (the release notes name advanced NCCL tracing in 2025.6); before, NCCL's calls are
among the NVTX ranges.
"""

import json
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

LEAST = (2022, 4)
"""The oldest version whose options were compared with what is built here."""

TRACES = ("cuda", "nvtx", "osrt", "nccl")
"""What is traced, as far as the tool can."""

MARK = "SERVEMAP_NSYS"
"""In a server's environment where nsys launches it: how, see `Launch`."""

REPORT = ".nsys-rep"
UNFINISHED = ".qdstrm"
"""What is left of a recording where the tool's importer did not make a report of it."""
EXPORT = ".sqlite"

Graphs = Literal["node", "graph"]

_VERSION = re.compile(r"Nsight Systems version (([0-9]{4})\.([0-9]{1,2})(?:\.[0-9]{1,4})*)")
_TRACE_HELP = re.compile(r"^[ \t]*-t, --trace=(.{0,4000}?)(?:Select the|\Z)", re.M | re.S)
_WORD = re.compile(r"'([a-z0-9-]{2,40})'")


class Version(NamedTuple):
    """The version that an installation says it is, and what it can trace."""

    text: str
    year: int
    number: int
    traces: tuple[str, ...]

    @property
    def too_old(self) -> bool:
        """Whether it is older than `LEAST`."""
        return (self.year, self.number) < LEAST


class Launch(NamedTuple):
    """How a server is launched: program, session, what is traced, graphs whole or by node."""

    program: str
    session: str
    traces: tuple[str, ...]
    graphs: Graphs

    def mark(self) -> str:
        """Return it as the value of `MARK`."""
        return json.dumps(self._asdict(), sort_keys=True)


def read_version(said: str, launch_help: str) -> Version | None:
    """Return the version from `nsys --version` and `nsys launch --help`; None where it is none."""
    found = _VERSION.search(said)
    if found is None:
        return None
    block = _TRACE_HELP.search(launch_help)
    known = tuple(_WORD.findall(block[1])) if block else ()
    return Version(found[1], int(found[2]), int(found[3]), known)


def traced(versions: list[Version]) -> tuple[str, ...]:
    """Return what all of some installations can trace of `TRACES`."""
    return tuple(name for name in TRACES if all(name in one.traces for one in versions))


def launched(argv: list[str], env: Mapping[str, str], rank: int) -> list[str]:
    """Return a server's command, behind `nsys launch` where its environment has the mark.

    `--wait=primary`: it ends with the server, also where that leaves processes behind.
    `--trace-fork-before-exec`: workers of an engine are forks that never call exec.
    """
    if MARK not in env:
        return argv
    how = json.loads(env[MARK])
    return [
        how["program"],
        "launch",
        f"--session-new={session_of(how['session'], rank)}",
        f"--trace={','.join(how['traces'])}",
        *([f"--cuda-graph-trace={how['graphs']}"] if "cuda" in how["traces"] else []),
        "--trace-fork-before-exec=true",
        "--wait=primary",
        *argv,
    ]


def session_of(name: str, rank: int) -> str:
    """Return the name of a rank's session: ranks may share a machine."""
    return f"{name}-r{rank}"


def start_argv(program: str, session: str, output: str) -> list[str]:
    """Return the command that begins to collect; the report is `output` with its ending."""
    quiet = ["--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    return [program, "start", f"--session={session}", *quiet, f"--output={output}"]


def stop_argv(program: str, session: str) -> list[str]:
    """Return the command that ends collecting and writes the report; the server goes on."""
    return [program, "stop", f"--session={session}"]


def cancel_argv(program: str, session: str) -> list[str]:
    """Return the command that ends collecting and throws it away; the server goes on."""
    return [program, "cancel", f"--session={session}"]


def shutdown_argv(program: str, session: str) -> list[str]:
    """Return the command that ends a session with what it launched."""
    return [program, "shutdown", f"--session={session}", "--kill=sigterm"]


def sessions_argv(program: str) -> list[str]:
    """Return the command that lists the sessions of this user."""
    return [program, "sessions", "list"]


def export_argv(program: str, report: str, output: str) -> list[str]:
    """Return the command that makes a database of a report."""
    options = ["--type=sqlite", "--force-overwrite=true", "--quiet=true", f"--output={output}"]
    return [program, "export", *options, report]


def read_sessions(text: str) -> dict[str, str]:
    """Return {session: state} of `nsys sessions list`; states: Launched, Collection, Shutdown."""
    found = {}
    for line in text.splitlines():
        # ID, time, state, number of launches, name; the first line is the heading.
        cells = line.split(None, 4)
        if len(cells) == 5 and cells[0].isdigit():
            found[cells[4].strip()] = cells[2]
    return found
