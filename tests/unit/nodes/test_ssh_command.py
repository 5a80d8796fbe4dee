"""Scripts for nodes, run by this machine's own shell."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from servemap.nodes import ssh_command
from servemap.nodes.ssh_command import FAILED, LAUNCHER, MISSING, Script


def run(script: Script, path: str) -> tuple[int, str]:
    """Run a script as a login shell does; return its code and what came after its mark."""
    done = subprocess.run(
        ["/bin/sh", "-c", LAUNCHER],
        input=script.line(),
        capture_output=True,
        env={**os.environ, "PATH": path},
    )
    return done.returncode, done.stdout.decode().partition("\n")[2]


@pytest.fixture
def slow_ls(tmp_path: Path) -> tuple[Path, str]:
    """A file that appears or vanishes while `ls` looks at it, and the PATH with that `ls`."""
    tools = tmp_path / "tools"
    tools.mkdir()
    file = tmp_path / "file"
    ls = tools / "ls"
    ls.write_text(
        f"#!/bin/sh\n[ ! -f {file}.new ] || mv {file}.new {file}\n"
        f'{shutil.which("ls")} "$@"\ncode=$?\nrmdir {file} 2>/dev/null\n'
        "exit $code\n"
    )
    ls.chmod(0o755)
    return file, f"{tools}:{os.environ['PATH']}"


def test_file_that_appears_while_it_is_looked_for_is_read(slow_ls: tuple[Path, str]) -> None:
    file, path = slow_ls
    file.with_name("file.new").write_text("ready\n")
    assert run(ssh_command.read(str(file)), path) == (0, "ready\n")


def test_what_vanishes_while_it_is_looked_for_is_missing(slow_ls: tuple[Path, str]) -> None:
    file, path = slow_ls
    file.mkdir()
    assert run(ssh_command.read(str(file)), path)[0] == MISSING


def test_missing_file_and_folder_are_told_apart(tmp_path: Path) -> None:
    path = os.environ["PATH"]
    assert run(ssh_command.read(str(tmp_path / "none")), path)[0] == MISSING
    assert run(ssh_command.read(str(tmp_path)), path)[0] == FAILED
