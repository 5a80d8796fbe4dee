"""Starts of vLLM that must fail, or be refused by what the server says of itself, and why."""

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Placement
from servemap.engines.failures import explain
from servemap.engines.vllm import Vllm
from servemap.server.context import Context
from servemap.server.launch.ensure import ensure_server
from servemap.server.not_run import NotRunError
from tests.e2e.started import log_of
from tests.e2e.vllm_here import begun, project, starts, vllm

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@dataclass
class Here:
    """The model, and the folder for the server's temporary files."""

    model: Path
    temporary: Path

    def refused(self, context: Context) -> str:
        """What a launch that must fail says."""
        with begun(context, self.temporary), pytest.raises(NotRunError) as caught:
            ensure_server(context, "baseline")
        return str(caught.value)


@pytest.fixture
def here(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Here]:
    with project(tmp_path_factory.getbasetemp(), request.node.name) as (model, temporary):
        yield Here(model, temporary)


def test_a_port_in_use_is_refused_before_anything_is_loaded(here: Here) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        context = vllm(here.model, port=port)
        said = here.refused(context)
    assert f"port {port}" in said
    assert starts(context) == []


def test_a_port_that_is_taken_while_it_starts_is_named_by_its_log(here: Here) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        context = vllm(here.model, port=taken.getsockname()[1])
        server, model = context.server("baseline"), context.plan.campaign.model
        argv = Vllm().argv(
            server, model, Placement("n1"), python=str(server.python), workdir=str(here.model)
        )
        env = {name: value for name, value in server.env.items() if isinstance(value, str)}
        env = {**os.environ, "VLLM_HOST_IP": "127.0.0.1", **env}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    (cause, *_) = explain(done.stdout + done.stderr, "vllm")
    assert (cause.id, cause.role) == ("port-taken", "cause")


def test_a_model_folder_without_a_tokenizer(here: Here, tmp_path: Path) -> None:
    """This version serves it all the same, and its tokens have no text."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        (folder / name).symlink_to(here.model / name)
    context = vllm(folder)
    with begun(context, here.temporary):
        served = ensure_server(context, "baseline")
        said = {check["name"]: check["evidence"] for check in served.checks}
        assert "without any text: does the model's folder hold its tokenizer?" in said["completion"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"settings": {"memory_fraction": 0.99, "cuda_graph": False}}, "settings.memory_fraction"),
        ({"args": {"kv-cache-memory-bytes": 1 << 40}}, "args.kv-cache-memory-bytes"),
    ],
    ids=["fraction", "cache"],
)
def test_more_memory_than_there_is(here: Here, asked: dict[str, Any], named: str) -> None:
    args = {"dtype": "float32", **asked.get("args", {})}
    context = vllm(here.model, **{**asked, "args": args})
    said = here.refused(context)
    assert named in said
    assert "the server exited with code 1" in said
    assert "Available memory on node 0" in log_of(context)


def test_what_it_does_instead_of_what_was_asked_is_refused(here: Here) -> None:
    """A context fitted to the cache, another attention backend and eager mode, as on any CPU."""
    context = vllm(
        here.model,
        settings={"max_active": 4, "cuda_graph": True, "attention_backend": "FLASHINFER"},
        args={
            "dtype": "float32",
            "kv-cache-memory-bytes": 4194304,
            "max-model-len": "auto",
            "compilation-config": '{"mode": 0}',
        },
    )
    said = here.refused(context)
    assert re.search(r"context: longest sequence \d{3} tokens; asked: 2048", said)
    assert "settings.attention_backend: asked FLASHINFER, got CPU_ATTN" in said
    assert "settings.cuda_graph: asked True, got False" in said
