"""Nodes side by side: results by item, and errors that all are heard."""

import threading

import pytest

from servemap.model.errors import ConnectionLostError, NodeError
from servemap.nodes.parallel import each
from tests.waiting import WAIT_S


def test_calls_run_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=WAIT_S)

    def call(item: str) -> str:
        meeting.wait()
        return item.upper()

    assert each("abc", call) == {"a": "A", "b": "B", "c": "C"}
    assert each([], call) == {}


def test_the_first_items_error_carries_the_others() -> None:
    second_failed = threading.Event()
    ended = []

    def call(item: int) -> None:
        if item == 1:
            assert second_failed.wait(WAIT_S)
            raise ConnectionLostError("went away", "node one", "look")
        if item == 2:
            second_failed.set()
            raise NodeError("no disk", "node two", "make room")
        ended.append(item)

    with pytest.raises(ConnectionLostError) as caught:
        each([1, 2, 3], call)
    assert caught.value.what == "went away"
    assert caught.value.where == "node one; also node two: no disk"
    assert ended == [3]


def test_other_exceptions_keep_their_kind() -> None:
    def call(item: int) -> None:
        raise KeyError(item) if item == 1 else NodeError("no disk", "node two", "make room")

    with pytest.raises(KeyError) as caught:
        each([1, 2], call)
    assert caught.value.__notes__ == ["also node two: no disk"]
    with pytest.raises(NodeError) as other:
        each([2], call)
    assert other.value.where == "node two"
