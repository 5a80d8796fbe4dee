import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "analysis"))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A whole synthetic run and its planned rows; tests that damage it work on a copy."""
    from campaignbuilder import build_run

    run = tmp_path_factory.mktemp("results") / "quick-map"
    return run, build_run(run)


@pytest.fixture
def copy(campaign, tmp_path):
    import shutil

    run, rows = campaign
    target = tmp_path / run.name
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("report*"))
    return target, rows
