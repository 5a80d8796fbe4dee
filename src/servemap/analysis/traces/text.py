"""What `servemap trace` prints: tables of an analysis."""

from collections.abc import Iterable

from tabulate import tabulate

from servemap.analysis.traces.analyse import Analysis, DeviceReport, FileReport
from servemap.analysis.traces.behind import Behind
from servemap.analysis.traces.brief import brief
from servemap.analysis.traces.classes import class_ids
from servemap.analysis.traces.host import HostFigures
from servemap.analysis.traces.questions import Answer
from servemap.model.errors import printable

PROFILED = (
    "profiled: taken with a profiler running, which slows the server; says where time goes, "
    "and is never compared with measured results"
)
TOP = 10
TOP_BEHIND = 3
_NAME = 60


def ms(ns: float | None) -> str:
    """Return ns as ms with four figures, `-` for what is missing."""
    return "-" if ns is None else f"{ns / 1e6:.4g}"


def percent(share: float | None) -> str:
    """Return a share as percent, `-` for what is missing."""
    return "-" if share is None else f"{100 * share:.1f}%"


def label(report: FileReport) -> str:
    """Return how a file is named in tables: by its rank if it says one."""
    if report.file.rank is not None:
        return f"rank {report.file.rank}"
    return report.file.path.rsplit("/", 1)[-1][:_NAME]


def analysis_text(analysis: Analysis, answers: Iterable[Answer]) -> str:
    """Return everything that is printed, parts apart by an empty line."""
    parts = [PROFILED, _files(analysis)]
    devices = [(label(file), one) for file in analysis.files for one in file.devices]
    if devices:
        parts += [_devices(devices), _classes(devices), _gaps(devices), _phases(devices)]
        parts += [_kernels(*devices[0]), _operators(*devices[0])]
        parts += [_copies(devices), _calls(analysis.files)]
    for file in analysis.files:
        if file.host is not None:
            parts.append(_host(label(file), file.host))
    parts += [_across(analysis), _experts(analysis), _answers(answers)]
    return printable("\n\n".join(part for part in parts if part))


def short(name: str) -> str:
    """Return a name on one line, cut."""
    return brief(" ".join(name.split()), _NAME)


def grid(rows: list[list[str]], headers: list[str]) -> str:
    """Return a table of texts."""
    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)


def _files(analysis: Analysis) -> str:
    lines = []
    for one in analysis.files:
        file = one.file
        of = f" of {file.world_size}" if file.world_size is not None else ""
        steps = f", {len(one.host_steps)} steps ({one.steps_named_by})" if one.host_steps else ""
        lines.append(f"{label(one)}{of}: {file.path}, {file.format}, {file.events} events{steps}")
        if file.lost:
            lines.append(f"  not whole: {file.lost}")
        lines += [f"  left out: {count} events, {why}" for why, count in file.skipped.items()]
    return "\n".join(lines)


def _devices(devices: list[tuple[str, DeviceReport]]) -> str:
    rows = []
    for name, report in devices:
        one = report.figures
        rows.append(
            [
                name,
                f"{one.device} {one.model or ''}".strip(),
                ms(one.span_ns),
                ms(one.busy_ns),
                ms(one.idle_ns),
                percent(one.idle_ns / one.span_ns if one.span_ns else None),
                ms(one.communication.total_ns),
                ms(one.communication.hidden_ns),
                ms(one.communication.exposed_ns),
                str(one.launches.kernels),
                "-" if (mean := one.launches.mean_kernel_ns) is None else f"{mean / 1e3:.4g}",
                percent(one.launches.graph_share),
            ]
        )
    heads = [
        "", "device", "span ms", "busy ms", "idle ms", "idle", "comm ms", "hidden ms",
        "exposed ms", "kernels", "mean us", "by graph",
    ]  # fmt: skip
    return grid(rows, heads)


def _classes(devices: list[tuple[str, DeviceReport]]) -> str:
    times = [{one.id: one for one in report.figures.classes} for _, report in devices]
    rows = []
    for name in class_ids():
        if name == "unmatched" or any(name in one for one in times):
            cells = [
                f"{ms(one[name].exposed_ns)} ({percent(one[name].share)})" if name in one else "-"
                for one in times
            ]
            rows.append((sum(one[name].exposed_ns for one in times if name in one), [name, *cells]))
    last = [cells for _, cells in rows if cells[0] == "unmatched"]
    rows = sorted((row for row in rows if row[1][0] != "unmatched"), key=lambda row: -row[0])
    heads = ["exposed ms (of busy)", *(name for name, _ in devices)]
    return grid([*(cells for _, cells in rows), *last], heads)


def _gaps(devices: list[tuple[str, DeviceReport]]) -> str:
    causes = dict.fromkeys(cause for _, one in devices for cause in one.figures.gaps.causes)
    rows = [
        [cause, *(ms(one.figures.gaps.causes.get(cause)) for _, one in devices)] for cause in causes
    ]
    return grid(rows, ["idle ms, host was", *(name for name, _ in devices)]) if rows else ""


def _phases(devices: list[tuple[str, DeviceReport]]) -> str:
    rows = []
    for name, report in devices:
        for one in report.phases:
            top = ", ".join(f"{item.id} {percent(item.share)}" for item in one.classes[:3])
            rows.append(
                [
                    name,
                    one.phase,
                    str(one.steps),
                    ms(one.host_mean_ns),
                    ms(one.device_span_mean_ns),
                    ms(one.busy_ns),
                    ms(one.communication_ns - one.communication_hidden_ns),
                    top,
                ]
            )
    heads = [
        "", "phase", "steps", "host ms a step", "device ms a step", "busy ms", "comm exposed ms",
        "most time",
    ]  # fmt: skip
    return grid(rows, heads) if rows else ""


def _kernels(name: str, report: DeviceReport) -> str:
    rows = [
        [
            short(one.name),
            one.class_id,
            str(one.runs),
            ms(one.exposed_ns),
            ms(one.sum_ns),
            f"{one.sum_ns / one.runs / 1e3:.4g}",
        ]
        for one in report.figures.kernels[:TOP]
    ]
    heads = [f"kernel, {name}", "class", "runs", "exposed ms", "sum ms", "mean us"]
    return grid(rows, heads)


def _operators(name: str, report: DeviceReport) -> str:
    rows = [
        [short(one.name), str(one.pieces), ms(one.exposed_ns)]
        for one in report.figures.operators[:TOP]
    ]
    return grid(rows, [f"launched by, {name}", "pieces", "exposed ms"])


def _copies(devices: list[tuple[str, DeviceReport]]) -> str:
    rows = [
        [
            name,
            one.name,
            str(one.copies),
            "-" if one.bytes is None else str(one.bytes),
            ms(one.sum_ns),
        ]
        for name, report in devices
        for one in report.figures.copies
    ]
    return grid(rows, ["", "copy", "copies", "bytes", "ms"]) if rows else ""


def _calls(files: Iterable[FileReport]) -> str:
    rows = [
        [label(file), short(one.name), str(one.calls), ms(one.total_ns)]
        for file in files
        for one in file.runtime_calls[:5]
    ]
    return grid(rows, ["", "call to the runtime", "calls", "ms"]) if rows else ""


def _host(name: str, host: HostFigures) -> str:
    parts = [f"{name}: no device was traced; time of the host's operators and functions"]
    if host.classes:
        rows = [[one.id, ms(one.exposed_ns), percent(one.share)] for one in host.classes]
        parts.append(grid(rows, ["class", "self ms", "of operators"]))
    if host.phases:
        rows = [
            [
                one.phase,
                str(one.steps),
                ms(one.host_mean_ns),
                ms(one.operators_ns),
                ", ".join(f"{item.id} {percent(item.share)}" for item in one.classes[:3]),
            ]
            for one in host.phases
        ]
        parts.append(grid(rows, ["phase", "steps", "ms a step", "operators ms", "most time"]))
    for what, calls in (("operator", host.operators), ("Python function", host.functions)):
        if calls:
            rows = [
                [short(one.name), str(one.calls), ms(one.self_ns), ms(one.total_ns)]
                for one in calls[:TOP]
            ]
            parts.append(grid(rows, [what, "calls", "self ms", "total ms"]))
    if host.threads:
        rows = [
            [f"{one.process}/{one.thread}", str(one.operators), ms(one.busy_ns)]
            for one in host.threads[:TOP]
        ]
        parts.append(grid(rows, ["process/thread", "operators", "busy ms"]))
    return "\n\n".join(parts)


def _across(analysis: Analysis) -> str:
    across = analysis.across
    if across is None:
        return f"ranks were not compared: {analysis.across_missing}"
    rows = [
        [
            str(one.rank),
            f"{one.offset_ns / 1e3:.4g}",
            f"{one.error_ns / 1e3:.4g}",
            str(one.late),
            ms(one.late_mean_ns),
            ms(one.waiting_ns),
        ]
        for one in across.ranks
    ]
    phases = [
        [
            one.phase,
            str(one.collectives),
            ms(one.skew_p50_ns),
            ms(one.skew_max_ns),
            ms(one.waiting_ns),
        ]
        for one in across.phases
    ]
    of_phase = ["phase", "collectives", "skew p50 ms", "skew max ms", "waited ms, all ranks"]
    heads = ["rank", "clock ahead us", "error us", "last at", "mean late ms", "waited ms"]
    return "\n".join(
        [
            f"{across.matched} collectives are on all ranks, {across.unmatched} are not; skew of "
            f"arrival p50 {ms(across.skew_p50_ns)} ms, p95 {ms(across.skew_p95_ns)} ms, max "
            f"{ms(across.skew_max_ns)} ms; {across.below_error} below the clocks' error",
            f"straggler: {across.straggler}",
            "",
            grid(rows, heads),
            "",
            grid(phases, of_phase),
        ]
    )


def _experts(analysis: Analysis) -> str:
    if analysis.experts is None or not analysis.experts.layers:
        return ""
    rows = [
        [
            str(one.layer),
            str(one.tokens),
            f"{one.max_over_mean:.3g}",
            str(one.busiest_expert),
            str(one.experts_without_tokens),
        ]
        for one in sorted(analysis.experts.layers, key=lambda one: -one.max_over_mean)[:TOP]
    ]
    heads = ["layer, most uneven", "tokens", "busiest / mean", "busiest", "experts without tokens"]
    return grid(rows, heads)


def _answers(answers: Iterable[Answer]) -> str:
    rows = [
        [
            one.question,
            one.answer,
            "\n".join(map(_behind, one.behind[:TOP_BEHIND])),
        ]
        for one in answers
    ]
    heads = ["question", "answer", "events behind it"]
    return tabulate(rows, headers=heads, tablefmt="simple", maxcolwidths=[36, 60, 56])


def _behind(event: Behind) -> str:
    runs = "" if event.events == 1 else f"{event.events} x "
    at = "" if event.start_ns is None else f", at {event.start_ns / 1e9:.6f} s"
    return f"{event.where}: {runs}{short(event.name)}, {ms(event.length_ns)} ms{at}"
