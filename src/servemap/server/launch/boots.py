"""Records of every start of a server, and the circuit breaker that is derived from them."""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic
from servemap.model.protocol import SCHEMA

Status = Literal["starting", "ready", "failed", "stopped", "died"]


@dataclass(frozen=True)
class Boot:
    """One start of a variant's server; `argv` is the head's, `ranks` says it for every node.

    `turn` is the round of repeats that it serves, where each has a start of its own.
    """

    variant: str
    boot_id: str
    session: str
    fingerprint: str
    argv: list[str]
    port: int
    started_ns: int
    status: Status = "starting"
    ready_ns: int | None = None
    ended_ns: int | None = None
    reason: str | None = None
    engine_version: str | None = None
    drift: list[str] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    turn: int | None = None


def log_file(run_dir: Path, variant: str, boot_id: str, node: str) -> Path:
    """Return the file that keeps what a start said on one of its nodes."""
    return boot_dir(run_dir, variant, boot_id) / f"{node}.log"


def boot_dir(run_dir: Path, variant: str, boot_id: str) -> Path:
    """Return the folder of one start."""
    return run_dir / "server" / variant / "boots" / boot_id


def write_boot(run_dir: Path, boot: Boot) -> None:
    """Store the record of a start."""
    write_json_atomic(
        boot_dir(run_dir, boot.variant, boot.boot_id) / "boot.json",
        {"schema": SCHEMA, **asdict(boot)},
    )


def read_boots(run_dir: Path, variant: str) -> list[Boot]:
    """Return the starts of a variant, oldest first; damaged records are left out."""
    boots = []
    for path in (run_dir / "server" / variant / "boots").glob("*/boot.json"):
        boot = _boot(read_json(path))
        if boot is not None:
            boots.append(boot)
    return sorted(boots, key=lambda boot: boot.started_ns)


def _boot(data: dict[str, Any] | None) -> Boot | None:
    if data is None or data.pop("schema", None) != SCHEMA:
        return None
    try:
        return Boot(**data)
    except TypeError:
        return None


def mark_ended(run_dir: Path, variant: str, boot_id: str, status: Status, reason: str) -> None:
    """Record how a start ended, once; the first reason stays."""
    path = boot_dir(run_dir, variant, boot_id) / "boot.json"
    data = read_json(path)
    if data is None or data.get("status") in ("failed", "stopped", "died"):
        return
    data |= {"status": status, "reason": reason, "ended_ns": time.time_ns()}
    write_json_atomic(path, data)


def mark_turn(run_dir: Path, variant: str, boot_id: str, turn: int) -> None:
    """Record the round of repeats that a start serves."""
    path = boot_dir(run_dir, variant, boot_id) / "boot.json"
    data = read_json(path)
    if data is not None and data.get("turn") != turn:
        write_json_atomic(path, data | {"turn": turn})


def deaths(run_dir: Path, variant: str, session: str) -> list[Boot]:
    """Return the starts of a variant in this session that failed or died unasked."""
    return [
        boot
        for boot in read_boots(run_dir, variant)
        if boot.session == session and boot.status in ("failed", "died")
    ]
