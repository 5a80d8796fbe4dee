"""The command that runs a server in a container."""

from typing import Any

import pytest

from servemap.model.errors import ConfigError
from servemap.model.server_spec import Container
from servemap.server.container.command import container_argv, in_container, runtime_argv


def command(secret_names: Any = (), become: bool = False, **keys: Any) -> list[str]:
    return container_argv(
        Container.model_validate({"image": "ours:1", **keys}),
        become=become,
        name="servemap-v-b",
        boot_id="b",
        image="sha256:00",
        argv=["python3", "-m", "serve", "--port", "1"],
        env={"B": "two words", "A": "1"},
        secret_names=secret_names,
        cwd=None,
    )


def test_the_whole_command() -> None:
    words = command(
        ["HF_TOKEN"],
        mounts=["/data:/data:ro"],
        devices=["/dev/infiniband", "/dev/fuse"],
        args=["--gpus=all"],
        log_max_bytes=2_000_000,
    )
    assert words == [
        "docker", "run", "--name=servemap-v-b", "--label=servemap.boot=b", "--pull=never",
        "--network=host", "--ipc=host", "--cap-add=IPC_LOCK", "--ulimit=memlock=-1:-1",
        "--pids-limit=-1", "--log-driver=json-file", "--log-opt=max-size=2000000",
        "--device=/dev/infiniband", "--device=/dev/fuse", "--volume=/data:/data:ro",
        "--env=A=1", "--env=B=two words", "--env=SERVEMAP_BOOT_ID=b", "--env=SPT_NOENV=1",
        "--env=HF_TOKEN",
        "--entrypoint=python3", "--gpus=all", "sha256:00", "-m", "serve", "--port", "1",
    ]  # fmt: skip


def test_podman_keeps_its_log_in_a_driver_of_its_own() -> None:
    assert "--log-driver=k8s-file" in command(runtime="podman")


def test_sudo_hands_the_secrets_on_by_name() -> None:
    words = command(["B_KEY", "A_KEY"], become=True, runtime="podman")
    assert words[:5] == ["sudo", "-n", "--preserve-env=A_KEY,B_KEY", "podman", "run"]
    assert command(become=True)[:3] == ["sudo", "-n", "docker"]


@pytest.mark.parametrize(
    ("args", "replaced"),
    [
        (["--network=bridge"], "--network="),
        (["--net", "none"], "--network="),
        (["--ipc=private"], "--ipc=host"),
        (["--cap-add", "CAP_IPC_LOCK"], "--cap-add=IPC_LOCK"),
        (["--cap-add=all"], "--cap-add=IPC_LOCK"),
        (["--privileged"], "--cap-add=IPC_LOCK"),
        (["--ulimit=memlock=5"], "--ulimit=memlock=-1"),
        (["--ulimit", "host"], "--ulimit=memlock=-1"),
        (["--pids-limit=9"], "--pids-limit=-1"),
        (["--log-driver=journald"], "--log-"),
        (["--log-opt=max-size=1m"], "--log-opt=max-size=1000000000"),
    ],
)
def test_an_option_of_the_user_replaces_ours(args: list[str], replaced: str) -> None:
    assert any(word.startswith(replaced) for word in command())
    words = command(args=args)
    ours = words[: words.index("sha256:00") - len(args)]
    assert not any(word.startswith(replaced) for word in ours)
    assert words[len(ours) : len(ours) + len(args)] == args, "theirs come last"


def test_another_limit_leaves_ours() -> None:
    words = command(args=["--ulimit=nofile=5", "--cap-add=SYS_NICE"])
    assert {"--ulimit=memlock=-1:-1", "--cap-add=IPC_LOCK"} <= set(words)


@pytest.mark.parametrize(
    ("args", "ipc", "size"),
    [
        ([], False, True),
        (["--ipc=host"], True, False),
        (["--ipc=private"], False, True),
        (["--shm-size=1g"], False, False),
    ],
)
def test_a_size_of_shared_memory_acts(args: list[str], ipc: bool, size: bool) -> None:
    """The host's shared memory has the host's size: podman refuses another one for it."""
    words = command(args=args, shm_size="64g")
    assert ("--ipc=host" in words) == ipc
    assert ("--shm-size=64g" in words) == size


def test_an_entry_point_of_the_user_gets_the_whole_command() -> None:
    words = command(args=["--entrypoint=/opt/entry.sh"])
    assert words[-6:] == ["sha256:00", "python3", "-m", "serve", "--port", "1"]
    assert "--entrypoint=python3" not in words


def test_a_start_folder_inside() -> None:
    keys: dict[str, Any] = {
        "become": False, "name": "n", "boot_id": "b", "image": "i", "argv": ["a"], "env": {},
        "secret_names": [], "cwd": "/srv",
    }  # fmt: skip
    assert "--workdir=/srv" in container_argv(Container(image="i"), **keys)
    theirs = container_argv(Container(image="i", args=["-w", "/x"]), **keys)
    assert "--workdir=/srv" not in theirs


def test_an_option_that_would_take_the_container_away_is_refused() -> None:
    with pytest.raises(ConfigError, match="--rm"):
        command(args=["--rm"])


def test_how_the_supervisor_runs_and_ends_it() -> None:
    container = Container(image="i", runtime="podman")
    keys: dict[str, Any] = {
        "boot_id": "0-1", "image": "i", "argv": ["a"], "env": {}, "secret_names": [], "cwd": None,
    }  # fmt: skip
    found = in_container(container, become=True, variant="v", **keys)
    assert found.container == {"runtime": ["sudo", "-n", "podman"], "name": "servemap-v-0-1"}
    assert found.argv == container_argv(container, become=True, name="servemap-v-0-1", **keys)
    assert runtime_argv(container, become=False) == ["podman"]
