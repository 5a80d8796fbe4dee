"""A starting server's log is followed line by line, and a progress bar state by state."""

from pathlib import Path

import pytest

from servemap.server.launch import boots
from servemap.server.launch.logs import follow_logs
from servemap.server.launch.process import Running, log_path
from tests.fakes import FakeNode, campaign, fake_context


def test_each_state_of_a_progress_bar_is_progress_and_the_log_is_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node = FakeNode()
    context = fake_context(node, campaign())
    rank = Running("baseline", "f", "b1", 1, node.new_process(), 0)
    kept = boots.log_file(context.run_dir, "baseline", "b1", "n1")
    kept.parent.mkdir(parents=True)
    log = Path(log_path(context.workdir("n1"), "b1"))
    log.parent.mkdir(parents=True, exist_ok=True)
    read = follow_logs(context, {"n1": rank})
    told = []
    for piece in ["begin\n10%", "\r20%", "\r30%\r", "", "100%\r\nend", "\n"]:
        with log.open("a", newline="") as handle:
            handle.write(piece)
        told.append(read().splitlines())
    assert told == [["begin"], ["10%"], ["20%", "30%"], [], ["100%"], ["end"]]
    assert kept.read_bytes() == log.read_bytes()
