"""SGLang on this machine as a campaign drives it: its spec, and folders of each test's own."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded import tiny_hf
from servemap.measure.setup import load_context
from servemap.onnode.ask import ask
from servemap.server.context import Context
from tests.fakes import campaign
from tests.parts import need
from tests.workflow.harness import free_port

ARGS = {"device": "cpu", "dtype": "float32", "max-total-tokens": 16384}
ENV = {"HF_HUB_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo", "SGLANG_CPU_OMP_THREADS_BIND": "0"}

SETTINGS = {"max_active": 4, "prefix_cache": True, "cuda_graph": False}
CASE: dict[str, Any] = {"id": "c", "isl": 64, "osl": 8, "concurrency": 2, "num_prompts": 4}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "tiny"
    tiny_hf.write_folder(folder)
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # It leaves files among the temporary ones; sockets are there, whose paths must be short.
    temporary = tempfile.mkdtemp(prefix="s")
    monkeypatch.setenv("TMPDIR", temporary)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    shutil.rmtree(temporary)


def sglang(
    model: Path,
    *,
    cases: Sequence[dict[str, Any]] = (),
    captures: Sequence[dict[str, Any]] = (),
    **server: Any,
) -> Context:
    """A campaign of one variant and one small case, and those of `cases`."""
    phase = {"id": "phase1", "cases": [case["id"] for case in (CASE, *cases)]}
    spec = {
        "engine": "sglang",
        "port": free_port(),
        "python": need("sglang"),
        "settings": SETTINGS,
        "args": ARGS,
        "env": ENV,
        **server,
    }
    return load_context(
        campaign(
            model={"name": "tiny", "path": str(model), "context": 2048, "vocab": [300, 1000]},
            server=spec,
            variables=[],
            variants=[{"id": "baseline"}],
            cases=[CASE, *cases],
            phases=[{**phase, "captures": list(captures)}],
            policy={"stop_grace_s": 15, "start_timeout_s": 300, "on_unhealthy": "relaunch"},
        )
    )


def completion(url: str, tokens: list[int]) -> dict[str, Any]:
    answer = ask(f"{url}/v1/completions", 60, {"model": "tiny", "prompt": tokens, "max_tokens": 1})
    found: dict[str, Any] = json.loads(answer["text"])
    return found
