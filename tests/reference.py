"""The reference server as a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import WAIT_S


@contextmanager
def reference_server(folder: Path, script: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Serve a script; gives the URL and the path of the log, which is whole afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    path, log = folder / "script.json", folder / "server.jsonl"
    path.write_text(json.dumps({"schema": 1, **script}))
    argv = [sys.executable, "-m", "servemap.onnode", "reference-server"]
    process = subprocess.Popen(
        [*argv, "--script", str(path), "--log", str(log)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], log
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
