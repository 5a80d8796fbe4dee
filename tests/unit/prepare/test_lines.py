"""The table of checks."""

from servemap.prepare.lines import WAITS, Line, folded, table


def test_checks_that_wait_for_another_stand_in_one_line() -> None:
    first = Line("w1", "ssh", "FAIL", "no route to host", "see that it is up")
    waiting = [
        Line("w1", name, "?", "the node gave no answer", WAITS) for name in ("python", "disk")
    ]
    lone = Line("w2", "ports", "?", "the node gave no answer", WAITS)
    last = Line("w2", "disk", "ok", "9 GB")
    found = folded([first, *waiting, lone, last])
    assert found[0] == first
    assert found[1] == Line(
        "w1", "2 more checks", "?", "the node gave no answer: python, disk", WAITS
    )
    assert found[2:] == [lone, last], "nodes are not mixed, and one line stays as it is"
    assert table([first, *waiting]).count(WAITS) == 1
