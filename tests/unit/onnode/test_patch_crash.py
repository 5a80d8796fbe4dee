"""Killed before any of its file operations, the patch command leaves what `restore` can mend."""

import base64
import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from servemap.onnode.patch_apply import apply
from servemap.onnode.patch_journal import Journal
from servemap.onnode.patch_request import parse
from tests.waiting import wait_for

EVENTS = frozenset(
    f"os.{name}"
    for name in ("rename", "remove", "link", "mkdir", "rmdir", "symlink", "chmod", "utime")
)
WRITES = os.O_WRONLY | os.O_RDWR
SCRIPT = b'#!/bin/sh\nprintf half > "$1"; printf "x = 3\\n" > "$1"\n'


def patch(kind: str, target: Path, root: Path, files: dict[str, bytes], **keys: str) -> Any:
    return {
        "id": f"{kind}-{target.name}",
        "kind": kind,
        "source": keys.get("source", "src"),
        "target": str(target),
        "root": str(root),
        "eol": "lf",
        "verify": [],
        "files": [
            {
                "path": name,
                "mode": 0o644,
                "sha256": hashlib.sha256(data).hexdigest(),
                "data": base64.b64encode(data).decode(),
            }
            for name, data in files.items()
        ],
    }


def site(base: Path) -> tuple[Path, list[Any], list[Any]]:
    root = base / "site"
    root.mkdir(parents=True)
    (root / "a.py").write_text("x = 1\n")
    (root / "a.py").chmod(0o600)
    (root / "b.so").symlink_to("a.py")
    (root / "c.py").write_text("c\n")
    diff = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    first = [
        patch("diff", root / "a.py", root, {"": diff}),
        patch("folder", root, root, {"new/deep.py": b"deep\n", "c.py": b"d\n"}),
        patch("symlink", root / "b.so", root, {}, source="c.py"),
        patch("script", root / "a.py", root, {"": SCRIPT}),
    ]
    second = [patch("file", root / "c.py", root, {"": b"e\n"})]
    return root, first, second


def facts(root: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(root)): (
            str(path.readlink())
            if path.is_symlink()
            else (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        )
        for path in sorted(root.rglob("*"))
    }


def request(work: Path, patches: list[Any]) -> Any:
    return parse(json.dumps({"schema": 1, "work": str(work), "patches": patches}).encode())


def killed(at: int, act: Any) -> bool:
    """Run `act` in a child that is killed before its `at`-th file operation; say whether it was."""
    pid = os.fork()
    if pid == 0:
        left = [at]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event in EVENTS or (event == "open" and args[2] & WRITES):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("command", ["apply", "swap", "restore"])
def test_a_kill_at_any_point_is_recovered(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a killed process loses no page
    for at in range(1, 1000):
        base = tmp_path / str(at)
        work = base / "work"
        root, first, second = site(base)
        work.mkdir()
        before = facts(root)
        if command != "apply":
            apply(Journal(str(work)), request(work, first))

        def act(work: Path = work, first: Any = first, second: Any = second) -> None:
            journal = Journal(str(work))
            if command == "restore":
                journal.restore()
            else:
                apply(journal, request(work, first if command == "apply" else second))

        was_killed = killed(at, act)
        if at % 2:
            # what a resumed campaign does: it goes on and applies again
            assert apply(Journal(str(work)), request(work, first))["ok"]
            assert (root / "a.py").read_text() == "x = 3\n"
            assert apply(Journal(str(work)), request(work, first))["changed"] is False
        Journal(str(work)).restore()
        assert facts(root) == before, f"killed before operation {at}"
        if not was_killed:
            break
    else:
        pytest.fail("the command never ended by itself")
    assert at > 20


def test_a_script_dies_with_the_agent(tmp_path: Path) -> None:
    root, _, _ = site(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    script = b'#!/bin/sh\necho $$ > "$1"; exec sleep 600\n'
    patches = request(work, [patch("script", root / "a.py", root, {"": script})])
    agent = os.fork()
    if agent == 0:
        apply(Journal(str(work)), patches)
        os._exit(0)
    wait_for(lambda: (root / "a.py").read_text().strip().isdigit(), "the script")
    script_pid = int((root / "a.py").read_text())
    os.kill(agent, signal.SIGKILL)
    os.waitpid(agent, 0)
    wait_for(lambda: not Path(f"/proc/{script_pid}").exists(), "the script's end")
    Journal(str(work)).restore()
    assert (root / "a.py").read_text() == "x = 1\n"


def test_what_a_killed_script_left_is_kept(tmp_path: Path) -> None:
    root, _, _ = site(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    script = b'#!/bin/sh\nprintf half > "$1"; kill -9 $PPID\n'
    pid = os.fork()
    if pid == 0:
        apply(
            Journal(str(work)),
            request(work, [patch("script", root / "a.py", root, {"": script})]),
        )
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert (root / "a.py").read_text() == "half"
    journal = Journal(str(work))
    assert journal.standing() == "interrupted"
    journal.restore()
    assert (root / "a.py").read_text() == "x = 1\n"
    assert Path(journal.blob(hashlib.sha256(b"half").hexdigest())).read_bytes() == b"half"
