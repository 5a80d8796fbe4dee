"""Messages are for people at a terminal, whatever a node said."""

from servemap.model.errors import NodeError


def test_what_a_terminal_would_obey_is_escaped() -> None:
    error = NodeError("it said \x1b[2J\x07\x9b1m", "node\x00 n1", "two\nlines\tof ünïcode")
    assert error.what == r"it said \x1b[2J\x07\x9b1m"
    assert error.where == r"node\x00 n1"
    assert error.remedy == "two\nlines\tof ünïcode"
    assert "\x1b" not in str(error)
