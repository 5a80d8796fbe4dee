"""The server's process on its node: started under the supervisor, found again, ended whole."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import LaunchError, NodeError
from servemap.nodes.local import LocalNode
from servemap.server.launch import exits, process
from tests.fakes import FakeNode


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


def start(node: FakeNode, workdir: Path, **keys: Any) -> process.Running:
    given: dict[str, Any] = {
        "boot_id": "b-1", "variant": "v", "fingerprint": "f", "port": 1,
        "argv": ["serve"], "env": {"A": "1"}, "secrets": {"KEY": "s3cr3t"},
        "cwd": None, "ttl_s": 60, "grace_s": 1,
    }  # fmt: skip
    return process.start(node, str(workdir), **{**given, **keys})


def test_what_was_started_is_found_again(node: FakeNode, tmp_path: Path) -> None:
    assert process.read_running(node, str(tmp_path)) is None
    running = start(node, tmp_path)
    assert process.read_running(node, str(tmp_path)) == running
    assert process.alive(node, str(tmp_path), running)
    assert Path(process.heartbeat_path(str(tmp_path))).exists(), "renewed before the start"
    text = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert '"A": "1"' in text
    assert "s3cr3t" not in text


def test_the_folder_of_a_run_is_for_this_user_alone(tmp_path: Path) -> None:
    process.own_folder(LocalNode("n1"), str(tmp_path / "a/run"))
    assert stat.S_IMODE((tmp_path / "a/run").stat().st_mode) == 0o700
    (tmp_path / "a/run").chmod(0o755)
    process.own_folder(LocalNode("n1"), str(tmp_path / "a/run"))
    assert stat.S_IMODE((tmp_path / "a/run").stat().st_mode) == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(NodeError, match=r"the run's folder cannot be made: .*file"):
        process.own_folder(LocalNode("n1"), str(tmp_path / "file/run"))


PROCESS = {"pid": 1, "start": 1, "boot_id": "x"}
WHOLE = {
    "variant": "v", "fingerprint": "f", "boot_id": "b", "port": 1, "supervisor": PROCESS,
    "started_ns": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "[" * 100_000, "null",
        *(json.dumps({**WHOLE, **change}) for change in (
            {"variant": {"a": 1}}, {"boot_id": ["x"]}, {"boot_id": 5}, {"port": "1"},
            {"supervisor": 3}, {"supervisor": {**PROCESS, "pid": "1; touch /tmp/x"}},
            {"supervisor": {**PROCESS, "boot_id": 5}}, {"supervisor": {**PROCESS, "start": None}},
            {"started_ns": None}, {"another": 1},
        )),
    ],
)  # fmt: skip
def test_a_damaged_record_is_no_server_and_is_named(
    node: FakeNode, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "server" / "current.json"
    path.parent.mkdir()
    path.write_text(json.dumps(WHOLE))
    assert process.read_running(node, str(tmp_path)) is not None
    path.write_text(text)
    assert process.read_running(node, str(tmp_path)) is None
    with pytest.raises(process.DamagedRecordError) as caught:
        process.read_current(node, str(tmp_path))
    assert str(caught.value) == str(path)


@pytest.mark.parametrize(
    "change",
    [
        {"exit": "gone"}, {"exit": {"code": "1"}}, {"exit": {"reason": ["x"]}},
        {"server": {"pid": "x", "start": 1}}, {"server": [1]}, {"machine_boot_id": {}},
        {"container": None}, {"container": {"runtime": "podman"}}, {"container": {"runtime": []}},
        {"ended_ns": "soon"},
    ],
)  # fmt: skip
def test_a_damaged_state_is_no_state_and_is_named(
    node: FakeNode, tmp_path: Path, change: dict[str, Any]
) -> None:
    running = start(node, tmp_path)
    node.state_path.write_text(json.dumps({**node.state, **change}))
    assert process.supervisor_state(node, str(tmp_path), running.boot_id) == {}
    assert not process.alive(node, str(tmp_path), running)
    said = exits.why_ended(node, str(tmp_path), running, 0.1)
    assert said == f"the record of the server is damaged: {node.state_path}"
    process.stop(node, str(tmp_path), running, 0.1)
    assert node.supervisor not in node.living


def test_how_it_ended_is_said_when_its_supervisor_has_ended_the_rest(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(node, tmp_path)
    node.living.discard(node.server)
    monkeypatch.setattr(process.time, "sleep", lambda _: node.server_dies(signal=9))
    said = exits.why_ended(node, str(tmp_path), running, 0.1)
    assert said == "the server was ended by signal 9"


def test_a_supervisor_that_never_says_how_it_ended_is_not_awaited_for_ever(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(node, tmp_path)
    node.living.discard(node.server)
    monkeypatch.setattr(process, "END_S", 0.0)
    said = exits.why_ended(node, str(tmp_path), running, 0.1)
    assert said == "the server's process is gone"


def test_a_state_keeps_what_is_not_known_here(node: FakeNode, tmp_path: Path) -> None:
    running = start(node, tmp_path)
    end = {"reason": "exited", "code": 0, "left": [{"pid": 7}]}
    node.state_path.write_text(json.dumps({**node.state, "exit": end, "more": [1]}))
    state = process.supervisor_state(node, str(tmp_path), running.boot_id)
    assert state == {**node.state, "exit": end, "more": [1]}


def test_a_supervisor_that_says_nothing(node: FakeNode, tmp_path: Path) -> None:
    def dies(argv: list[str], pid: Any) -> None:
        node.living.discard(pid)

    node.on_spawn["supervise"] = dies
    with pytest.raises(LaunchError, match="it said nothing"):
        start(node, tmp_path)


def test_stopping_ends_all_and_forgets(node: FakeNode, tmp_path: Path) -> None:
    running = start(node, tmp_path)
    swept: list[list[str]] = []
    node.on_run["sweep"] = lambda argv: swept.append(argv) or "{}"
    state = process.stop(node, str(tmp_path), running, 0.1)
    assert state["server"]["pid"] == node.server.pid
    assert not node.living
    assert swept[0][1:4] == ["sweep", "--boot-id", running.boot_id]
    assert swept[0][swept[0].index("--state") + 1] == str(node.state_path)
    assert swept[0][-1] == "--bare", "no container runtime is asked"
    assert process.read_running(node, str(tmp_path)) is None


class FullNode(FakeNode):
    """A node whose disk takes no new file once it is full; what is there can be touched."""

    full = False

    def write_text(self, remote: str, text: str) -> None:
        if self.full:
            raise NodeError("the disk is full", remote, "make room")
        super().write_text(remote, text)


def test_a_full_disk_keeps_no_server_from_being_renewed_and_stopped(tmp_path: Path) -> None:
    node = FullNode()
    running = start(node, tmp_path)
    node.full = True
    touched: list[str] = []
    node.on_run["-c"] = lambda argv: touched.append(argv[-1]) or ""
    process.renew(node, str(tmp_path))
    assert touched == [process.heartbeat_path(str(tmp_path))]
    process.stop(node, str(tmp_path), running, 0.1)
    assert not node.living
    assert process.read_running(node, str(tmp_path)) == running
    assert not process.alive(node, str(tmp_path), running)


def test_a_server_that_outlives_its_supervisor_is_stopped_itself(
    node: FakeNode, tmp_path: Path
) -> None:
    running = start(node, tmp_path)
    process.stop(node, str(tmp_path), running, 0.1)
    assert node.stopped == [node.supervisor, node.server]


CONTAINER = {"runtime": ["sudo", "-n", "podman"], "name": "n"}


def test_a_container_is_named_to_its_supervisor(node: FakeNode, tmp_path: Path) -> None:
    start(node, tmp_path, container=CONTAINER)
    spec = json.loads((tmp_path / "server" / "b-1.spec.json").read_text())
    assert (spec["boot_id"], spec["container"]) == ("b-1", CONTAINER)
    start(node, tmp_path, boot_id="b2")
    assert "container" not in json.loads((tmp_path / "server" / "b2.spec.json").read_text())


def test_a_container_is_ended_by_its_id_and_not_by_its_process(
    node: FakeNode, tmp_path: Path
) -> None:
    running = start(node, tmp_path, container=CONTAINER)
    node.state_path.write_text(json.dumps({**node.state, "container": CONTAINER}))
    swept: list[list[str]] = []
    node.on_run["sweep"] = lambda argv: swept.append(argv) or "{}"
    process.stop(node, str(tmp_path), running, 0.1)
    assert node.stopped == [node.supervisor]
    assert swept[0][-3:] == ["--runtime", "podman", "--become"]


def test_what_does_not_end_is_named(node: FakeNode, tmp_path: Path) -> None:
    running = start(node, tmp_path)
    node.stubborn = {node.server}
    with pytest.raises(LaunchError, match="does not end") as caught:
        process.stop(node, str(tmp_path), running, 0.1)
    assert str(node.server.pid) in caught.value.where
    assert process.read_running(node, str(tmp_path)) == running


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"reason": "lease_expired", "code": 0}, "nobody renewed"),
        ({"reason": "exited", "signal": 9, "code": None}, "ended by signal 9"),
        ({"reason": "exited", "signal": None, "code": 0}, "exited with code 0"),
        ({"reason": "client_lost", "signal": 9, "code": None}, "client was lost"),
        ({"reason": "supervisor_lost", "signal": 9, "code": None}, "supervisor was killed"),
        ({"reason": "exited", "signal": 9, "code": None, "oom_killed": True}, "out of memory"),
        (None, "process is gone"),
    ],
)
def test_how_a_server_ended_in_words(end: dict[str, Any] | None, words: str) -> None:
    assert words in exits.say_exit({"exit": end})


def test_the_state_of_another_boot_of_the_machine_is_no_process() -> None:
    assert process.server_process({}) is None
    assert process.server_process({"server": None, "machine_boot_id": "b"}) is None
    found = process.server_process(json.loads(
        '{"server": {"pid": 3, "start": 4}, "machine_boot_id": "b"}'))  # fmt: skip
    assert found is not None
    assert (found.pid, found.start, found.boot_id) == (3, 4, "b")
