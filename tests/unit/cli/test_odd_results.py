"""Every command that reads results, with each file of a run replaced by what it should not be."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from servemap.server.context import Context
from tests.fakes import campaign
from tests.unit.cli.test_cli import context, measured, servemap

__all__ = ["context", "servemap"]

pytestmark = pytest.mark.timeout(300)

FILES = [
    "run_manifest.json",
    "events.jsonl",
    ".session.json",
    ".stop.json",
    ".server.lock",
    ".lock",
    "server/baseline/launch.json",
    "server/baseline/boots/x/boot.json",
    "server/baseline/attempts/001/meta.json",
    "freeze/n1.json",
    "baselines/loopback.json",
    "cases/baseline/c/r1/meta.json",
    "cases/baseline/c/r1/metrics.json",
    "cases/baseline/c/r1/requests.parquet",
    "cases/baseline/c/r1/telemetry.parquet",
    "cases/baseline/c/r1/attempts/001/meta.json",
    "cases/baseline/c/r1/attempts/001/open.json",
    "cases/baseline/c/r1/attempts/001/raw/requests.jsonl",
]
COMMANDS = ["plan", "status", "table", "report", "gate", "verify"]


def deep(path: Path) -> None:
    path.write_text("[" * 200_000)


def bytes_of_no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{}")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("make", [os.mkfifo, deep, bytes_of_no_text])
def test_it_is_said_in_words_and_at_once(
    servemap: Any, context: Context, name: str, make: Callable[[Path], None]
) -> None:
    measured(context)
    Path("c.yaml").write_text(yaml.safe_dump(campaign()))
    path = context.run_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    for command in COMMANDS:
        where = ["--configfile", "c.yaml"] if command == "plan" else [context.run]
        code, said = servemap(command, *where)
        assert code in (0, 1), command
        assert said.strip(), command


@pytest.mark.parametrize("value", [None, 7, "x", True, [], [1], {}, {"a": 1}, -1.5])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("run_manifest.json", "campaign"),
        ("cases/baseline/c/r1/metrics.json", "segments"),
        ("cases/baseline/c/r1/meta.json", "status"),
    ],
)
def test_a_value_of_another_type_is_said_in_words(
    servemap: Any, context: Context, name: str, key: str, value: Any
) -> None:
    measured(context)
    path = context.run_dir / name
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    for command in ("status", "table", "report", "gate", "verify"):
        code, said = servemap(command, context.run)
        assert code in (0, 1), command
        assert said.strip(), command
