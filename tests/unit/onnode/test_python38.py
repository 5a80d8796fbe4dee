"""The node agent runs where nothing newer than Python 3.8 is installed."""

import ast
import json
import subprocess
from pathlib import Path

import pytest

import servemap.onnode
from servemap.nodes.agent_zip import build_agent
from servemap.onnode.__main__ import COMMANDS
from tests.parts import need

SOURCES = sorted(Path(servemap.onnode.__file__).parent.rglob("*.py"))
# Names that the standard library got after 3.8.
NEWER = {
    "removeprefix", "removesuffix", "is_relative_to", "file_digest", "packages_distributions",
    "lcm", "nextafter", "pidfd_open", "process_group", "hardlink_to", "readlink_to", "pairwise",
    "batched", "TaskGroup", "tomllib", "zoneinfo", "graphlib", "StrEnum", "ExceptionGroup",
    "waitstatus_to_exitcode", "to_thread", "timeout_at", "randbytes", "unparse", "bit_count",
    "get_annotations", "aclosing",
}  # fmt: skip


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_syntax_and_names_are_of_python_38(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path), feature_version=(3, 8))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert used & NEWER == set()
    for node in ast.walk(tree):
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        for part in ast.walk(annotation) if annotation is not None else ():
            assert not isinstance(part, ast.BinOp), f"line {part.lineno}: X | Y is of 3.10"
            if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                builtin = part.value.id in {"dict", "list", "set", "tuple", "type", "frozenset"}
                assert not builtin, f"line {part.lineno}: {part.value.id}[...] is of 3.9"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_imports_are_relative_or_of_the_standard_library(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert all(not name.name.startswith("servemap") for name in node.names)
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert not (node.module or "").startswith("servemap")


def test_every_command_runs_under_python_38(tmp_path: Path) -> None:
    interpreter = need("python38")
    name, data = build_agent()
    agent = tmp_path / name
    agent.write_bytes(data)
    for command in COMMANDS:
        argv = [interpreter, str(agent), command, "--help"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 2), done.stderr
        assert "usage: " in done.stdout + done.stderr
    done = subprocess.run([interpreter, str(agent), "facts"], capture_output=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["python"]["version"].startswith("3.8.")
    assert [key for key, one in facts.items() if isinstance(one, dict) and "error" in one] == []
    heartbeat, state = tmp_path / "heartbeat", tmp_path / "state.json"
    heartbeat.touch()
    spec = {
        "argv": ["/bin/sh", "-c", "exit 5"],
        "env": {},
        "cwd": str(tmp_path),
        "log": str(tmp_path / "log"),
        "state": str(state),
        "heartbeat": str(heartbeat),
        "ttl_s": 60,
        "boot_id": "b",
        "grace_s": 1,
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    argv = [interpreter, str(agent), "supervise", "--spec", str(tmp_path / "spec.json")]
    assert subprocess.run(argv, check=False).returncode == 0
    assert json.loads(state.read_text())["exit"]["code"] == 5
