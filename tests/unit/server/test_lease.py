"""The lease of a machine: taken over from the dead, refused by the living, readable by all."""

import errno
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from servemap.model.errors import LockedError, ResultsError
from servemap.server.lease import check_lease, lease_dir, release_lease, take_lease
from servemap.server.locks import describe_self, read_holder


@pytest.fixture(autouse=True)
def _own_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    old = os.umask(0o077)
    yield
    os.umask(old)


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def held_by(process: subprocess.Popen[bytes], run: str) -> None:
    start = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    lease_dir().mkdir(parents=True, exist_ok=True)
    record = {**describe_self(run=run), "pid": process.pid, "start": start, "user": "ann"}
    (lease_dir() / "lease.json").write_text(json.dumps(record))


def holder() -> dict[str, object]:
    return read_holder(lease_dir() / "lease.json")


def test_taken_and_given_back(tmp_path: Path) -> None:
    take_lease("n1", tmp_path / "run")
    assert holder()["run"] == str(tmp_path / "run")
    take_lease("n2", tmp_path / "run")
    release_lease(tmp_path / "other-run")
    assert holder(), "another run's lease is not given back"
    release_lease(tmp_path / "run")
    assert holder() == {}
    release_lease(tmp_path / "run")


def test_asking_who_holds_it_takes_nothing(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    check_lease("n1")
    assert not lease_dir().exists()
    held_by(other, "/theirs/results/long-run")
    with pytest.raises(LockedError) as caught:
        check_lease("n1")
    assert caught.value.remedy.endswith(
        "stop it from /theirs with `servemap stop long-run --after-case --reason TEXT`"
    )
    ours = describe_self(run="/ours")
    (lease_dir() / "lease.json").write_text(json.dumps(ours))
    check_lease("n1")


def test_a_living_holder_is_not_robbed(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    held_by(other, "/theirs")
    with pytest.raises(LockedError) as caught:
        take_lease("n1", tmp_path / "run")
    said = str(caught.value)
    assert f"node n1 is driven by pid {other.pid} of ann" in said
    assert "run /theirs" in said
    release_lease(Path("/theirs"))
    assert holder()["pid"] == other.pid


def test_the_lease_of_a_dead_holder_is_taken_over(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    held_by(other, "/theirs")
    other.kill()
    other.wait()
    take_lease("n1", tmp_path / "run")
    assert holder()["pid"] == os.getpid()


def test_a_cut_lease_is_taken_over(tmp_path: Path) -> None:
    lease_dir().mkdir()
    (lease_dir() / "lease.json").write_text('{"pid": 1,')
    take_lease("n1", tmp_path / "run")
    assert holder()["pid"] == os.getpid()


def test_all_users_can_read_it_and_lock_its_guard(tmp_path: Path) -> None:
    take_lease("n1", tmp_path / "run")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in lease_dir().iterdir()}
    assert modes == {"lease.json": 0o644, "guard": 0o644}
    assert stat.S_IMODE(lease_dir().stat().st_mode) == 0o777


def test_a_stale_lease_in_a_folder_that_is_not_ours(
    tmp_path: Path, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    held_by(other, "/theirs")
    other.kill()
    other.wait()

    def replace(self: Path, target: Path) -> Path:
        raise PermissionError

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(LockedError, match="belongs to another user"):
        take_lease("n1", tmp_path / "run")
    assert not list(lease_dir().glob("*.tmp"))


def test_a_pipe_as_lease_is_replaced(tmp_path: Path) -> None:
    lease_dir().mkdir()
    os.mkfifo(lease_dir() / "lease.json")
    check_lease("n1")
    take_lease("n1", tmp_path / "run")
    assert holder()["pid"] == os.getpid()


@pytest.mark.parametrize("name", ["lease.json", "guard"])
def test_a_lease_that_cannot_be_kept_names_itself_and_the_way_out(
    tmp_path: Path, name: str
) -> None:
    (lease_dir() / name).mkdir(parents=True)
    with pytest.raises(ResultsError, match="Is a directory") as caught:
        take_lease("n1", tmp_path / "run")
    assert caught.value.where == str(lease_dir() / "lease.json")
    assert "SERVEMAP_LEASE_DIR" in caught.value.remedy
    assert not list(lease_dir().glob("*.tmp"))


def test_a_full_disk_names_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_text(self: Path, *_: object, **__: object) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(ResultsError, match="No space left") as caught:
        take_lease("n1", tmp_path / "run")
    assert caught.value.where == str(lease_dir() / "lease.json")
    assert not list(lease_dir().glob("*.tmp"))


def test_a_pipe_as_guard_holds_nobody_up(tmp_path: Path) -> None:
    lease_dir().mkdir()
    os.mkfifo(lease_dir() / "guard")
    with pytest.raises(ResultsError, match="not a regular file"):
        take_lease("n1", tmp_path / "run")
