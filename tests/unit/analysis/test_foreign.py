"""Other programs on the measured machine: named where they could have slowed the server down."""

import pytest

from servemap.analysis.checks.foreign import check_foreign_load
from servemap.telemetry.align import AlignedSeries, Segment
from tests.plain_align import AlignedRow, as_series

SEGMENT = Segment("main", 0, 10**9)
CLIENT = {"cpu_s": 0.5, "started_ns": 0, "ended_ns": 10**10}
LIMITS = {"foreign_cpu_share": 0.1}


def row(entity: str, metric: str, value: float) -> AlignedRow:
    return AlignedRow("n", "proc", entity, metric, "", 5, value, "main", True)


def rows(whole: float, server: float | None, cores: int = 2) -> list[AlignedSeries]:
    found = [row("cpu_all", "cpu_util", whole)]
    found += [row(f"cpu{number}", "cpu_util", whole) for number in range(cores)]
    return as_series(found if server is None else [*found, row("server", "proc_cpu", server)])


@pytest.mark.parametrize(
    ("whole", "server", "cores", "share", "ok"),
    [
        # 2 cores all busy: the server had 0.7 of one, the client 0.05, others 1.25 of 2
        (100.0, 70.0, 2, 0.625, False),
        # the same server on a machine that is otherwise its own
        (50.0, 95.0, 2, 0.0, True),
        # all busy, but by the server itself
        (100.0, 193.0, 2, 0.01, True),
        # others use 3 of 128 cores: nobody waits for them
        (5.0, 300.0, 128, 0.0262, True),
    ],
)
def test_the_share_of_others(
    whole: float, server: float, cores: int, share: float, ok: bool
) -> None:
    (check,) = check_foreign_load(rows(whole, server, cores), [SEGMENT], CLIENT, LIMITS)
    assert check.name == "foreign_cpu n main"
    assert check.value == pytest.approx(share, abs=2e-4)
    assert check.ok is ok


def test_an_attached_server_whose_processes_are_unknown() -> None:
    (check,) = check_foreign_load(rows(100.0, None), [SEGMENT], CLIENT, LIMITS)
    assert (check.value, check.ok) == (None, None)
