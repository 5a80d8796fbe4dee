"""Collectors around a case: what runs on a node, when it is ready, what became of it."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.model.cases import CaseSpec, FixedCase
from servemap.model.errors import ConfigError, NodeError
from servemap.model.watching import FAST_S
from servemap.nodes.base import Node, ProcessId
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.values import text
from servemap.server.patience import Patience
from servemap.telemetry.catalogue import Collector, catalogue

READY_S = 10.0
READY_POLL_S = 0.02
FAR_READY_POLL_S = 0.1
STOP_S = 20.0


def chosen_collectors(campaign: Campaign) -> list[Collector]:
    """Return the collectors of the catalogue as this campaign runs them.

    Those that the campaign names are run; where it names none, all that the catalogue has. An
    attached server need not serve metrics, unless the campaign itself requires them.

    Raises:
        ConfigError: the campaign names one that the catalogue does not have.
    """
    known = catalogue()
    if campaign.server.attach:
        known = {
            name: item._replace(required=False) if item.kind == "http" else item
            for name, item in known.items()
        }
    if not campaign.collectors:
        return list(known.values())
    chosen = []
    for name, setting in campaign.collectors.items():
        if name not in known:
            raise ConfigError(
                f"there is no collector {name!r}",
                f"collectors.{name}",
                f"use one of: {', '.join(known)}",
            )
        if setting.enabled:
            changes = setting.model_dump(include={"interval_s", "required"}, exclude_none=True)
            changed = known[name]._replace(**changes)
            if changed.tool is not None:
                used_s = changed.tool.possible_s(changed.interval_s)
                changed = changed._replace(interval_s=used_s)
            chosen.append(changed)
    return chosen


def watching_case(collectors: list[Collector], case: CaseSpec) -> list[Collector]:
    """Return the collectors as one case has them: none, or all as fast as their tools can."""
    watching = case.watching if isinstance(case, FixedCase) else "usual"
    if watching == "none":
        return []
    if watching == "usual":
        return collectors
    return [
        one._replace(interval_s=FAST_S if one.tool is None else one.tool.possible_s(FAST_S))
        for one in collectors
    ]


def runnable(collectors: list[Collector], metrics_url: str | None) -> list[Collector]:
    """Return the collectors that have something to read on this server."""
    return [
        collector for collector in collectors if collector.kind != "http" or metrics_url is not None
    ]


def collector_spec(
    collectors: list[Collector],
    *,
    node: str,
    raw: str,
    pids: list[int],
    metrics_url: str | None,
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
        heartbeat: the file on that node that keeps its server from being stopped.
        until: the file there whose appearance ends them; None where it appears on another node.
        gone_s: how long after the end of the server there they end too: no controller may be left.
        max_s: after which they end in any case.
        load_id: what their record repeats.
    """
    runs: list[dict[str, Any]] = []
    for collector in runnable(collectors, metrics_url):
        common = {
            "name": collector.name,
            "kind": collector.kind,
            "interval_s": collector.interval_s,
        }
        if collector.kind == "proc":
            runs.append({**common, "root_pids": pids})
        elif collector.kind == "http":
            runs.append({**common, "url": metrics_url})
        elif collector.tool is not None:
            argv, *otherwise = collector.tool.commands(collector.interval_s)
            runs.append({**common, "argv": argv, "otherwise": otherwise})
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
    """Return {NODE/NAME: reason} of the required collectors of a node that ended by themselves.

    Empty where the node cannot be asked now. `raw` is the load's raw folder on that node.
    """
    events = f"{_folder(raw, node.name)}/collect.events.jsonl"
    said = patience.ask(node, lambda: node.read_text(events))
    ends = {
        str(line.value.get("collector")): text(line.value.get("error")) or "no reason given"
        for line in parse_jsonl((said or "").encode()).lines
        if line.value.get("event") == "exited"
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
    adds its path; `simulated` stands where it only replays what was recorded elsewhere.
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
        }
    return records


def simulated_mark(records: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Return what marks an attempt of which a collector replayed a recording; else nothing."""
    return {"simulated": True} if any(one.get("simulated") for one in records.values()) else {}
