import json
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.registry import get_engine
from servemap.server.context import Context
from servemap.server.launch.commands import RankCommand, rank_commands
from tests.fakes import FakeNode, campaign, fake_context


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def vllm(node_env: dict[str, str], **server: Any) -> Context:
    config = campaign(
        nodes=[{"id": "n1", "address": "192.0.2.1", "env": node_env}],
        server={"engine": "vllm", "python": ".vllm/bin/python", **server},
        variables=[],
        variants=[{"id": "baseline"}],
    )
    return fake_context(FakeNode(), config)


def command(context: Context) -> RankCommand:
    server = context.server("baseline")
    (found,) = rank_commands(context, "baseline", server, get_engine(server.engine))
    return found


def test_the_spec_prevails_over_the_node_and_the_node_over_the_engines_defaults() -> None:
    found = command(
        vllm(
            {"VLLM_HOST_IP": "192.0.2.7", "NCCL_DEBUG": "WARN", "NODE_SAYS": "hello"},
            env={"NCCL_DEBUG": "TRACE"},
        )
    )
    assert found.env["VLLM_HOST_IP"] == "192.0.2.7"
    assert found.env["NCCL_DEBUG"] == "TRACE"
    assert found.env["NODE_SAYS"] == "hello"
    assert found.env["VLLM_SERVER_DEV_MODE"] == "1"
    assert command(vllm({})).env["VLLM_HOST_IP"] == "192.0.2.1"


def test_an_interpreter_given_by_its_path_lies_where_other_paths_do(tmp_path: Path) -> None:
    assert command(vllm({})).argv[0] == f"{tmp_path}/.vllm/bin/python"


def test_what_is_stored_names_secrets_and_holds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    record = command(vllm({}, env={"HF_TOKEN": {"secret": "MY_TOKEN"}})).record()
    assert record["secrets"] == ["HF_TOKEN"]
    assert record["env"]["NCCL_DEBUG_SUBSYS"] == "INIT,ENV,NET,GRAPH"
    assert record["argv"][1:3] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert "s3cr3t" not in json.dumps(record)
