"""The embedded engine started by hand, as a person would."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from servemap.engines.embedded.tiny_model import install
from servemap.onnode.ask import ask
from tests.workflow.harness import free_port


@contextmanager
def llamaserve(
    demo: Path, *, context: int, max_active: int
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serve the tiny model from a folder until the end; yields the URL and the process."""
    pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")
    install(demo)
    port = free_port()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "llamaserve", "--model", str(demo / "tiny.gguf"),
            "--alias", "tiny", "--port", str(port), "--context", str(context),
            "--max-active", str(max_active),
        ],
        cwd=demo / "engine",
        env={**os.environ, "PYTHONPATH": str(demo / "engine")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    give_up = time.monotonic() + 120
    try:
        while ask(f"{url}/v1/models", 2)["error"] is not None:
            assert process.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.05)
        yield url, process
    finally:
        process.terminate()
        process.wait(60)
