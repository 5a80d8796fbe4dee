"""Tables and lines that the command `servemap` prints: pure functions, data in, text out."""

from collections.abc import Iterable, Sequence
from typing import Any

from tabulate import tabulate

from servemap.analysis.replay import in_order, planned_reuse
from servemap.measure.baseline_status import PlannedBaseline, part_count
from servemap.measure.capture_status import PlannedCapture, first_of_starts
from servemap.measure.status import Live, PlannedLaunch, PlannedRepeat
from servemap.model.attempts import State
from servemap.model.baselines import BaselineSpec, CollectiveBaseline, TcpBaseline
from servemap.model.order import CaseKey, Order
from servemap.model.plan import PhaseItems
from servemap.onnode.load_trace import Trace, least_s
from servemap.server.hold.leftover import LeftServer, NotAsked

WORDS: dict[State, str] = {
    "done": "done",
    "failed": "failed, is tried again",
    "gave_up": "failed, given up (force with -f)",
    "not_run": "not run",
    "damaged": "damaged, is measured again",
    "changed": "changed, is measured again",
    "missing": "missing",
}
CAPTURE_WORDS: dict[State, str] = {
    "damaged": "damaged, is taken again",
    "changed": "changed, is taken again",
}
INVALID = "done, but invalid (measure again with -f)"


def outdated(rows: Iterable[PlannedRepeat]) -> dict[CaseKey, str]:
    """Return the repeats whose figures on disk no longer count, and why."""
    return {
        (row.variant, row.case, row.repeat): WORDS[row.state]
        for row in rows
        if row.state in ("changed", "damaged")
    }


def duration(seconds: float) -> str:
    """Return seconds as `1 h 05 min`, `3 min 20 s` or `4.2 s`."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{seconds:.1f} s"


def plan_table(rows: Iterable[PlannedRepeat]) -> str:
    """Return one line for every planned repeat."""
    return tabulate(
        [
            [
                row.variant,
                row.case,
                row.repeat,
                INVALID if row.invalid else WORDS[row.state],
                row.attempts,
                _expected(row),
            ]
            for row in rows
        ],
        headers=["variant", "case", "repeat", "state", "attempts", "expected"],
        tablefmt="simple",
    )


def baseline_table(baselines: Iterable[PlannedBaseline]) -> str:
    """Return one line for every planned baseline."""
    return tabulate(
        [[one.name, one.kind, WORDS[one.state], one.tries, _expected(one)] for one in baselines],
        headers=["baseline", "kind", "state", "tries", "expected"],
        tablefmt="simple",
    )


def capture_table(captures: Iterable[PlannedCapture]) -> str:
    """Return one line for every planned capture."""
    return tabulate(
        [
            [
                one.variant,
                one.case,
                one.profile,
                one.missing or CAPTURE_WORDS.get(one.state, WORDS[one.state]),
                one.tries,
                "" if one.missing else _expected(one),
            ]
            for one in captures
        ],
        headers=["capture of", "case", "profile", "state", "tries", "expected"],
        tablefmt="simple",
    )


def _expected(one: PlannedRepeat | PlannedCapture | PlannedBaseline) -> str:
    return duration(one.expected_s) + ("" if one.measured else " (guess)")


def _baselines_line(baselines: Sequence[PlannedBaseline]) -> str:
    if not baselines:
        return "baselines: none"
    todo = sum(one.runs for one in baselines)
    return (
        f"baselines: {len(baselines)} planned, {len(baselines) - todo} need nothing, "
        f"{todo} to measure"
    )


def _captures_line(captures: list[PlannedCapture]) -> str:
    if not captures:
        return "captures: none"
    todo = [one for one in captures if one.runs]
    none = sum(one.missing is not None for one in captures)
    starts = len(first_of_starts(captures))
    return (
        f"captures: {len(captures)} planned, {len(captures) - len(todo) - none} need nothing, "
        + (f"{none} not available, " if none else "")
        + f"{len(todo)} to take"
        + (f" with {starts} server start{'s' if starts > 1 else ''} of their own" if starts else "")
    )


def plan_summary(
    items: PhaseItems,
    rows: list[PlannedRepeat],
    launches: dict[str, PlannedLaunch],
    nodes: dict[str, list[str]],
    order: Order = "interleaved",
    captures: Sequence[PlannedCapture] = (),
    baselines: Sequence[PlannedBaseline] = (),
) -> str:
    """Return what an execution would do: its jobs, launches, nodes, expected time."""
    todo = [row for row in rows if row.runs]
    waiting = {row.variant for row in todo}
    started = [
        name
        for name in items.variants
        if not launches[name].attached
        and (name in waiting or launches[name].state not in ("done", "gave_up"))
    ]
    seconds = sum(row.expected_s for row in todo)
    starts_of = {
        name: max(1, len({row.repeat for row in todo if row.variant == name}))
        if order == "relaunched"
        else 1
        for name in started
    }
    seconds += sum(launches[name].expected_s * count for name, count in starts_of.items())
    seconds += sum(one.expected_s for one in captures if one.runs)
    seconds += sum(one.expected_s for one in baselines if one.runs)
    seconds += sum(one.start_s for one in first_of_starts(captures))
    guessed = sum(not row.measured for row in todo)
    attached = bool(launches) and all(launch.attached for launch in launches.values())
    starts = "" if attached else f" with {sum(starts_of.values())} server starts"
    invalid = sum(row.invalid for row in rows)
    invalid_text = f" ({invalid} of them invalid)" if invalid else ""
    lines = [
        _baselines_line(baselines),
        _captures_line(list(captures)),
        *(
            f"variant {name}: attached, never started"
            if launches[name].attached
            else f"variant {name}: launch {launches[name].state}, on {', '.join(nodes[name])}"
            for name in items.variants
        ),
        f"repeats: {len(rows)} planned, {len(rows) - len(todo)} need nothing{invalid_text}, "
        f"{len(todo)} to measure{starts}",
        f"expected: {duration(seconds)}"
        + (f" ({guessed} of {len(todo)} repeats are guesses)" if guessed else ""),
    ]
    return "\n".join(lines)


def baseline_line(baseline: BaselineSpec, nodes: int) -> str:
    """Return what a baseline of a campaign of some nodes measures."""
    count = part_count(baseline, nodes)
    if isinstance(baseline, TcpBaseline):
        pairs = "every two nodes, both ways" if nodes > 1 else "a node and itself, over loopback"
        said = (
            f"round trips (up to {baseline.pings}) and bandwidth of TCP between {pairs}, "
            f"{baseline.seconds:g} s each at most"
        )
    elif isinstance(baseline, CollectiveBaseline):
        where = "on each node" if baseline.nodes == "each" else "across all nodes"
        said = (
            f"{', '.join(baseline.operations)} of {len(baseline.sizes)} sizes "
            f"({baseline.sizes[0]} to {baseline.sizes[-1]}) {where} by {baseline.tool}"
        )
    else:
        said = "copies between all pairs of cards of each node"
    varied = baseline.sweep if isinstance(baseline, CollectiveBaseline) else {}
    return (
        f"{said}, {count} part{'' if count == 1 else 's'}"
        + (f", {' x '.join(varied)}" if varied else "")
        + (f"; taken from run {baseline.reuse_from}" if baseline.reuse_from else "")
    )


def replay_line(name: str, trace: Trace, concurrency: int | None) -> str:
    """Return what a replay case sends."""
    rows = trace.requests
    names = {row["conversation"] for row in rows if "conversation" in row}
    stream = {"requests": rows, "concurrency": concurrency}
    reused = planned_reuse(in_order(stream), trace.block_tokens)
    given, asked = (sum(row[key] for row in rows) for key in ("isl", "osl"))
    parts = [f"{len(rows)} requests of a trace (form {trace.form})"]
    if trace.left_out:
        parts.append(f"{trace.left_out} left out that had failed")
    if names:
        parts.append(f"{len(names)} conversations")
    parts += [
        f"{given} input and {asked} output tokens",
        f"{reused:.1%} of the input seen before",
        f"{duration(least_s(rows, concurrency))} at least",
    ]
    return f"replay {name}: {', '.join(parts)}"


def status_lines(live: Live, rows: list[PlannedRepeat]) -> str:
    """Return what a campaign is at, what is left and when it should end."""
    left = [row for row in rows if row.runs]
    done = sum(row.state == "done" for row in rows)
    lines = []
    if live.running:
        lines.append(f"running, pid {live.holder.get('pid')}")
        lines.append(
            f"now: {live.current}, for {duration(live.current_s or 0)}"
            if live.current
            else "now: between jobs"
        )
    else:
        lines.append("not running")
    invalid = sum(row.invalid for row in rows)
    of_them = f" ({invalid} invalid)" if invalid else ""
    lines.append(f"repeats: {done} done{of_them}, {len(left)} left, {len(rows)} planned")
    gave_up = [row for row in rows if row.state == "gave_up"]
    if gave_up:
        lines.append(f"given up: {', '.join(f'{row.variant}/{row.case}' for row in gave_up)}")
    if live.running and left:
        lines.append(f"expected to end in {duration(sum(row.expected_s for row in left))}")
    if live.stop_reason:
        lines.append(f"asked to stop after this case: {live.stop_reason}")
    return "\n".join(lines)


def baseline_states(planned: list[str], problems: list[str]) -> str:
    """Return how many of the planned baselines were measured, and what is wrong with the others."""
    measured = len(planned) - len(problems)
    return "\n".join([f"baselines: {measured} of {len(planned)} measured", *problems])


def left_lines(left: Iterable[LeftServer | NotAsked], now_ns: int) -> str:
    """Return what a controller that is gone left running on the nodes; empty for nothing."""
    lines = []
    for one in left:
        if isinstance(one, NotAsked):
            lines.append(f"node {one.node}: what runs there is not known: {one.reason}")
        else:
            age = duration(max(0, now_ns - one.since_ns) / 1e9)
            lines.append(
                f"node {one.node}: the server of {one.variant} still runs, pid {one.pid}, for "
                f"{age} (boot {one.boot_id}); `snakemake` takes it up again, `snakemake teardown` "
                "ends it"
            )
    return "\n".join(lines)


def load_lines(left: Iterable[dict[str, Any]]) -> str:
    """Return what still runs on the nodes for an attempt of a controller that is gone."""
    return "\n".join(
        f"node {one['node']}: {one['what']} of {one['attempt']}: pid {one['pid']} still runs; "
        "`snakemake` takes it up again"
        for one in left
    )


def unfinished(left: int, planned: int, rendered: bool) -> str:
    """Return why the report does not show everything that was measured."""
    if left:
        return f"{left} of {planned} planned repeats are still to be measured"
    if not rendered:
        return (
            "there is no report yet: `snakemake --cores all`, with the same --configfile or "
            "--profile and without a phase, makes it"
        )
    return (
        "the report is older than the newest repeat: `snakemake --cores all`, with the same "
        "--configfile or --profile, brings it up to date"
    )
