"""The scripts that a node's shell runs, run by this machine's."""

import os
import subprocess
from pathlib import Path

from servemap.nodes import ssh_command


def shell(script: ssh_command.Script, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", script.line().decode()], capture_output=True, env={**os.environ, **env}
    )


def test_a_file_that_comes_while_it_is_looked_for_is_read(tmp_path: Path) -> None:
    wanted, tools = tmp_path / "state.json", tmp_path / "bin"
    tools.mkdir()
    # It appears after the first look and before the second one, which `ls` does.
    slow_ls = tools / "ls"
    slow_ls.write_text(f'#!/bin/sh\necho whole > {wanted}\nexec /bin/ls "$@"\n')
    slow_ls.chmod(0o755)
    done = shell(ssh_command.read(str(wanted)), PATH=f"{tools}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [b"whole"])


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    done = shell(ssh_command.read(str(tmp_path)))
    assert (done.returncode, done.stderr.splitlines()[1:]) == (
        ssh_command.FAILED,
        [b"not a regular file"],
    )
    assert shell(ssh_command.read(str(tmp_path / "none"))).returncode == ssh_command.MISSING
