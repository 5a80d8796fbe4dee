import _multiprocessing
import json
import mmap
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from servemap.onnode import segments
from servemap.onnode.supervise import MARKER

# Maps the file named by its argument, and waits.
HOLD = """
import mmap, sys
with open(sys.argv[1], "r+b") as handle:
    held = mmap.mmap(handle.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def segment() -> Iterator[Path]:
    path = Path(f"/dev/shm/servemap-test-{uuid.uuid4()}")
    path.write_bytes(bytes(mmap.PAGESIZE))
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def holder(segment: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(segment)],
        env={MARKER: "boot-1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mapped\n"
    yield process
    process.communicate()


def test_what_a_start_maps_is_removed_once_nobody_does(
    segment: Path, holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    note = str(tmp_path / "note")
    assert segments.note(note, "boot-2") == {}
    assert segments.note(note, "boot-1") == {str(segment): segment.stat().st_ino}
    assert segments.remove(note) == {"removed": [], "kept": [str(segment)]}
    holder.communicate()
    # What was noted stays noted when the process is gone.
    assert list(segments.note(note, "boot-1")) == [str(segment)]
    assert segments.remove(note) == {"removed": [str(segment)], "kept": []}
    assert not segment.exists()
    assert segments.remove(note) == {"removed": [], "kept": []}


def test_a_semaphore_is_known_by_its_lasting_name(tmp_path: Path) -> None:
    """Python unlinks the one of a lock at once unless processes are to find it by name."""
    name = f"/servemap-test-{uuid.uuid4()}"
    path = Path(f"/dev/shm/sem.{name[1:]}")
    semaphore = _multiprocessing.SemLock(0, 1, 1, name, False)
    try:
        assert str(path) in segments.mapped([os.getpid()])
        assert str(path) not in segments.mapped([os.getppid()])
    finally:
        _multiprocessing.sem_unlink(name)
    assert semaphore.name == name


def test_another_file_of_the_name_and_other_folders_stay(segment: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("x")
    note = tmp_path / "note"
    note.write_text(json.dumps({str(segment): 1, str(other): other.stat().st_ino}))
    assert segments.remove(str(note)) == {"removed": [], "kept": []}
    assert segment.exists()
    assert other.exists()


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', "{"])
def test_a_note_that_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "note").write_text(text)
    assert segments.remove(str(tmp_path / "note")) == {"removed": [], "kept": []}


def test_the_command(segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = str(tmp_path / "note")
    assert segments.main(["--file", note, "--boot-id", "boot-9"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    Path(note).write_text(json.dumps({str(segment): segment.stat().st_ino}))
    assert segments.main(["--file", note, "--remove"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [str(segment)]
