"""A lab for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.lab import Lab
from tests.lab.project import LabProject, make_seed
from tests.parts import need


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded engine and its model, which every node gets a copy of."""
    need("lab")
    return make_seed(tmp_path_factory.mktemp("lab") / "seed")


@pytest.fixture
def lab(seed: Path) -> Iterator[Lab]:
    """Two running machines of this test alone."""
    with Lab(seed) as running:
        yield running


@pytest.fixture
def project(lab: Lab, tmp_path: Path) -> Iterator[LabProject]:
    """The lab's campaign, of which nothing was measured yet."""
    made = LabProject.on(lab, tmp_path / "project")
    yield made
    made.clean_up()
