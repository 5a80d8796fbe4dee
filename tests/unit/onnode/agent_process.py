"""Programs of the node agent, run by its tests as they are on a node."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import WAIT_S, wait_for


def agent_argv(*args: str) -> list[str]:
    return [sys.executable, "-m", "servemap.onnode", *args]


class Supervised:
    """A supervisor in a folder, with a spec that its test may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_path = folder / "state.json"
        self.heartbeat = folder / "heartbeat"
        self.heartbeat.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, argv: list[str], **changes: Any) -> subprocess.Popen[bytes]:
        spec = {
            "argv": argv,
            "env": {"ADDED": "by the spec"},
            "cwd": str(self.folder),
            "log": str(self.folder / "server.log"),
            "state": str(self.state_path),
            "heartbeat": str(self.heartbeat),
            "ttl_s": 600,
            "boot_id": f"boot-{self.folder}",
            "grace_s": 0.3,
            **changes,
        }
        path = self.folder / "spec.json"
        path.write_text(json.dumps(spec))
        self.process = subprocess.Popen(
            agent_argv("supervise", "--spec", str(path)), start_new_session=True
        )
        return self.process

    def python(self, code: str, *args: str, **changes: Any) -> subprocess.Popen[bytes]:
        return self.start([sys.executable, "-c", code, *args], **changes)

    def state(self) -> dict[str, Any]:
        try:
            return json.loads(self.state_path.read_text())
        except FileNotFoundError:
            return {}

    def server(self) -> dict[str, Any]:
        return wait_for(lambda: self.state().get("server"), "a server in the state")

    def said(self, text: str) -> None:
        log = self.folder / "server.log"
        wait_for(lambda: log.exists() and text in log.read_text(), f"{text!r} in the log")

    def ended(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.wait(WAIT_S) in (0, 1)
        return self.state()
