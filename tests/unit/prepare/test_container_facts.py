"""What `inspect` of docker and podman says. The answers are shaped after recorded ones."""

from typing import Any

import pytest

from servemap.prepare.container_facts import (
    ContainerFacts,
    hub_folder,
    on_host,
    read_container,
)


def docker(host: dict[str, Any] | None = None, **config: Any) -> dict[str, Any]:
    return {
        "Path": "vllm",
        "Args": ["serve", "/models/x"],
        "Image": "sha256:aa",
        "Config": {"Image": "vllm/vllm-openai:v1", "Env": [], "User": "", **config},
        "HostConfig": {"NetworkMode": "host", "ShmSize": 64 << 20, **(host or {})},
        "Mounts": [],
    }


def test_docker() -> None:
    found = docker(
        {
            "IpcMode": "private",
            "ShmSize": 32 << 30,
            "Devices": [
                {
                    "PathOnHost": "/dev/infiniband/uverbs0",
                    "PathInContainer": "/dev/infiniband/uverbs0",
                },
                {
                    "PathOnHost": "/dev/infiniband/uverbs1",
                    "PathInContainer": "/dev/infiniband/uverbs1",
                },
                {"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/other"},
            ],
            "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None}],
            "Ulimits": [
                {"Name": "memlock", "Soft": -1, "Hard": -1},
                {"Name": "stack", "Soft": 1, "Hard": 2},
            ],
            "CapAdd": ["IPC_LOCK"],
            "Runtime": "nvidia",
            "Privileged": True,
        },
        Env=["PATH=/bin", "CUDA_VERSION=12", "NCCL_DEBUG=INFO", "VLLM_HOST_IP=10.0.0.1", "A=b=c"],
    )
    found["Mounts"] = [
        {"Type": "bind", "Source": "/data", "Destination": "/models", "RW": False},
        {"Type": "volume", "Name": "cache", "Source": "/var/x", "Destination": "/c", "RW": True},
        {"Type": "tmpfs", "Source": "", "Destination": "/t", "RW": True},
    ]
    assert read_container(found, ["CUDA_VERSION=12"]) == ContainerFacts(
        image="vllm/vllm-openai:v1",
        image_id="sha256:aa",
        words=["vllm", "serve", "/models/x"],
        mounts=["/data:/models:ro", "cache:/c"],
        devices=["/dev/infiniband", "/dev/fuse:/dev/other"],
        shm_size="32g",
        env={"NCCL_DEBUG": "INFO", "A": "b=c"},
        env_of_node={"VLLM_HOST_IP": "10.0.0.1"},
        args=[
            "--gpus=all", "--runtime=nvidia", "--network=host", "--privileged",
            "--ulimit=memlock=-1", "--ulimit=stack=1:2", "--cap-add=IPC_LOCK",
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "args", "devices"),
    [
        ({"Driver": "nvidia", "Count": 0, "DeviceIDs": ["0"]}, ["--gpus=device=0"], []),
        ({"DeviceIDs": ["0", "1"]}, ['--gpus="device=0,1"'], []),
        ({"Count": 2}, ["--gpus=2"], []),
        ({"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}, [], ["nvidia.com/gpu=all"]),
    ],
)
def test_cards_of_docker(request_: Any, args: list[str], devices: list[str]) -> None:
    found = read_container(docker({"DeviceRequests": [request_]}), [])
    assert found.args == [*args, "--network=host"]
    assert found.devices == devices


def test_secrets_are_named_without_their_values() -> None:
    found = read_container(
        docker(
            Env=[
                "HF_TOKEN=hf_abcdefghijkl",
                "VLLM_API_KEY=plain",
                "SOME=sk-abcdefghijklmnop",
                "https_proxy=http://user:pw9x@proxy:1",
                "VLLM_MAX_NUM_BATCHED_TOKENS=8192",
                "odd name=1",
            ]
        ),
        [],
    )
    assert found.secrets == ["HF_TOKEN", "VLLM_API_KEY", "SOME", "https_proxy"]
    assert found.env == {"VLLM_MAX_NUM_BATCHED_TOKENS": "8192"}
    assert "odd name" in found.notes[0]
    for value in ("hf_abc", "plain", "sk-abc", "pw9x"):
        assert value not in str(found)


def test_a_network_that_is_not_the_hosts() -> None:
    found = read_container(
        docker({"NetworkMode": "bridge", "PortBindings": {"8000/tcp": [{"HostPort": "9000"}]}}), []
    )
    assert found.published == {8000: 9000}
    assert "'bridge'" in found.notes[0]
    assert "--network=host" not in found.args


@pytest.mark.parametrize(
    ("size", "mode", "shown"),
    [(64 << 20, "", None), (65_536_000, "", None), (1 << 30, "host", None), (10 << 20, "", "10m"),
     (1500, "", "1500"), (0, "", None)],
)  # fmt: skip
def test_shared_memory(size: int, mode: str, shown: str | None) -> None:
    host = {"ShmSize": size, "IpcMode": mode}
    assert read_container(docker(host), []).shm_size == shown


def test_limits_of_podman() -> None:
    limits = [
        {"Name": "RLIMIT_NOFILE", "Soft": 1048576, "Hard": 1048576},
        {"Name": "RLIMIT_MEMLOCK", "Soft": -1, "Hard": -1},
    ]
    found = {**docker({"Ulimits": limits}), "ImageName": "localhost/x:1"}
    assert read_container(found, []).args == ["--network=host", "--ulimit=memlock=-1"]
    assert read_container(found, []).image == "localhost/x:1"


@pytest.mark.parametrize(
    "found", [{}, [], {"Config": {}, "HostConfig": {}}, {**docker(), "Config": []}, None, 3]
)
def test_no_answer_of_inspect(found: Any) -> None:
    with pytest.raises(ValueError, match="no answer of `inspect`"):
        read_container(found, [])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/models/x", "/data/models/x"),
        ("/models", "/data/models"),
        ("/models/deep/x", "/fast/x"),
        ("/modelsx", None),
        ("/volume/x", None),
        ("/models/../etc", None),
    ],
)
def test_where_a_path_lies_on_the_node(path: str, expected: str | None) -> None:
    mounts = ["/data/models:/models:ro", "/fast:/models/deep", "named:/volume"]
    assert on_host(path, mounts) == expected


def test_models_of_the_hub() -> None:
    folder = "/models--org--name"
    assert hub_folder("org/name", {}, None) == f"/root/.cache/huggingface/hub{folder}"
    assert hub_folder("org/name", {"HF_HOME": "/h"}, "1000") == f"/h/hub{folder}"
    assert hub_folder("org/name", {"HF_HUB_CACHE": "/c"}, None) == f"/c{folder}"
    assert hub_folder("org/name", {}, "1000") is None
    assert hub_folder("/models/x", {}, None) is None
    assert hub_folder("a/b/c", {}, None) is None
