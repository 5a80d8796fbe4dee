"""Everything that a report is made of, read from a run's folder; what cannot be read is named."""

from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from servemap.analysis.bounds.rows import declared_bandwidth
from servemap.analysis.milestone import judge
from servemap.analysis.repeats import Repeat, read_object, read_repeat
from servemap.analysis.store import table_trouble
from servemap.analysis.summary import Row, aggregate, summary_row
from servemap.model.order import CaseKey
from servemap.parsers.values import mapping, sequence, text


class Run(NamedTuple):
    """A run as it stands on disk. Records by name; `problems` are sentences."""

    folder: Path
    name: str
    campaign: dict[str, Any]
    manifest: dict[str, Any]
    repeats: list[Repeat]
    rows: list[Row]
    aggregates: list[Row]
    launches: dict[str, dict[str, Any]]
    patches: dict[tuple[str, str], dict[str, Any]]
    baselines: dict[str, dict[str, Any]]
    calibration: dict[str, Any]
    captures: dict[tuple[str, str], dict[str, Any]]
    analyses: dict[tuple[str, str], dict[str, Any]]
    """Of captures, where they were analysed."""
    freezes: dict[str, dict[str, Any]]
    snapshots: dict[tuple[str, str], dict[str, Any]]
    problems: list[str]
    compared_with: dict[str, list[str]]
    """For each variant those that it may be compared with, the best first."""
    targets: dict[CaseKey, list[Any]]
    """Targets of each planned repeat, as {target, gate}."""
    bandwidth: dict[str, Any]
    """Memory bandwidth that the campaign declares, by node (`analysis.bounds`)."""
    milestones: list[dict[str, Any]]
    """How each milestone stands now (see `analysis.milestone.judge`)."""

    @property
    def variants(self) -> list[str]:
        """Variants in the planned order."""
        return list(dict.fromkeys(repeat.variant for repeat in self.repeats))

    @property
    def cases(self) -> list[str]:
        """Cases in the planned order."""
        return list(dict.fromkeys(repeat.case for repeat in self.repeats))

    @property
    def zone(self) -> tzinfo | None:
        """The zone that times are shown in; None for this machine's own."""
        name = text(self.campaign.get("time_zone"))
        try:
            return None if name is None else ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return None

    @property
    def valid(self) -> list[Repeat]:
        """Repeats whose figures may be shown in plots and means."""
        return [repeat for repeat in self.repeats if repeat.valid]

    @property
    def simulated(self) -> list[str]:
        """Names of what was simulated and not measured."""
        found = [f"baseline {name}" for name, row in self.baselines.items() if row.get("simulated")]
        if self.manifest.get("simulated"):
            found.append("the whole run")
        for repeat in self.repeats:
            if repeat.meta.get("simulated"):
                found.append(f"{repeat.variant}/{repeat.case} r{repeat.repeat}")
        for (variant, case), record in self.captures.items():
            if record.get("simulated"):
                found.append(f"capture {variant}/{case}")
        return found


def read_run(
    folder: Path,
    plan_rows: Sequence[dict[str, Any]],
    milestones: Sequence[dict[str, Any]] = (),
) -> Run:
    """Read a run's folder. Any file may be absent or damaged."""
    problems: list[str] = []

    def read(path: Path, required: bool = True) -> dict[str, Any]:
        value, trouble = read_object(path)
        if trouble is not None and (required or path.exists()):
            problems.append(f"{path.relative_to(folder)}: {trouble}")
        return value

    manifest = read(folder / "run_manifest.json")
    repeats = [read_repeat(folder, row) for row in plan_rows]
    for repeat in repeats:
        for name in ("meta.json", "metrics.json"):
            path = repeat.folder / name
            trouble = read_object(path)[1] if path.exists() else None
            if trouble is not None:
                problems.append(f"{path.relative_to(folder)}: {trouble}")
        for name in ("requests.parquet", "telemetry.parquet") if repeat.metrics else ():
            path = repeat.folder / name
            trouble = table_trouble(path, repeat.attempt)
            if trouble is not None:
                problems.append(f"{path.relative_to(folder)} {trouble}")
        derive = mapping(repeat.metrics.get("derive"))
        label = f"{repeat.variant}/{repeat.case} r{repeat.repeat}"
        if derive.get("status") == "failed":
            problems.append(f"{label}: not derived: {derive.get('error')}")
        for source, reasons in mapping(derive.get("skipped")).items():
            problems.extend(f"{label}: {source}: {reason}" for reason in sequence(reasons))
    rows = [summary_row(folder.name, repeat) for repeat in repeats]
    variants = list(dict.fromkeys(repeat.variant for repeat in repeats))
    return Run(
        folder=folder,
        name=folder.name,
        campaign=mapping(manifest.get("campaign")),
        manifest=manifest,
        repeats=repeats,
        rows=rows,
        aggregates=aggregate(rows),
        launches={v: read(folder / "server" / v / "launch.json") for v in variants},
        patches={
            (path.parent.parent.name, path.stem): read(path)
            for path in sorted(folder.glob("server/*/patches/*.json"))
        },
        baselines={p.stem: read(p) for p in sorted(folder.glob("baselines/*.json"))},
        calibration=read(folder / "calibration.json", required=False),
        captures={
            (p.parent.parent.name, p.parent.name): read(p)
            for p in sorted(folder.glob("captures/*/*/capture.json"))
        },
        analyses={
            (p.parent.parent.name, p.parent.name): read(p)
            for p in sorted(folder.glob("captures/*/*/analysis.json"))
        },
        freezes={p.stem: read(p) for p in sorted(folder.glob("freeze/*.json"))},
        snapshots={_node_and_moment(p): read(p) for p in sorted(folder.glob("snapshots/*-*.json"))},
        problems=problems,
        compared_with={
            row["variant"]: list(sequence(row.get("compared_with"))) for row in plan_rows
        },
        targets={
            (row["variant"], row["case"], row["repeat"]): sequence(row.get("targets"))
            for row in plan_rows
        },
        bandwidth=declared_bandwidth(plan_rows),
        milestones=[judge(folder, asked) for asked in milestones],
    )


def _node_and_moment(path: Path) -> tuple[str, str]:
    node, _, moment = path.stem.rpartition("-")
    return node, moment


def engine_of(run: Run) -> str | None:
    """Return engine and version as the launches recorded them."""
    for record in run.launches.values():
        if engine := text(record.get("engine")):
            return " ".join(filter(None, (engine, text(record.get("engine_version")))))
    return text(mapping(run.campaign.get("server")).get("engine"))
