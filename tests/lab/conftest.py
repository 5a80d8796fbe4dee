"""A lab for the tests of this folder."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.parts import need


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded engine and its model, which every node gets a copy of."""
    folder = tmp_path_factory.mktemp("lab") / "seed"
    argv = [sys.executable, "-m", "servemap", "embedded", str(folder)]
    subprocess.run(argv, check=True, capture_output=True)
    return folder


@pytest.fixture
def lab(seed: Path) -> Iterator[Lab]:
    """Two running machines of this test alone."""
    need("lab")
    with Lab(seed) as running:
        yield running
