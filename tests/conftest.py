"""What all tests share: no proxy, no state of other runs, parts that are checked by name."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.parts import check_required

# How long an example takes says something of the machine only. CI tries the same examples each
# time: a change fails for what it changed, and new examples are found where somebody looks.
settings.register_profile(
    "servemap",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("servemap")


def pytest_configure(config: pytest.Config) -> None:
    check_required()


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test off the machine's lease and the user's state."""
    folder = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(folder / "lease"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
