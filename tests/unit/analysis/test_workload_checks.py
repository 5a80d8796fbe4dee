"""A server that sits on waiting requests: found by its own gauges, whatever /health says."""

import pytest

from servemap.analysis.checks.server import check_stalled
from servemap.analysis.verdict import default_limits
from servemap.telemetry.align import AlignedSeries
from servemap.telemetry.catalogue import engine_metrics
from tests.plain_align import AlignedRow, as_series

NAMES = sorted(engine_metrics())


def rows(
    engine: str, samples: list[tuple[float, float, float]], inside: bool = True
) -> list[AlignedSeries]:
    """Return scrapes of (seconds, running, waiting)."""
    own = engine_metrics()[engine]
    return as_series(
        AlignedRow("n", "engine_metrics", "server", name, "1", int(t * 1e9), value, "main", inside)
        for t, running, waiting in samples
        for name, value in ((own.running, running), (own.waiting, waiting))
    )


@pytest.mark.parametrize("engine", NAMES)
def test_nothing_runs_and_three_wait_for_a_minute(engine):
    samples = [(t, 0.0 if 5 <= t <= 65 else 4.0, 3.0) for t in range(80)]
    (check,) = check_stalled(rows(engine, samples), default_limits())
    assert (check.name, check.value, check.ok) == ("server_stalled_s", 60.0, False)


@pytest.mark.parametrize(
    ("samples", "longest"),
    [
        ([(t, 0.0, 0.0) for t in range(60)], 0.0),
        ([(t, 4.0, 9.0) for t in range(60)], 0.0),
        ([(t, 1.0 if t % 8 == 0 else 0.0, 3.0) for t in range(60)], 6.0),
        ([(0.0, 0.0, 3.0)], 0.0),
    ],
)
def test_idle_busy_and_short_waits_are_no_stall(samples, longest):
    (check,) = check_stalled(rows("vllm", samples), default_limits())
    assert (check.value, check.ok) == (longest, True)


def test_one_rank_that_runs_is_enough_and_what_is_outside_does_not_count():
    stalled = rows("vllm", [(t, 0.0, 3.0) for t in range(60)])
    other = [
        row._replace(entity="rank1") for row in rows("vllm", [(t, 1.0, 0.0) for t in range(60)])
    ]
    assert check_stalled(stalled + other, default_limits())[0].ok is True
    assert check_stalled([row._replace(inside=False) for row in stalled], default_limits()) == []
    assert check_stalled([row for row in stalled if "running" in row.metric], {}) == []
    assert check_stalled([], {}) == []
