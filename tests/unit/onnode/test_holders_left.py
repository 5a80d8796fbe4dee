"""Leftovers of servers are found by recorded identity, mark, group and label, never by name."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import holders_left as hl
from servemap.onnode.holders import read_holders
from servemap.onnode.ident import machine_boot_id, read_stat
from servemap.onnode.view import read_process

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(env: dict[str, str] | None = None, code: str = "pass") -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-c", f"{code}\nprint(1, flush=True); input()"]
        child = subprocess.Popen(
            argv,
            env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield run
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # its session is its own
        child.communicate()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/nvidia0", ("/dev/nvidia0", False)),
        ("/dev/nvidia-uvm", ("/dev/nvidia-uvm", True)),
        ("/dev/nvidia-uvm-tools", None),
        ("/dev/nvidiactl", None),
        ("/dev/kfd", ("/dev/kfd", True)),
        ("/dev/kfd (deleted)", ("/dev/kfd", True)),
        ("/dev/dri/renderD128", ("/dev/dri/renderD128", False)),
        ("/dev/dri/card0", None),
        ("/dev/davinci3", ("/dev/davinci3", True)),
        ("/dev/davinci_manager", None),
        ("/dev/iluvatar1", ("/dev/iluvatar1", False)),
        ("/dev/bi0", ("/dev/bi0", False)),
        ("/dev/null", None),
        ("/home/dev/nvidia0", None),
        ("socket:[1]", None),
    ],
)
def test_device_files(path: str, expected: tuple[str, bool] | None) -> None:
    assert hl.device(path) == expected


def test_open_device_files(monkeypatch: pytest.MonkeyPatch, start: Start, tmp_path: Path) -> None:
    """Simulated: an ordinary file stands for the device."""
    card = tmp_path / "card7"
    card.touch()
    monkeypatch.setattr(hl, "DEVICES", ((f"{tmp_path}/card[0-9]*", True),))
    child = start(code=f"handle = open({str(card)!r})")
    process = read_process(child.pid)
    assert process is not None
    found, hidden = hl.open_devices([process])
    assert found == {child.pid: {str(card): True}}
    assert hidden == 0


def test_marks(start: Start) -> None:
    boot = str(uuid.uuid4())
    marked, plain = start({"SERVEMAP_BOOT_ID": boot}), start({"NOT_SERVEMAP_BOOT_ID": boot})
    assert hl.marks([marked.pid, plain.pid, 2**22 + 1]) == {marked.pid: boot}


def state_of(pid: int, **keys: Any) -> dict[str, Any]:
    stat = read_stat(pid)
    assert stat is not None
    identity = {"pid": pid, "start": stat.start, "pgid": pid}
    return {
        "machine_boot_id": machine_boot_id(),
        "supervisor": None,
        "server": identity,
        "ended_ns": None,
        "exit": None,
        **keys,
    }


def write_state(workdir: Path, boot: str, state: Any) -> None:
    (workdir / "server").mkdir(parents=True, exist_ok=True)
    (workdir / "server" / f"{boot}.state.json").write_text(json.dumps(state))


def test_a_recorded_server_and_its_group(start: Start, tmp_path: Path) -> None:
    server = start(code="import subprocess; w = subprocess.Popen(['sleep', '600'])")
    write_state(tmp_path, "b1", state_of(server.pid))
    found = hl.recorded([str(tmp_path), str(tmp_path / "none")])
    assert found.pop(server.pid) == "b1"
    ((worker, boot),) = found.items()
    assert boot == "b1"
    seen = read_process(worker)
    assert seen is not None
    assert (seen.ppid, seen.command) == (server.pid, "sleep 600")
    assert hl.known_boots([str(tmp_path)]) == ["b1"]


def test_workers_whose_leader_is_gone(start: Start, tmp_path: Path) -> None:
    code = "import subprocess; w = subprocess.Popen(['sleep', '600']); print(w.pid, flush=True)"
    server = start(code=code)
    state = state_of(server.pid)
    write_state(tmp_path, "b1", state)
    (worker,) = set(hl.recorded([str(tmp_path)])) - {server.pid}
    server.kill()
    server.wait()
    assert hl.recorded([str(tmp_path)]) == {worker: "b1"}
    write_state(tmp_path, "b1", {**state, "ended_ns": 1, "exit": {"code": 0}})
    assert hl.recorded([str(tmp_path)]) == {}, "all of it was seen to end: the number is free"


def other_boot(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "machine_boot_id": "another"}


def number_given_anew(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "server": {**state["server"], "start": state["server"]["start"] - 1}}


def ended(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "ended_ns": 1, "exit": {"code": 0}, "server": {**state["server"], "start": 1}}


@pytest.mark.parametrize("change", [other_boot, number_given_anew, ended])
def test_a_number_alone_proves_nothing(
    start: Start, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    child = start()
    write_state(tmp_path, "b1", change(state_of(child.pid)))
    assert hl.recorded([str(tmp_path)]) == {}


def test_what_even_a_kill_did_not_end(start: Start, tmp_path: Path) -> None:
    child = start()
    state = state_of(child.pid)
    left = [{"pid": child.pid, "start": state["server"]["start"], "comm": "x"}]
    write_state(tmp_path, "b1", {**state, "ended_ns": 1, "server": None, "exit": {"left": left}})
    assert hl.recorded([str(tmp_path)]) == {child.pid: "b1"}


def test_what_its_supervisor_saw_below_it(start: Start, tmp_path: Path) -> None:
    child = start()
    state = state_of(child.pid)
    below = [{"pid": child.pid, "start": state["server"]["start"]}, {"pid": child.pid, "start": 1}]
    write_state(tmp_path, "b1", {**state, "server": None, "descendants": below})
    assert hl.recorded([str(tmp_path)]) == {child.pid: "b1"}


@pytest.mark.parametrize(
    "state",
    [
        [],
        {},
        None,
        {"machine_boot_id": 3},
        {"server": "x"},
        {"exit": {"left": [[]]}},
        {"descendants": [3]},
    ],
)
def test_a_damaged_state_file_names_nobody(tmp_path: Path, state: Any) -> None:
    if isinstance(state, dict) and state:
        state = {"machine_boot_id": machine_boot_id(), **state}
    write_state(tmp_path, "b1", state)
    assert hl.recorded([str(tmp_path)]) == {}
    assert hl.known_boots([str(tmp_path)]) == ["b1"]


ID = "0123456789ab" * 5 + "0123"
PODMAN = [
    {"Id": ID, "Names": ["srv"], "Labels": {"servemap.boot": "b1", "x": "y"}, "Pid": 4711},
    {"Id": "f" * 64, "Names": ["other"], "Labels": None, "Pid": 1},
]
DOCKER = {"ID": ID, "Names": "srv", "Labels": "maintainer=a=b,servemap.boot=b1,x=", "State": "up"}


def test_labelled_containers() -> None:
    """Simulated: the forms that podman and docker document."""
    (one,) = hl.parse_labelled(json.dumps(PODMAN))
    assert one == {"id": ID, "name": "srv", "boot_id": "b1", "pid": 4711}
    (one,) = hl.parse_labelled(json.dumps(DOCKER) + "\n")
    assert one == {"id": ID, "name": "srv", "boot_id": "b1", "pid": None}
    assert hl.parse_labelled("") == []


rows = st.dictionaries(
    st.sampled_from(["Id", "ID", "Labels", "Names", "Pid"]),
    st.none() | st.integers() | st.text() | st.lists(st.integers()) | st.dictionaries(
        st.sampled_from(["servemap.boot", "x"]), st.none() | st.text() | st.integers()
    ),
)  # fmt: skip


@given(st.lists(rows))
def test_odd_rows_of_containers(found: list[dict[str, Any]]) -> None:
    for one in hl.parse_labelled(json.dumps(found)):
        assert isinstance(one["id"], str)
        assert isinstance(one["boot_id"], str)


def test_containers_by_shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: docker has no daemon, podman has one container of ours."""
    (tmp_path / "out").write_text(json.dumps(PODMAN))
    for name, script in (
        ("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1"),
        ("podman", f'case "$*" in *label=servemap.boot*) exec /bin/cat {tmp_path}/out;; esac'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found, failed = hl.containers()
    assert [(one["runtime"], one["boot_id"]) for one in found] == [("podman", "b1")]
    assert failed == {"docker": "Cannot connect to the Docker daemon"}


def test_processes_of_a_container(start: Start) -> None:
    row = {"id": ID, "pid": start().pid, "boot_id": "b1"}
    assert hl.in_containers([row["pid"], 1], [row]) == {row["pid"]: "b1"}
    assert hl.in_containers([row["pid"]], []) == {}


def test_holders_of_this_machine(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    boot = str(uuid.uuid4())
    child = start({"SERVEMAP_BOOT_ID": boot})
    write_state(tmp_path, boot, {})
    found = json.loads(json.dumps(read_holders([str(tmp_path)])))
    assert found["boots"][str(child.pid)] == boot
    assert found["known"] == [boot]
    assert (found["containers"], found["containers_failed"]) == ([], {})
