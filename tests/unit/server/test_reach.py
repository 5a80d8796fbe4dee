"""A node that is away for a while is waited for; one that stays away is given up once."""

from pathlib import Path

import pytest

from servemap.model.errors import ConnectionLostError
from servemap.server.events import read_events
from servemap.server.reach import reach
from tests.fakes import FakeNode, campaign, fake_context


class Away(FakeNode):
    """A far node that answers after `failures` attempts."""

    def __init__(self, failures: int) -> None:
        super().__init__("n1")
        self.failures = failures
        self.asked = 0

    @property
    def here(self) -> bool:
        return False

    def state_dir(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise ConnectionLostError("away", "n1", "wait")
        return "/state"


def test_a_node_is_given_up_once_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = Away(failures=1000)
    config = campaign(policy={"lost_node_s": 0.6})
    first = fake_context(node, config)
    with pytest.raises(ConnectionLostError):
        reach(first, ["n1"])
    tries = node.asked
    assert tries > 1
    with pytest.raises(ConnectionLostError):
        reach(first, ["n1"])
    assert node.asked == tries + 1, "the next job asks once"
    with pytest.raises(ConnectionLostError):
        reach(fake_context(node, config, "s2"), ["n1"])
    assert node.asked > tries + 2, "another session waits anew"
    given_up = [e["session"] for e in read_events(first.run_dir) if e["event"] == "node_given_up"]
    assert given_up == ["s1", "s2"]
    node.failures = 0
    reach(first, ["n1"])
