"""Which record of a client is that of a load."""

import pytest

from servemap.measure.own_record import CLOCK_NS, why_foreign

HOUR_NS = 3600 * 10**9
OPENED_NS = 5 * HOUR_NS
ANOTHER = "the record that the load client left is that of another load"
EARLIER = "the record that the load client left begins before its attempt was opened"


@pytest.mark.parametrize(
    ("record", "offsets_ns", "said"),
    [
        ({"load_id": "x", "started_ns": OPENED_NS + 1}, [0, 0], None),
        ({"load_id": "x", "started_ns": OPENED_NS - CLOCK_NS}, [0, 0], None),
        ({"load_id": "x", "started_ns": OPENED_NS - CLOCK_NS - 1}, [0, 0], EARLIER),
        ({"load_id": "x", "started_ns": OPENED_NS - HOUR_NS}, [-HOUR_NS, -HOUR_NS], None),
        ({"load_id": "x", "started_ns": OPENED_NS + 1}, [HOUR_NS, HOUR_NS], EARLIER),
        # The node's clock was set between the two measurements.
        ({"load_id": "x", "started_ns": OPENED_NS + 1}, [HOUR_NS, 0], None),
        ({"load_id": "x", "started_ns": OPENED_NS + 1}, [0, HOUR_NS], None),
        ({"load_id": "x", "started_ns": "soon"}, [0, 0], None),
        ({"load_id": "y", "started_ns": OPENED_NS + 1}, [0, 0], ANOTHER),
        ({"started_ns": OPENED_NS + 1}, [0, 0], ANOTHER),
        ({"load_id": ["x"]}, [0, 0], ANOTHER),
    ],
)
def test_a_record_is_of_the_load_that_it_names_and_of_its_time(
    record: dict[str, object], offsets_ns: list[int], said: str | None
) -> None:
    assert why_foreign(record, "x", OPENED_NS, offsets_ns) == said


def test_an_opening_without_a_time_refuses_nothing() -> None:
    assert why_foreign({"load_id": "x", "started_ns": 1}, "x", None, [0]) is None
