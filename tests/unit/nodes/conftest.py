"""A node behind a real sshd on loopback."""

from collections.abc import Iterator

import pytest

from servemap.nodes.ssh import SshNode
from tests.parts import need
from tests.unit.nodes.sshd import Sshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One sshd for a module; tests that break connections or settings start their own."""
    need("sshd")
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def node(sshd: Sshd) -> Iterator[SshNode]:
    node = sshd.node()
    yield node
    node.close()
