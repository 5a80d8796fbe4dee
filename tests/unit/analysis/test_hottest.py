"""Tables that show the busiest entities only."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from servemap.analysis.hottest import keep_busiest
from servemap.analysis.series_figures import SeriesFigures
from servemap.analysis.telemetry_rows import SeriesRow
from servemap.telemetry.catalogue import busiest


def row(entity: str, mean: float | None, metric: str = "cpu_util", **more: str) -> SeriesRow:
    where: dict[str, Any] = {"family": "hot_cores", "segment": "main", "part": "whole",
                             "node": "n1", "collector": "proc", **more}  # fmt: skip
    figures = SeriesFigures(9, mean=mean)
    return SeriesRow(entity=entity, metric=metric, unit="percent", figures=figures, **where)


def test_the_cores_with_the_highest_use_stay_with_all_that_is_known_of_them() -> None:
    rows = [row(f"cpu{n}", float(n)) for n in range(20)]
    rows += [row(f"cpu{n}", 100.0 - n, "cpu_softirq") for n in range(20)]
    kept = keep_busiest(rows)
    order = [f"cpu{n}" for n in range(19, 11, -1)]
    assert [one.entity for one in kept] == [core for core in order for _ in range(2)]
    others = [row._replace(family="cpu") for row in rows]
    assert keep_busiest(others) == others


def test_each_node_and_segment_has_its_own() -> None:
    rows = [row("cpu0", 1.0), row("cpu0", 2.0, node="n2"), row("cpu1", 3.0, segment="other"),
            row("cpu2", 3.0, part="steady")]  # fmt: skip
    assert keep_busiest(rows) == rows


def test_without_a_first_metric_the_next_one_says_which() -> None:
    rows = [row(f"cpu{n}", float(n), "cpu_user") for n in range(9)]
    assert {one.entity for one in keep_busiest(rows)} == {f"cpu{n}" for n in range(1, 9)}
    assert keep_busiest([row("cpu0", None)]) == []


@given(st.dictionaries(st.integers(0, 300), st.floats(0, 100), max_size=40))
def test_none_that_is_left_out_is_busier(means: dict[int, float]) -> None:
    rows = [row(f"cpu{core}", mean) for core, mean in means.items()]
    kept = [one.figures.mean for one in keep_busiest(rows)]
    assert len(kept) == min(len(rows), busiest()["hot_cores"].most)
    assert kept == sorted(means.values(), reverse=True)[: len(kept)]
