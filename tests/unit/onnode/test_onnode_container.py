"""Containers under the supervisor and the sweep, with a simulated runtime: what podman cannot show.

The real one is in tests/e2e/test_container.py.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from agent_process import WAIT_S, Supervised, agent_argv, wait_for
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode.container import Look, exit_of, find, parse_look, runs

# One container: it is there while the file `there` is, and the daemon answers while `down` is not.
# Its client ends with code 137 at once, unless `hangs` is there.
SHIM = """#!/bin/sh
cd {folder} || exit 9
echo "$@" >> calls
[ -e down ] && {{ echo "Cannot connect to the Docker daemon" >&2; exit 1; }}
case "$1" in
run) touch there; [ -e hangs ] && {{ while [ -e there ]; do sleep 0.05; done; }}; exit 137;;
ps) [ -e there ] && echo cafe; exit 0;;
inspect) [ -e there ] || {{ echo "Error: No such object: cafe" >&2; exit 1; }}; cat state;;
rm) [ -e stuck ] || rm -f there;;
stop) touch stopped;;
esac
"""
OOM = {"Status": "exited", "Running": False, "Pid": 0, "ExitCode": 137, "OOMKilled": True}


class Docker:
    """The simulated runtime in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (
            ("docker", SHIM.format(folder=folder)),
            (
                "sudo",
                '#!/bin/sh\n[ "$1" = -n ] || exit 8\nshift\ntouch $(dirname "$0")/by_sudo\n"$@"\n',
            ),
        ):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.says(OOM)

    def says(self, state: dict[str, Any]) -> None:
        (self.folder / "state").write_text(f"cafe {json.dumps(state)}\n")

    def set(self, name: str) -> None:
        (self.folder / name).touch()

    def there(self, name: str) -> bool:
        return (self.folder / name).exists()


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Docker(folder)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    one = Supervised(tmp_path)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.process.terminate()
        one.process.wait(WAIT_S)


def start(supervised: Supervised, **changes: Any) -> "subprocess.Popen[bytes]":
    container = {"runtime": ["docker"], "name": "servemap-v-b"}
    return supervised.start(["docker", "run", "x"], container=container, **changes)


def test_a_server_that_was_out_of_memory(supervised: Supervised, docker: Docker) -> None:
    start(supervised)
    state = supervised.ended()
    assert state["exit"] == {
        "code": None, "signal": signal.SIGKILL, "reason": "exited", "oom_killed": True,
    }  # fmt: skip
    assert state["container"]["id"] == "cafe"
    assert not docker.there("there")


def test_a_container_that_cannot_be_removed_is_named(
    supervised: Supervised, docker: Docker
) -> None:
    docker.set("stuck")
    start(supervised)
    assert supervised.ended()["exit"]["containers_left"] == [{"id": "cafe"}]


def test_a_daemon_that_is_down_is_not_an_end(supervised: Supervised, docker: Docker) -> None:
    docker.set("hangs")
    process = start(supervised)
    supervised.server()
    docker.set("down")
    process.terminate()
    (left,) = supervised.ended()["exit"]["containers_left"]
    assert left["name"] == "servemap-v-b"
    assert "Cannot connect to the Docker daemon" in left["error"]


def test_a_client_that_hangs_does_not_hide_the_end_of_its_server(
    supervised: Supervised, docker: Docker
) -> None:
    with subprocess.Popen(["sleep", "600"]) as main:
        docker.says({"Status": "running", "Running": True, "Pid": main.pid, "ExitCode": 0})
        docker.set("hangs")
        start(supervised)

        def found() -> bool:
            return bool((supervised.state().get("container") or {}).get("id"))

        wait_for(found, "the container")
        assert supervised.server()["pid"] == main.pid
        main.kill()
    docker.says({**OOM, "OOMKilled": False})
    assert supervised.ended()["exit"]["reason"] == "exited"
    assert not docker.there("there")


def test_sudo_is_used_where_the_spec_says_so(supervised: Supervised, docker: Docker) -> None:
    container = {"runtime": ["sudo", "-n", "docker"], "name": "n"}
    supervised.start(["docker", "run", "x"], container=container)
    supervised.ended()
    assert docker.there("by_sudo")
    assert not docker.there("there")


@pytest.mark.parametrize(
    "container", ["docker", {}, {"runtime": [], "name": "n"}, {"runtime": ["docker"]},
                  {"runtime": [1], "name": "n"}, {"runtime": "docker", "name": "n"}],
)  # fmt: skip
def test_a_bad_container_is_one_line(
    supervised: Supervised, container: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    process = supervised.start(["true"], container=container)
    assert process.wait(WAIT_S) == 2
    text = capfd.readouterr().err
    assert text.startswith("supervise: ")
    assert text.count("\n") == 1


def swept(*words: str) -> tuple[int, dict[str, Any]]:
    argv = agent_argv("sweep", "--boot-id", "b", "--grace", "0.5", *words)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=dict(os.environ))
    return done.returncode, json.loads(done.stdout)


def test_sweep_removes_what_has_the_label(docker: Docker) -> None:
    docker.set("there")
    code, answer = swept()
    assert (code, answer["containers"], answer["containers_left"]) == (0, ["cafe"], [])
    assert (
        "ps -aq --no-trunc --filter label=servemap.boot=b" in (docker.folder / "calls").read_text()
    )
    assert not docker.there("there")
    assert not docker.there("by_sudo")


def test_sweep_by_sudo(docker: Docker) -> None:
    docker.set("there")
    assert swept("--become")[0] == 0
    assert docker.there("by_sudo")


def test_sweep_says_what_is_left(docker: Docker) -> None:
    docker.set("there")
    docker.set("stuck")
    code, answer = swept()
    assert (code, answer["containers_left"]) == (1, ["cafe"])


def test_a_runtime_that_does_not_answer_matters_where_it_ran_the_server(docker: Docker) -> None:
    docker.set("down")
    code, answer = swept()
    assert code == 0
    assert "Cannot connect" in answer["unknown"]["docker"]
    assert swept("--runtime", "docker")[0] == 1


def test_no_runtime_is_asked_for_a_bare_server(docker: Docker) -> None:
    docker.set("there")
    code, answer = swept("--bare")
    assert (code, answer["containers"], answer["unknown"]) == (0, [], {})
    assert not docker.there("calls")


@given(st.text(max_size=40).filter(lambda text: "{" not in text))
def test_garbage_is_no_container(text: str) -> None:
    with pytest.raises(ValueError):
        parse_look(text)


@given(st.dictionaries(st.sampled_from(list(OOM)), st.none() | st.integers() | st.text(max_size=3)))
def test_odd_values_are_missing(state: dict[str, Any]) -> None:
    look = parse_look(f"cafe {json.dumps(state)}")
    assert (look.id, look.running, look.pid, look.oom_killed) == ("cafe", False, None, False)


def test_a_container_that_never_ran_has_no_exit_code() -> None:
    created = {"Status": "created", "Running": False, "Pid": 0, "ExitCode": 0}
    assert parse_look(f"cafe {json.dumps(created)}").code is None


@pytest.mark.parametrize(
    ("code", "found"),
    [(0, (0, None)), (3, (3, None)), (128, (128, None)), (137, (None, 9)), (143, (None, 15)),
     (192, (None, 64)), (193, (193, None)), (None, (None, None))],
)  # fmt: skip
def test_a_code_above_128_is_a_signal(code: int | None, found: tuple[Any, Any]) -> None:
    end = exit_of(Look("cafe", False, None, None, code, False))
    assert (end["code"], end["signal"]) == found


def test_the_process_table_knows_before_the_runtime_does() -> None:
    assert not runs(Look("cafe", True, os.getpid(), 1, None, False)), "another start time"
    assert runs(Look("cafe", True, 3, None, None, False)), "not shown here: the runtime's word"


def test_what_a_question_to_podman_leaves_running_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    podman = tmp_path / "podman"
    # As rootless podman does: a process in a session of its own, for the next call.
    podman.write_text(
        f"#!/bin/sh\nsetsid sh -c 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; "
        "exec sleep 600' >/dev/null 2>&1 </dev/null &\n"
        f"while [ ! -e {pid_file} ]; do sleep 0.01; done\necho cafe\n"
    )
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find(["podman"], "boot") == ["cafe"]
    left = int(pid_file.read_text())
    try:
        wait_for(lambda: not Path(f"/proc/{left}").exists(), "its end")
    finally:
        with suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
