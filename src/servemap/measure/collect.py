"""Collectors around a case: what runs on a node, when it is ready, what became of it."""

import json
import time
from pathlib import Path, PurePosixPath
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError, NodeError
from servemap.nodes.base import Node, ProcessId
from servemap.telemetry.catalogue import Collector, catalogue

READY_S = 10.0
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
            chosen.append(known[name]._replace(**changes))
    return chosen


def runnable(collectors: list[Collector], metrics_url: str | None) -> list[Collector]:
    """Return the collectors that have something to read on this server."""
    return [
        collector
        for collector in collectors
        if collector.kind == "proc" or (collector.kind == "http" and metrics_url is not None)
    ]


def collector_spec(
    collectors: list[Collector],
    *,
    node: str,
    out: Path,
    pids: list[int],
    metrics_url: str | None,
    heartbeat: str,
    until: Path,
    max_s: float,
) -> dict[str, Any]:
    """Return the agent's `collect` spec; a collector whose source is missing is left out."""
    runs: list[dict[str, Any]] = []
    for collector in runnable(collectors, metrics_url):
        common = {"name": collector.name, "kind": collector.kind}
        if collector.kind == "proc":
            runs.append({**common, "interval_s": collector.interval_s, "root_pids": pids})
        else:
            runs.append({**common, "interval_s": collector.interval_s, "url": metrics_url})
    folder = out.resolve()
    return {
        "schema": 1,
        "out": str(folder),
        "node": node,
        "ready_file": str(folder / "collect.ready"),
        "renew": heartbeat,
        "until": str(until.resolve()),
        "max_s": max_s,
        "collectors": runs,
    }


def start_collectors(node: Node, spec: dict[str, Any], log: Path) -> ProcessId:
    """Start the collectors of a node and wait until each has taken a sample.

    Raises:
        NodeError: they are not ready in time.
    """
    out = PurePosixPath(spec["out"])
    spec_path = str(out / "collect.spec.json")
    node.write_text(spec_path, json.dumps(spec))
    process = node.spawn(node.agent_argv("collect", "--spec", spec_path), log=str(log.resolve()))
    deadline = time.monotonic() + READY_S
    try:
        while node.read_text(spec["ready_file"]) is None:
            if time.monotonic() > deadline or not node.alive(process):
                said = (node.read_text(str(log.resolve())) or "").strip()[-300:]
                raise NodeError(
                    f"the collectors took no first sample within {READY_S:g} s: {said}",
                    f"{node.name}: {spec_path}",
                    "run `onnode collect --spec` with that file on the node and see what it says",
                )
            time.sleep(0.02)
    except BaseException:
        # Nobody knows of them yet: whoever interrupts this wait must not leave them behind.
        node.stop(process, 1)
        raise
    return process


def stop_collectors(node: Node, process: ProcessId) -> None:
    """End the collectors of a node after one last sample."""
    node.stop(process, STOP_S)


def collector_records(
    telemetry: Path, collectors: list[Collector], node: str
) -> dict[str, dict[str, Any]]:
    """Return {NODE/NAME: {status, samples, interval_s, required, error}} as it ended."""
    ended = (read_json(telemetry / node / "collectors.json") or {}).get("collectors", {})
    records = {}
    for collector in collectors:
        record = ended.get(collector.name)
        if record is None:
            record = {"status": "failed", "samples": 0, "error": "it left no record"}
        records[f"{node}/{collector.name}"] = {
            "status": record.get("status", "failed"),
            "samples": record.get("samples", 0),
            "interval_s": collector.interval_s,
            "required": collector.required,
            "error": record.get("error"),
        }
    return records
