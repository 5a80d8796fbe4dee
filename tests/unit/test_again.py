"""What CI's second look at failed tests lets pass, and what it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import MOST

ROOT = Path(__file__).parents[2]
STALLED = """
import pathlib, pytest
@pytest.mark.parametrize("name", {names})
def test_it(name):
    seen = pathlib.Path("seen " + name)
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def again(folder: Path, source: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_made.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "tests.again", "-p", "no:xdist"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_test_that_passes_the_second_time_is_named(tmp_path: Path) -> None:
    code, said = again(tmp_path, STALLED.format(names=["a b", "[c]"]))
    assert code == 0
    tail = said[said.index("passed only when they ran again") :]
    assert "test_made.py::test_it[a b]" in tail and "test_made.py::test_it[[c]]" in tail


@pytest.mark.parametrize(
    "source",
    [
        "def test_it(): assert 0\n",
        "raise RuntimeError\n",
        "def test_it(): raise KeyboardInterrupt\ndef test_next(): assert 0\n",
        STALLED.format(names=[str(n) for n in range(MOST + 1)]),
    ],
    ids=["fails twice", "cannot be collected", "interrupted", "many"],
)
def test_what_is_wrong_stays_wrong(tmp_path: Path, source: str) -> None:
    code, said = again(tmp_path, source)
    assert code != 0
    assert "passed only when" not in said
