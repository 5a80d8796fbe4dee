"""A campaign from the container of a running server: docker as a shim, podman for real."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from servemap.measure.setup import load_context
from servemap.model.campaign import Campaign
from servemap.model.errors import ConfigError, ConnectionLostError, NodeError
from servemap.model.server_spec import NodeSpec, Secret
from servemap.nodes.base import Node
from servemap.onnode import survey_software
from servemap.prepare.from_container import draft_from_container
from servemap.prepare.node_draft import SshOptions, node_specs, rails_of
from tests.fakes import FarNode
from tests.parts import need
from tests.unit.cli.test_cli import call

SECRETS = ("hf_abcdefghijkl", "topsecret")


def inspected(**changes: Any) -> dict[str, Any]:
    """An answer of `docker inspect`, shaped after a recorded one (simulated)."""
    return {
        "Path": "/opt/nvidia/nvidia_entrypoint.sh",
        "Args": [
            "python3", "-m", "sglang.launch_server", "--model-path", "/models/big", "--tp", "16",
            "--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:20000",
            "--mem-fraction-static", "0.9", "--api-key", "topsecret", "--port", "1",
            "--max-running-requests", "4",
        ],
        "Image": "sha256:aa",
        "Config": {
            "Image": "sglang:v1",
            "Env": ["CUDA_VERSION=12", "NCCL_DEBUG=INFO", f"HF_TOKEN={SECRETS[0]}",
                    "SGLANG_HOST_IP=10.0.0.1"],
        },
        "HostConfig": {"NetworkMode": "host", "IpcMode": "host", "DeviceRequests": [{"Count": -1}]},
        "Mounts": [{"Type": "bind", "Source": "/data", "Destination": "/models", "RW": False}],
        **changes,
    }  # fmt: skip


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a shim of docker on PATH that answers as told (simulated)."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def say(found: Any, top: str = "", denied: bool = False) -> None:
        (tmp_path / "inspect.json").write_text(json.dumps([found]))
        (tmp_path / "top").write_text(top)
        refuse = '[ -n "$ALLOWED" ] || { echo "permission denied" >&2; exit 1; }' if denied else ""
        script = f"""#!/bin/sh
{refuse}
case "$1" in
inspect) [ "$4" = served ] || {{ echo "Error: no such container: $4" >&2; exit 1; }}
  cat {tmp_path}/inspect.json;;
image) echo '["CUDA_VERSION=12"]';;
top) cat {tmp_path}/top;;
esac
"""
        (folder / "docker").write_text(script)
        (folder / "docker").chmod(0o755)
        (folder / "sudo").write_text('#!/bin/sh\nshift\nALLOWED=1 exec "$@"\n')
        (folder / "sudo").chmod(0o755)

    return say


@pytest.fixture
def connector(tmp_path: Path) -> Callable[[NodeSpec], Node]:
    return lambda spec: FarNode(spec.id, tmp_path / spec.id)


def planned(text: str) -> Campaign:
    for secret in SECRETS:
        assert secret not in text
    context = load_context(yaml.safe_load(text))
    assert context.plan.rows()
    return context.plan.campaign


def test_two_nodes(docker: Any, connector: Any) -> None:
    docker(inspected())
    text = draft_from_container(
        "served", "10.0.0.1,gpu-b", SshOptions("bench"), "docker", connector
    )
    campaign = planned(text)
    assert [(node.id, node.role, node.address, node.user) for node in campaign.nodes] == [
        ("10-0-0-1", "head", "10.0.0.1", "bench"),
        ("gpu-b", "worker", "gpu-b", "bench"),
    ]
    assert campaign.nodes[0].env == {"SGLANG_HOST_IP": "10.0.0.1"}
    assert "# CHANGE: env: { SGLANG_HOST_IP: ... }" in text
    assert "address: gpu-b  # CHANGE" in text
    server = campaign.server
    assert (server.engine, server.port, server.master_port) == ("sglang", 1, 20000)
    assert server.nodes == ["10-0-0-1", "gpu-b"]
    assert server.topology.tp == 16
    assert server.args == {"mem-fraction-static": 0.9, "max-running-requests": 4}
    assert server.env == {"NCCL_DEBUG": "INFO", "HF_TOKEN": Secret(secret="HF_TOKEN")}
    assert server.container is not None
    assert server.container.image == "sglang:v1"
    assert server.container.mounts == ["/data:/models:ro"]
    assert server.container.model_path == "/models/big"
    assert server.container.args == ["--gpus=all", "--network=host", "--ipc=host"]
    assert campaign.model.path == "/data/big"
    assert campaign.model.name == "/models/big"
    assert max(case.concurrency for case in campaign.cases) == 4
    assert [phase.id for phase in campaign.phases] == ["phase0", "phase1"]
    assert "--api-key" in text, "it is said that something was left out"
    assert "context: 4096  # CHANGE" in text, "no server answers on port 1"


def test_the_way_to_the_nodes_is_written_down(docker: Any, connector: Any) -> None:
    docker(inspected())
    ssh = SshOptions("bench", 2222, "~/.ssh/lab key", "/k/known", "gate@10.0.0.9")
    text = draft_from_container("served", "10.0.0.1,gpu-b", ssh, "docker", connector)
    for node in planned(text).nodes:
        assert (node.port, node.key_file, node.known_hosts, node.jump) == (
            2222, "~/.ssh/lab key", "/k/known", "gate@10.0.0.9",
        )  # fmt: skip


def test_this_machine_and_its_server(docker: Any, serve: Any) -> None:
    page = {"data": [{"id": "served-name", "max_model_len": 8192}]}
    port = serve({"/v1/models": page})
    docker(inspected(Args=["vllm", "serve", "/models/x", "--port", str(port)]))
    text = draft_from_container("served", "local", SshOptions(), "docker")
    campaign = planned(text)
    assert campaign.nodes[0].transport == "local"
    assert (campaign.model.name, campaign.model.context) == ("served-name", 8192)
    assert not campaign.baselines
    assert "# CHANGE: accelerators: N" in text


def test_a_model_of_the_hub(docker: Any) -> None:
    cache = {"Type": "bind", "Source": "/hf", "Destination": "/root/.cache/huggingface"}
    args = ["vllm", "serve", "org/name", "--port", "1"]
    docker(inspected(Args=args, Mounts=[cache]))
    campaign = planned(draft_from_container("served", "local", SshOptions(), "docker"))
    assert campaign.model.path == "/hf/hub/models--org--name"
    assert campaign.server.container is not None
    assert campaign.server.container.model_path == "org/name"
    docker(inspected(Args=args, Mounts=[]))
    text = draft_from_container("served", "local", SshOptions(), "docker")
    assert planned(text).model.path == "/CHANGE/name"
    assert "# CHANGE: no mount holds org/name" in text


def test_a_server_that_was_started_by_hand(docker: Any) -> None:
    top = (
        "PID  COMMAND\n7  bash\n9  /usr/bin/python3 /usr/bin/vllm serve /models/x --port 1 -tp 2\n"
    )
    docker(inspected(Path="sleep", Args=["infinity"]), top=top)
    text = draft_from_container("served", "local", SshOptions(), "docker")
    assert planned(text).server.topology.tp == 2
    assert "# CHANGE: the server was started by hand" in text
    docker(inspected(Path="sleep", Args=["infinity", "hf_abcdefghijkl"]))
    with pytest.raises(ConfigError, match="no vLLM and no SGLang server") as caught:
        draft_from_container("served", "local", SshOptions(), "docker")
    assert SECRETS[0] not in str(caught.value)


def test_a_runtime_that_wants_sudo(docker: Any) -> None:
    docker(inspected(), denied=True)
    text = draft_from_container("served", "local", SshOptions(), "docker")
    assert planned(text).nodes[0].become is True


def test_a_container_that_is_not_there(docker: Any) -> None:
    docker(inspected())
    with pytest.raises(NodeError, match="no such container: other") as caught:
        draft_from_container("other", "local", SshOptions(), "docker")
    assert "docker ps" in caught.value.remedy


@pytest.mark.parametrize("found", [{}, 3, {"Image": "x"}, None])
def test_an_answer_that_cannot_be_read(docker: Any, found: Any) -> None:
    docker(found)
    with pytest.raises(NodeError, match="cannot be read"):
        draft_from_container("served", "local", SshOptions(), "docker")


def test_a_second_node_that_cannot_be_asked(docker: Any, connector: Any) -> None:
    docker(inspected())

    def half(spec: NodeSpec) -> Node:
        if spec.id == "b":
            raise ConnectionLostError("host down\nfor long", "b", "switch it on")
        return connector(spec)

    text = draft_from_container("served", "a,b", SshOptions(), "docker", half)
    planned(text)
    assert "accelerators: N (the node could not be asked: host down for long)" in text


@pytest.mark.parametrize("hosts", ["", "a,,b", "a,a", "local,b"])
def test_nodes_that_are_named_badly(hosts: str) -> None:
    with pytest.raises(ConfigError):
        node_specs(hosts, SshOptions())


def test_rails() -> None:
    """Made-up devices (simulated)."""
    active = {"1": {"state": "4: ACTIVE"}}
    devices = {
        "mlx5_0": {"netdevs": ["eth0"], "ports": active},
        "mlx5_1": {"netdevs": ["eth1"], "ports": {"1": {"state": "1: DOWN"}}},
        "mlx5_10": {"netdevs": ["eth2"], "ports": active},
        "mlx5_2": {"netdevs": [], "ports": active},
    }
    zero, ten = {"netdev": "eth0", "hca": "mlx5_0"}, {"netdev": "eth2", "hca": "mlx5_10"}
    assert rails_of(devices, "") == ([zero, ten], False)
    assert rails_of(devices, "mlx5_0:1") == ([zero], True)
    assert rails_of(devices, "mlx5_1") == ([ten], True), "a name stands for all that begin so"
    assert rails_of(devices, "=mlx5_0") == ([zero], True)
    assert rails_of(devices, "^mlx5_0") == ([zero, ten], False)
    assert rails_of({}, "mlx5_0") == ([], False)


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real podman with a storage of its own, and a created container `served`."""
    monkeypatch.setenv("CONTAINERS_CONF", need("podman"))
    program = shutil.which("podman")
    assert program is not None
    # podman takes no run folder with a name of more than 50 letters.
    store = Path(tempfile.mkdtemp(prefix="servemap-"))
    base = [program, "--root", f"{store}/root", "--runroot", f"{store}/run"]
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "podman").write_text(f'#!/bin/sh\nexec {" ".join(base)} "$@"\n')
    (folder / "podman").chmod(0o755)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x").write_text("x")

    def call_podman(*words: str, check: bool = True) -> None:
        subprocess.run([*base, *words], check=check, capture_output=True, timeout=120)

    try:
        tar = tmp_path / "i.tar"
        subprocess.run(["tar", "-C", str(tmp_path / "files"), "-cf", str(tar), "."], check=True)
        call_podman("import", "-c", "ENV FROM_IMAGE=1", str(tar), "localhost/made:1")
        call_podman(
            "create", "--name", "served", "--network=host", "--shm-size=1g", "--ulimit=memlock=-1",
            "-v", f"{tmp_path / 'files'}:/models:ro", "-e", "NCCL_DEBUG=INFO",
            "-e", f"HF_TOKEN={SECRETS[0]}", "--device", "/dev/null:/dev/other",
            "localhost/made:1", "vllm", "serve", "/models/x", "--port", "1", "-tp", "2",
        )  # fmt: skip
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield
    finally:
        call_podman("rm", "-f", "-t", "0", "-a", check=False)
        call_podman("rmi", "-f", "-a", check=False)
        subprocess.run(["umount", f"{store}/root/overlay"], check=False, capture_output=True)
        shutil.rmtree(store, ignore_errors=True)


def test_podman_itself(podman: None, tmp_path: Path) -> None:
    campaign = planned(draft_from_container("served", "local", SshOptions(), "podman"))
    container = campaign.server.container
    assert container is not None
    assert (container.image, container.runtime) == ("localhost/made:1", "podman")
    assert container.mounts == [f"{tmp_path / 'files'}:/models:ro"]
    assert container.devices == ["/dev/null:/dev/other"]
    assert container.shm_size == "1g"
    assert container.args == ["--network=host", "--ulimit=memlock=-1"]
    assert container.model_path == "/models/x"
    assert campaign.model.path == str(tmp_path / "files" / "x")
    assert campaign.server.env == {"NCCL_DEBUG": "INFO", "HF_TOKEN": Secret(secret="HF_TOKEN")}
    assert campaign.server.topology.tp == 2
    there = survey_software.runtime(["podman"], ["localhost/made:1", "none:1"])
    assert there["error"] is None
    assert there["images"]["none:1"] is None
    assert there["images"]["localhost/made:1"]["id"].startswith("sha256:")
    assert len(there["images"]["localhost/made:1"]["digests"]) == 1


def test_the_command_and_the_workflow(
    docker: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docker(inspected())
    path = tmp_path / "c.yaml"
    code, said = call(
        capsys,
        monkeypatch,
        "init",
        "--from-container",
        "served",
        "--nodes",
        "local",
        "-o",
        str(path),
    )
    assert code == 0, said
    assert "; lines marked CHANGE: " in said
    root = Path(__file__).parents[3]
    argv = [sys.executable, "-m", "snakemake", "-n", "--quiet", "--cores", "1", "phase1"]
    done = subprocess.run(
        [*argv, "--configfile", str(path), "--snakefile", str(root / "Snakefile")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
