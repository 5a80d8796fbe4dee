"""Collectors around a case: what runs on a node, when it is ready, what became of it."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.model.cases import CaseSpec, FixedCase
from servemap.model.collectors import CollectorSetting, CollectorTable
from servemap.model.errors import ConfigError, NodeError
from servemap.model.watching import FAST_S
from servemap.nodes.base import Node, ProcessId
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.values import text
from servemap.server.launch.process import log_path
from servemap.server.patience import Patience
from servemap.telemetry.catalogue import catalogue, metric_of
from servemap.telemetry.collectors import Collector
from servemap.telemetry.declared import declared_collector

READY_S = 10.0
READY_POLL_S = 0.02
FAR_READY_POLL_S = 0.1
STOP_S = 20.0


def chosen_collectors(campaign: Campaign) -> list[Collector]:
    """Return the collectors as this campaign runs them.

    Those that the campaign names are run; where it names none, all that the catalogue runs by
    default. An attached server need not serve metrics, unless the campaign itself requires them.
    What is named runs even where another program of the node tells the same.

    Raises:
        ConfigError: the campaign names one that the catalogue does not have, or declares one that
            cannot be.
    """
    engine = campaign.server.engine
    known = {
        name: item
        for name, item in catalogue().items()
        if not item.engines or engine in item.engines
    }
    if campaign.server.attach:
        known = {
            name: item._replace(required=False) if item.kind == "http" else item
            for name, item in known.items()
        }
    if not campaign.collectors:
        return [item for item in known.values() if item.by_default]
    chosen = []
    for name, setting in campaign.collectors.items():
        item = _named(name, setting, known)
        if setting.enabled:
            changes = setting.model_dump(include={"interval_s", "required"}, exclude_none=True)
            changed = item._replace(**changes, log=setting.path)
            if changed.tool is not None:
                used_s = changed.tool.possible_s(changed.interval_s)
                tool = changed.tool._replace(unless=None)
                changed = changed._replace(interval_s=used_s, tool=tool)
            chosen.append(changed)
    return chosen


def _named(name: str, setting: CollectorSetting, known: Mapping[str, Collector]) -> Collector:
    where = f"collectors.{name}"
    item = known.get(name)
    if setting.table is not None and setting.argv is not None:
        if name in catalogue():
            raise ConfigError(
                f"{name!r} is a collector of the catalogue, and its command is known",
                where,
                "give yours another name, or remove argv and table",
            )
        _check_units(setting.table, where)
        item = declared_collector(name, setting.table, setting.argv)
    if item is None and name in catalogue():
        raise ConfigError(
            f"collector {name!r} has nothing to read of this engine",
            where,
            f"remove it: it reads {', '.join(catalogue()[name].engines)}",
        )
    if item is None:
        raise ConfigError(
            f"there is no collector {name!r}",
            where,
            f"use one of: {', '.join(known)}; or say with argv and table how yours is run and read",
        )
    if setting.path is not None and item.kind != "log":
        raise ConfigError(f"collector {name!r} follows no log", f"{where}.path", "remove path")
    return item


def _check_units(table: CollectorTable, where: str) -> None:
    """Refuse a metric of the catalogue's in another unit: tables and limits take both as one."""
    for column in table.columns:
        found = metric_of(column.metric)
        if found is not None and found[1].unit != column.unit:
            raise ConfigError(
                f"metric {column.metric!r} is in {found[1].unit} elsewhere, not in {column.unit}",
                f"{where}.table.columns",
                "scale the column to that unit, or give the metric another name",
            )


def watching_case(collectors: list[Collector], case: CaseSpec) -> list[Collector]:
    """Return the collectors as one case has them: none, or all as fast as their tools can."""
    watching = case.watching if isinstance(case, FixedCase) else "usual"
    if watching == "none":
        return []
    if watching == "usual":
        return collectors
    return [
        one._replace(interval_s=FAST_S if one.tool is None else one.tool.possible_s(FAST_S))
        if one.kind != "log"
        else one
        for one in collectors
    ]


def runnable(
    collectors: list[Collector], metrics_url: str | None, log: str | None
) -> list[Collector]:
    """Return the collectors that have something to read on a node: `log` is that of the server."""
    return [
        collector
        for collector in collectors
        if (collector.kind != "http" or metrics_url is not None)
        and (collector.kind != "log" or log is not None)
    ]


def server_log(collectors: list[Collector], workdir: str, boot_id: str | None) -> str | None:
    """Return the log of the server on the head: what the campaign names, or that of its start."""
    named = next((collector.log for collector in collectors if collector.log is not None), None)
    return named or (None if boot_id is None else log_path(workdir, boot_id))


def collector_spec(
    collectors: list[Collector],
    *,
    node: str,
    raw: str,
    pids: list[int],
    metrics_url: str | None,
    log: str | None,
    heartbeat: str,
    until: str | None,
    gone_s: float,
    max_s: float,
    load_id: str,
) -> dict[str, Any]:
    """Return the agent's `collect` spec; a collector whose source is missing is left out.

    Args:
        collectors: what the campaign runs.
        node: the node's name.
        raw: the load's raw folder on that node.
        pids: roots of the server's processes there.
        metrics_url: the engine's metrics; None on all nodes but the head.
        log: the server's log; None on all nodes but the head.
        heartbeat: the file on that node that keeps its server from being stopped.
        until: the file there whose appearance ends them; None where it appears on another node.
        gone_s: how long after the end of the server there they end too: no controller may be left.
        max_s: after which they end in any case.
        load_id: what their record repeats.
    """
    runs: list[dict[str, Any]] = []
    for collector in runnable(collectors, metrics_url, log):
        common = {
            "name": collector.name,
            "kind": collector.kind,
            "interval_s": collector.interval_s,
        }
        if collector.kind == "proc":
            runs.append({**common, "root_pids": pids})
        elif collector.kind == "http":
            runs.append({**common, "url": metrics_url})
        elif collector.kind == "log":
            runs.append({**common, "path": log, "keep": list(collector.keep)})
        elif collector.tool is not None:
            argv, *otherwise = collector.tool.commands(collector.interval_s)
            more = {
                "each": collector.tool.each,
                "unless": collector.tool.unless,
                "keep": list(collector.keep),
                "any_status": collector.tool.any_status,
            }
            told = {key: one for key, one in more.items() if one}
            runs.append({**common, "argv": argv, "otherwise": otherwise, "pids": pids, **told})
        else:
            runs.append({**common, "paths": list(collector.paths)})
    out = _folder(raw, node)
    return {
        "schema": 1,
        "out": out,
        "node": node,
        "ready_file": f"{out}/collect.ready",
        "renew": heartbeat,
        **({} if until is None else {"until": until}),
        "server": {"pids": pids, "gone_s": gone_s},
        "max_s": max_s,
        "load_id": load_id,
        "collectors": runs,
    }


def _folder(raw: str, node: str) -> str:
    return f"{raw}/telemetry/{node}"


def start_collectors(node: Node, spec: dict[str, Any], env: Mapping[str, str]) -> ProcessId:
    """Start the collectors of a node; `await_collectors` says when they sample.

    Raises:
        NodeError: the node does not start them.
    """
    spec_path = f"{spec['out']}/collect.spec.json"
    node.write_text(spec_path, json.dumps(spec))
    return node.spawn(
        node.agent_argv("collect", "--spec", spec_path), log=f"{spec['out']}/collect.log", env=env
    )


def await_collectors(
    node: Node, spec: dict[str, Any], process: ProcessId, patience: Patience
) -> None:
    """Wait until each collector of a node has taken a sample.

    Raises:
        NodeError: they are not ready in time.
    """
    deadline = time.monotonic() + READY_S
    log = f"{spec['out']}/collect.log"
    pause_s = READY_POLL_S if node.here else FAR_READY_POLL_S
    while patience.insist(node, lambda: node.read_text(spec["ready_file"])) is None:
        if time.monotonic() > deadline or patience.ask(node, lambda: node.alive(process)) is False:
            said = (patience.insist(node, lambda: node.read_text(log)) or "").strip()[-300:]
            raise NodeError(
                f"the collectors took no first sample within {READY_S:g} s: {said}",
                f"{node.name}: {spec['out']}/collect.spec.json",
                "run `onnode collect --spec` with that file on the node and see what it says",
            )
        time.sleep(pause_s)


def stop_collectors(node: Node, process: ProcessId) -> None:
    """End the collectors of a node after one last sample."""
    node.stop(process, STOP_S)


def ended_early(
    node: Node, raw: str, process: ProcessId, required: list[str], patience: Patience
) -> dict[str, str]:
    """Return {NODE/NAME: reason} of the required collectors of a node that ended or go on failing.

    Empty where the node cannot be asked now. `raw` is the load's raw folder on that node.
    """
    events = f"{_folder(raw, node.name)}/collect.events.jsonl"
    said = patience.ask(node, lambda: node.read_text(events))
    ends = {
        str(line.value.get("collector")): text(line.value.get("error")) or "no reason given"
        for line in parse_jsonl((said or "").encode()).lines
        if line.value.get("event") in ("exited", "failing")
    }
    found = {f"{node.name}/{name}": ends[name] for name in required if name in ends}
    if not found and patience.ask(node, lambda: node.alive(process)) is False:
        gone = "their process is gone from the node"
        found = {f"{node.name}/{name}": gone for name in required}
    return found


def collector_records(
    telemetry: Path, collectors: list[Collector], node: str, load_id: str
) -> dict[str, dict[str, Any]]:
    """Return {NODE/NAME: {status, samples, interval_s, required, error}} as it ended.

    `status` is `ok`, `failed`, or `absent` where the node has no such tool or files. A program
    adds its path; `simulated` stands where it only replays what was recorded elsewhere, and `table`
    how one that the campaign declares is read.
    """
    found = read_json(telemetry / node / "collectors.json") or {}
    another = bool(found) and found.get("load_id") != load_id
    ended = {} if another else found.get("collectors", {})
    none = "its record is that of another load" if another else "it left no record"
    records = {}
    for collector in collectors:
        record = ended.get(collector.name)
        if record is None:
            record = {"status": "failed", "samples": 0, "error": none}
        records[f"{node}/{collector.name}"] = {
            "status": record.get("status", "failed"),
            "samples": record.get("samples", 0),
            "interval_s": collector.interval_s,
            "required": collector.required,
            "error": record.get("error"),
            **{key: record[key] for key in ("program", "simulated") if key in record},
            **({} if collector.table is None else {"table": dict(collector.table)}),
        }
    return records


def simulated_mark(records: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Return what marks an attempt of which a collector replayed a recording; else nothing."""
    return {"simulated": True} if any(one.get("simulated") for one in records.values()) else {}
