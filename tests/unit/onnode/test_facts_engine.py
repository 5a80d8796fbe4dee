"""What a server runs on a node: its interpreter's packages, its package's sources."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from servemap.onnode import facts, facts_engine
from servemap.onnode.facts_models import Checksums


def test_an_interpreter_is_asked_for_its_own_packages() -> None:
    found = facts_engine.interpreter(sys.executable)
    assert found["version"] == sys.version.split()[0]
    assert "pytest" in found["packages"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 3", "gave no answer"),
        ("echo broken >&2; exit 1", "broken"),
        ("echo hello", "Expecting value"),
    ],
)
def test_one_that_does_not_work_says_why(tmp_path: Path, text: str, said: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    with pytest.raises(ValueError, match=said):
        facts_engine.interpreter(str(program))
    with pytest.raises(ValueError, match="no such program"):
        facts_engine.interpreter(str(tmp_path / "none"))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "engine"
    for name in ("__init__.py", "model/qwen.py", "lib/x.so.1", "README.md", "__pycache__/a.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def read(package: Path, *apart: Path) -> Any:
    return facts_engine.package_files(str(package), [str(one) for one in apart], Checksums(None))


def test_sources_and_nothing_else_count(package: Path) -> None:
    before = read(package)
    assert list(before["digests"]) == ["__init__.py", "lib/x.so.1", "model/qwen.py"]
    assert (before["files"], before["errors"], before["apart"]) == (3, [], [])
    (package / "README.md").write_text("other")
    (package / "__pycache__/a.py").write_text("other")
    assert read(package) == before
    (package / "model/qwen.py").write_text("patched by hand")
    after = read(package)
    assert after["sha256"] != before["sha256"]
    assert {
        name for name, digest in after["digests"].items() if before["digests"][name] != digest
    } == {"model/qwen.py"}


def test_what_patches_change_is_left_out_also_behind_links(package: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(package.parent)
    found = read(package, tmp_path / "link/engine/model/qwen.py", package / "lib", Path("/else"))
    assert list(found["digests"]) == ["__init__.py"]
    assert found["apart"] == ["lib", "model/qwen.py"]


def test_a_folder_that_is_not_there_and_one_too_large(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(package / "none")["errors"] == ["no such folder"]
    monkeypatch.setattr(facts_engine, "MAX_FILES", 2)
    found = read(package)
    assert (found["files"], found["errors"]) == (
        2,
        ["more than 2 files; the rest is not looked at"],
    )


def test_checksums_are_kept_in_the_cache(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "checksums.json"
    facts_engine.packages([str(package)], [], str(cache))
    entries = json.loads(cache.read_text())["entries"]
    assert str(package / "model/qwen.py") in entries


def test_the_command_reads_what_servers_run(
    package: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = {"pythons": [sys.executable, "/no/python"], "packages": [str(package)], "apart": []}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(request)))
    assert facts.main(["--engine"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["engine_python"][sys.executable]["packages"]["pytest"]
    assert "no such program" in found["engine_python"]["/no/python"]["error"]
    assert found["engine_files"][str(package)]["files"] == 3
