"""What a supervisor notes of the processes below it."""

import pytest

from servemap.onnode import offspring
from servemap.onnode.ident import Stat
from servemap.onnode.offspring import LOOK_S, MOST, SHARE, Offspring


def stat(pid: int, ppid: int, session: int) -> Stat:
    return Stat(pid, "x", "S", ppid, session, session, 0, 0, 1, 1000 + pid, 1)


class Machine:
    """Processes and a clock that a test sets; a look takes `took_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.took_s = 0.0
        self.looks = 0
        self.stats = [stat(1, 0, 1), stat(10, 1, 1), stat(20, 10, 20)]
        self.noted: list[list[dict[str, int]]] = []
        monkeypatch.setattr(offspring, "all_stats", self.look)
        monkeypatch.setattr(offspring.time, "monotonic", lambda: self.now_s)
        self.watched = Offspring(10, 20, self.noted.append)

    def look(self) -> list[Stat]:
        self.looks += 1
        self.now_s += self.took_s
        return list(self.stats)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_only_changes_are_noted(machine: Machine) -> None:
    assert machine.watched.tick() == LOOK_S
    assert machine.noted == [[{"pid": 20, "start": 1020}]], "neither the root nor strangers"
    machine.now_s += LOOK_S
    machine.watched.tick()
    assert (machine.looks, len(machine.noted)) == (2, 1)
    machine.stats.append(stat(30, 10, 30))
    machine.now_s += LOOK_S
    machine.watched.tick()
    assert machine.noted[1:] == [[{"pid": 30, "start": 1030}, {"pid": 20, "start": 1020}]]


def test_between_looks_nothing_is_read(machine: Machine) -> None:
    machine.watched.tick()
    machine.now_s += 0.5
    assert machine.watched.tick() == LOOK_S - 0.5
    assert machine.looks == 1


def test_dear_looks_are_rare(machine: Machine) -> None:
    machine.took_s = 1.0
    assert machine.watched.tick() == pytest.approx(SHARE * 1.0)


def test_of_too_many_those_outside_of_the_session_come_first(machine: Machine) -> None:
    machine.stats += [stat(pid, 20, 20) for pid in range(1000, 1000 + MOST)]
    machine.stats.append(stat(5000, 20, 5000))
    machine.watched.tick()
    assert len(machine.noted[0]) == MOST
    assert machine.noted[0][0] == {"pid": 5000, "start": 6000}
