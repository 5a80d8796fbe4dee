"""Collectives through nccl-tests and rccl-tests, whose programs are named and called alike."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple, cast

from servemap.measure.baselines.node_logs import logs_by_node
from servemap.measure.baselines.perf_commands import (
    LOGGED,
    PROGRAMS,
    Host,
    mpirun_argv,
    perf_arguments,
    sweeps,
)
from servemap.measure.baselines.perf_judge import problem_of
from servemap.measure.baselines.perf_readings import chosen_by_size, size_rows
from servemap.measure.baselines.tool import Ended, Measured, NodeCommand, Part, Tool, not_once
from servemap.model.baselines import Operation, size_bytes
from servemap.model.errors import ParseError
from servemap.model.files import parse_json
from servemap.parsers.communication.nccl_log import read_log
from servemap.parsers.kinds import parse
from servemap.parsers.values import integer, mapping, text
from servemap.server.gates.transport_paths import connected

SCRIPT = "perf_runs.py"
MARK = "servemap-run "
MPIRUN = "mpirun"
PASSED_ON = ("LD_LIBRARY_PATH", "PATH")


class Ran(NamedTuple):
    """What the programs of a part printed, taken apart.

    Attributes:
        programs: {name: path} of those that were found.
        simulated: whether one of them only replays a recording.
        missing: programs that were not found.
        output: {run: what it printed}, in their order.
        codes: {run: exit status} of those that ended.
    """

    programs: dict[str, str]
    simulated: bool
    missing: list[str]
    output: dict[str, str]
    codes: dict[str, int]


def perf_commands(part: Part) -> list[NodeCommand]:
    """Return the one command of a part: it is run on the first node and calls the programs there.

    Each operation is a program of its own; sizes that are no geometric series take several runs of
    it. `launch: process` drives all cards of the node from one process, mpirun starts one process
    a rank, on other nodes through its own ssh.
    """
    spec, first = part.spec, part.places[0]
    folder = f"{spec.programs.rstrip('/')}/" if spec.programs else ""
    process = spec.launcher == "process"
    names = {*LOGGED, *PASSED_ON, *part.settings, *spec.env, *part.variables}
    hosts = [Host(place.address, place.ranks) for place in part.places]
    runs = []
    for operation in spec.operations:
        program = folder + PROGRAMS[operation]
        for sweep in sweeps([size_bytes(size) for size in spec.sizes]):
            arguments = perf_arguments(
                sweep,
                cards=first.ranks if process else 1,
                iterations=spec.iterations,
                warmup=spec.warmup,
            )
            command = [program, *arguments]
            if not process:
                command = mpirun_argv(MPIRUN, hosts, names, command, options=spec.mpirun_args)
            runs.append({"name": f"{operation} {sweep.least}", "argv": command})
    programs = [*(() if process else (MPIRUN,)), *(folder + PROGRAMS[o] for o in spec.operations)]
    script = f"{first.folder}/{SCRIPT}"
    source = resources.files(__package__).joinpath(SCRIPT).read_text(encoding="utf-8")
    plan = json.dumps({"programs": programs, "runs": runs}, separators=(",", ":"))
    return [NodeCommand(first.node, [first.python, script, plan], dict(LOGGED), {script: source})]


def read_runs(log: str) -> Ran:
    """Take the output of `perf_runs.py` apart; lines that are none of its marks go to a run."""
    found = Ran({}, False, [], {}, {})
    current: str | None = None
    lines: dict[str, list[str]] = {}
    for line in log.splitlines(keepends=True):
        said = _marked(line)
        if said is None:
            if current is not None:
                lines[current].append(line)
            continue
        if begun := text(said.get("begin")):
            current, lines[begun] = begun, []
        elif ended := text(said.get("end")):
            current = None
            found.codes[ended] = integer(said.get("code")) or 0
        elif missing := text(said.get("missing")):
            found.missing.append(missing)
        elif program := text(said.get("program")):
            found.programs[program] = text(said.get("path")) or program
            found = found._replace(simulated=found.simulated or said.get("simulated") is True)
    return found._replace(output={name: "".join(own) for name, own in lines.items()})


def _marked(line: str) -> dict[str, Any] | None:
    if not line.startswith(MARK):
        return None
    try:
        return mapping(parse_json(line[len(MARK) :]))
    except ValueError:
        return None


def read_perf(part: Part, ended: Mapping[str, Ended]) -> Measured:
    """Return what the programs measured and what NCCL said of it, judged."""
    (end,) = ended.values()
    ran = read_runs(end.log)
    problems = [_say_missing(part, name) for name in ran.missing]
    if not problems and end.reason is not None:
        problems = [end.reason]
    if not problems and end.code != 0 and not ran.output:
        python = part.places[0].python
        problems = [f"{part.places[0].node}: {python} did not run: {_last_words(end.log)}"]
    rows: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    versions: dict[str, str] = {}
    nodes = [place.node for place in part.places for _ in range(place.ranks)]
    for name, output in ran.output.items():
        operation = cast(Operation, name.split(" ", maxsplit=1)[0])
        log = read_log(output, [])
        if log.versions:
            versions.setdefault((log.library or "NCCL").lower(), next(iter(log.versions)))
        try:
            printed = parse("nccl-tests", output.encode()).data
        except ParseError:
            printed = {"runs": [], "failures": []}
        problem = _failed(part, ran.codes.get(name), printed, output)
        if problem is None and (said := problem_of(operation, printed, nodes)):
            problem = "; ".join(said)
        if problem is not None:
            problems.append(f"{operation}: {problem}")
            continue
        (run,) = printed["runs"]
        devices = devices or run["devices"]
        chosen = chosen_by_size(operation, [log.algorithms])
        iterations = run["parameters"].get("iterations", part.spec.iterations)
        rows += size_rows(operation, iterations, run, chosen)
    problems = problems or not_once(part, rows)
    told = logs_by_node("".join(ran.output.values()), nodes)
    # Also of nodes that cannot be told apart.
    seen = connected({**dict.fromkeys(nodes, ""), **told.logs}, told.unplaced)
    backend = part.spec.tool.removesuffix("-tests")
    return Measured(
        rows=[] if problems else rows,
        ranks=[_rank(rank, node, devices) for rank, node in enumerate(nodes)],
        versions=versions,
        backend=backend,
        problems=problems,
        simulated=ran.simulated,
        extra={
            "programs": ran.programs,
            **({"transport": seen.whole_record()} if seen.paths or seen.ranks else {}),
        },
    )


def _say_missing(part: Part, name: str) -> str:
    place = part.places[0]
    if name == MPIRUN:
        return (
            f"{place.node} has no mpirun on its PATH: install Open MPI there, or give "
            "launch: process with nodes: each"
        )
    return (
        f"{place.node} has no program {name}: build {part.spec.tool} there, and give its folder "
        "as `programs` of the baseline, or put it on the PATH"
    )


def _failed(part: Part, code: int | None, printed: Mapping[str, Any], output: str) -> str | None:
    """Return how a run of a program ended badly, in words; None if it printed a table."""
    if code != 0:
        how = "it did not end" if code is None else f"it exited with {code}"
        return f"{how}: {_last_words(output)}"
    if not printed["runs"]:
        return f"it printed no table of {part.spec.tool}: {_last_words(output)}"
    return None


def _last_words(output: str) -> str:
    """Return what a program said last, or what NCCL warned of."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    warned = [line for line in lines if "NCCL WARN" in line or "Test NCCL failure" in line]
    return (warned or lines or ["no message"])[-1][-300:]


def _rank(rank: int, node: str, devices: list[dict[str, Any]]) -> dict[str, Any]:
    known = next((one for one in devices if one.get("rank") == rank), {})
    return {
        "rank": rank,
        "node": node,
        "host": known.get("host"),
        "pid": known.get("pid"),
        "device": known.get("device"),
        "bus_id": known.get("bus_id"),
        "name": known.get("name"),
    }


PERF = Tool(perf_commands, read_perf)
