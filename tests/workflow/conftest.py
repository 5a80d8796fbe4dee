"""Projects for tests that execute Snakemake; one finished campaign is measured once and copied."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workflow.harness import Project, free_port


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.workflow)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project whose small campaign ran to its end."""
    project = Project.create(tmp_path_factory.mktemp("finished") / "project", free_port())
    run = project.snakemake()
    assert run.code == 0, run.text[-4000:]
    (project.folder / "first-run.log").write_text(run.text)
    yield project
    project.clean_up()


@pytest.fixture
def done(finished: Project, tmp_path: Path) -> Iterator[Project]:
    """A copy of the finished project that a test may change."""
    project = finished.copy(tmp_path / "project")
    yield project
    project.clean_up()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Project]:
    """A project of which nothing was measured yet."""
    project = Project.create(tmp_path / "project", free_port())
    yield project
    project.clean_up()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Any]]:
    """A project whose campaign is in the middle of a long case."""
    project = Project.create(tmp_path_factory.mktemp("running") / "project", free_port())
    campaign = project.campaign()
    campaign["cases"][0]["min_window_s"] = 500
    project.write_campaign(campaign)
    controller = project.start()
    project.wait_for("cases/baseline/prefill/r1/attempts/001/raw/load.json")
    yield project, controller
    project.clean_up()
