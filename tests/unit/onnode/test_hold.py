"""Who drives a machine: the lease's file, who may take it over, and races for it."""

import errno
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servemap.onnode import hold, hold_file
from servemap.onnode.ident import machine_boot_id, read_stat

GONE = 4_000_000  # above the kernel's greatest pid


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    old = os.umask(0o077)
    yield tmp_path / "lease"
    os.umask(old)


def owner(pid: int | None = None, **facts: Any) -> dict[str, Any]:
    pid = pid or os.getpid()
    seen = read_stat(pid)
    return {
        "pid": pid,
        "start": seen.start if seen else 1,
        "boot_id": machine_boot_id(),
        "pid_ns": hold.pid_namespace(),
        "run": "/results/ours",
        "ttl_s": 120,
        **facts,
    }


def elsewhere(**facts: Any) -> dict[str, Any]:
    """A controller on a machine that this one cannot look at."""
    return owner(7, start=70, boot_id="boot of another", run="/results/theirs", **facts)


def ask(action: str, who: dict[str, Any], **request: Any) -> dict[str, Any]:
    return hold.ACTIONS[action]({"owner": who, **request})


def lease(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "lease.json").read_text())


def aged(path: Path, seconds: float) -> None:
    renewed = time.monotonic_ns() - int(seconds * 1e9)
    os.utime(path, ns=(renewed, renewed))


def test_taken_renewed_and_given_back(folder: Path) -> None:
    assert ask("check", owner()) == {"path": None}
    assert not folder.exists(), "asking writes nothing"
    assert ask("take", owner()) == {"path": str(folder / "lease.json")}
    assert lease(folder)["node_boot_id"] == machine_boot_id()
    aged(folder / "lease.json", 100)
    ask("renew", owner())
    found = hold_file.read(str(folder / "lease.json"))
    assert found is not None
    assert found.age_s < 90
    ask("release", owner(run="/results/other"))
    ask("release", elsewhere())
    assert lease(folder)["run"] == "/results/ours", "only the owner's run gives it back"
    ask("release", owner())
    assert sorted(path.name for path in folder.iterdir()) == ["guard"]
    assert ask("release", owner()) == {"path": None}


def test_a_holder_elsewhere_is_named_with_its_age(folder: Path) -> None:
    ask("take", elsewhere(user="ann"))
    aged(folder / "lease.json", 20)
    for action in ("take", "check", "renew"):
        held = ask(action, owner())["held"]
        assert (held["pid"], held["user"], held["path"]) == (7, "ann", str(folder / "lease.json"))
        assert 20 <= held["age_s"] < 80
        assert held["age_s"] + held["stale_in_s"] == pytest.approx(120)
    assert lease(folder)["pid"] == 7


@pytest.mark.parametrize("seconds", [121, -1000], ids=["old", "of no clock of this boot"])
def test_who_does_not_renew_loses_it(folder: Path, seconds: float) -> None:
    ask("take", elsewhere())
    aged(folder / "lease.json", seconds)
    assert "held" not in ask("take", owner())
    assert lease(folder)["pid"] == os.getpid()
    assert ask("renew", elsewhere())["held"]["pid"] == os.getpid(), "and is told so"


def test_the_holder_says_how_long_it_may_be_silent(folder: Path) -> None:
    ask("take", elsewhere(ttl_s=10))
    aged(folder / "lease.json", 11)
    assert "held" not in ask("check", owner(ttl_s=1000))


def test_a_step_of_the_wall_clock_ends_no_lease(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("take", elsewhere())
    for now in (0, 4e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        monkeypatch.setattr(time, "time_ns", lambda now=now: int(now * 1e9))
        assert ask("check", owner())["held"]["pid"] == 7


def test_a_lease_of_an_earlier_boot_is_stale(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(hold, "machine_boot_id", lambda: "the boot before")
        ask("take", elsewhere())
    assert "held" not in ask("take", owner())
    assert lease(folder)["pid"] == os.getpid()


def test_the_owner_renews_a_lease_over_a_boot_of_the_node(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(hold, "machine_boot_id", lambda: "the boot before")
        ask("take", owner(boot_id="boot of the controller"))
    assert "held" not in ask("renew", owner(boot_id="boot of the controller"))
    assert lease(folder)["node_boot_id"] == machine_boot_id()


def test_a_lease_that_vanished_is_taken_again_unless_another_has_it(folder: Path) -> None:
    ask("take", owner())
    (folder / "lease.json").unlink()
    assert ask("renew", owner()) == {"path": str(folder / "lease.json")}
    (folder / "lease.json").unlink()
    ask("take", elsewhere())
    assert ask("renew", owner())["held"]["pid"] == 7


def test_who_is_known_to_be_dead_holds_nothing(folder: Path) -> None:
    ask("take", elsewhere())
    gone = {key: elsewhere()[key] for key in hold.IDENTITY}
    assert ask("take", owner(), gone={**gone, "start": 71})["held"]["pid"] == 7
    for nobody in ({}, dict.fromkeys(hold.IDENTITY), None):
        assert ask("take", owner(), gone=nobody)["held"]["pid"] == 7
    assert "held" not in ask("take", owner(), gone=gone)


@pytest.mark.parametrize(
    ("change", "dead"),
    [
        ({}, False),
        ({"pid": GONE}, True),
        ({"start": 1}, True),
        ({"pid": GONE, "pid_ns": "pid:[1]"}, False),
        ({"pid": GONE, "boot_id": "another"}, False),
        ({"pid": "7"}, True),
        ({"pid": 10**30}, True),
    ],
)
def test_only_a_process_that_can_be_seen_from_here_is_known_to_be_gone(
    change: dict[str, Any], dead: bool
) -> None:
    assert hold.proves_death({**owner(), **change}) is dead


def test_a_process_that_proc_hides_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(hold, "read_stat", lambda pid: None)
    monkeypatch.setattr(os, "kill", kill)
    assert not hold.proves_death(owner())


def test_all_users_can_read_it_and_lock_its_guard(folder: Path) -> None:
    ask("take", owner())
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"lease.json": 0o644, "guard": 0o644}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


def test_a_sticky_folder_of_others_keeps_its_mode(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    ask("take", owner())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777


@pytest.mark.parametrize("name", ["guard", "lease.json"])
def test_no_link_of_another_user_leads_to_our_files(
    folder: Path, tmp_path: Path, name: str
) -> None:
    key = tmp_path / "key"
    key.write_text("private")
    folder.mkdir()
    (folder / name).symlink_to(key)
    ask("take", owner())
    ask("release", owner())
    assert key.read_text() == "private"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_stale_lease_that_only_its_owner_may_remove(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("take", owner(GONE, user="ann"))

    def replace(source: str, target: str) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "replace", replace)
    assert ask("take", owner())["foreign"]["user"] == "ann"
    assert not list(folder.glob("*.tmp"))


def test_a_lease_that_cannot_be_read_is_not_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("take", elsewhere())

    def refuse(*args: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder / "lease.json"))

    monkeypatch.setattr(os, "open", refuse)
    for action in ("check", "renew"):
        assert ask(action, owner()) == {
            "error": "Permission denied", "path": str(folder / "lease.json"),
        }  # fmt: skip


def test_a_full_disk_keeps_the_lease_of_who_has_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("take", owner())
    aged(folder / "lease.json", 100)

    def full(*args: Any) -> tuple[int, str]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    assert ask("renew", owner()) == {"path": str(folder / "lease.json")}
    (folder / "lease.json").unlink()
    assert ask("take", owner())["error"] == "No space left on device"


def test_a_guard_that_is_never_let_go_holds_nobody_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_file, "GUARD_S", 0.05)
    with hold_file.guarded(str(folder)):
        assert ask("take", owner())["error"] == "another process holds its guard"
    assert "error" not in ask("take", owner())


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three folders for a lease, the first of which cannot be made."""
    monkeypatch.delenv("SERVEMAP_LEASE_DIR")
    (tmp_path / "tmp").write_text("no folder can be made below a file")
    found = [tmp_path / name / "servemap-lease" for name in ("tmp", "var", "shm")]
    monkeypatch.setattr(hold, "FOLDERS", tuple(map(str, found)))
    return found


def test_without_a_writable_tmp_the_next_folder_is_taken(three: list[Path]) -> None:
    assert ask("take", elsewhere()) == {"path": str(three[1] / "lease.json")}
    (three[0].parent).unlink()  # it can be written again: another controller looks at all
    for action in ("check", "take"):
        assert ask(action, owner())["held"]["path"] == str(three[1] / "lease.json")
    assert "path" in ask("renew", elsewhere())
    assert not (three[0] / "lease.json").exists()
    ask("release", elsewhere())
    assert not (three[1] / "lease.json").exists()


def test_where_no_folder_can_be_written_the_first_is_named(three: list[Path]) -> None:
    for path in three[1:]:
        path.parent.write_text("")
    answer = ask("take", owner())
    assert answer == {"error": "Not a directory", "path": str(three[0] / "lease.json")}


def test_two_who_cannot_write_the_same_folder_both_give_way(
    three: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one wrote elsewhere between our look and our writing."""
    write = hold.write

    def other_first(path: str, record: dict[str, Any]) -> Any:
        monkeypatch.setattr(hold, "write", write)
        three[2].mkdir(parents=True)
        write(str(three[2] / "lease.json"), {**elsewhere(), "node_boot_id": machine_boot_id()})
        return write(path, record)

    monkeypatch.setattr(hold, "write", other_first)
    assert ask("take", owner())["held"]["pid"] == 7
    assert not (three[1] / "lease.json").exists()


TAKER = """
import json, sys
from servemap.onnode import hold
from servemap.server.locks import describe_self
owner = describe_self(run="/r", pid_ns=hold.pid_namespace(), ttl_s=120)
print("here", flush=True)
sys.stdin.readline()
print(json.dumps(hold.take({"owner": owner})), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("before", [None, GONE], ids=["free", "stale"])
def test_of_several_takers_exactly_one_wins(folder: Path, before: int | None) -> None:
    if before:
        ask("take", owner(before))
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    try:
        for taker in takers:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "here\n"
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("go\n")
            taker.stdin.flush()
        answers = [json.loads(taker.stdout.readline()) for taker in takers if taker.stdout]
        winners = [t.pid for t, answer in zip(takers, answers, strict=True) if "path" in answer]
        assert winners == [lease(folder)["pid"]]
        assert {answer["held"]["pid"] for answer in answers if "held" in answer} == set(winners)
        assert sum("held" in answer for answer in answers) == 5
    finally:
        for taker in takers:
            taker.kill()
            taker.communicate()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*hold.IDENTITY, "run", "ttl_s", "user", "since_ns"]), JSON, max_size=6
    )
)
def test_a_damaged_lease_is_no_traceback(folder: Path, record: dict[str, Any]) -> None:
    """One that names no process and no time to live is nobody's."""
    folder.mkdir(exist_ok=True)
    (folder / "lease.json").write_text(
        json.dumps({**record, "node_boot_id": machine_boot_id()}), encoding="utf-8"
    )
    os.utime(folder / "lease.json", ns=(0, time.monotonic_ns()))
    held = ask("check", owner()).get("held")
    if not isinstance(record.get("pid"), int) or not isinstance(record.get("ttl_s"), int | float):
        assert held is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"owner": 1}', "null", "{"])
def test_what_is_no_request_is_refused_in_words(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert hold.main(["take"]) == 2
    assert "not a request" in capsys.readouterr().err
