from datetime import UTC, timedelta, timezone

import pytest

from servemap.report.numbers import (
    bit_rate,
    change,
    interval,
    moment,
    percent,
    plain,
    seconds,
    size,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (float("nan"), "-"),
        ("7", "-"),
        (0, "0"),
        (50.0, "50"),
        (647.42, "647.4"),
        (31.414, "31.41"),
        (2652.76, "2,653"),
        (-24.08, "-24.08"),
        (0.4567, "0.457"),
        (0.00123, "0.0012"),
    ],
)
def test_plain(value, text):
    assert plain(value) == text


def test_units():
    assert percent(0.7417) == "74.2 %"
    assert change(-24.0805) == "-24.08 %"
    assert change(66.5604) == "+66.56 %"
    assert change(-0.001) == "+0.00 %"
    assert change(2175.264) == "+2,175 %", "no digits that are not there"
    assert change(107.46) == "+107.5 %"
    assert size(32 * 1024**3) == "32 GiB"
    assert size(512) == "512 B"
    assert bit_rate(50e9) == "400 Gbit/s"
    assert bit_rate(1000) == "8 kbit/s"
    assert seconds(1716) == "28 min 36 s"
    assert seconds(9.128) == "9.13 s"
    assert [f(None) for f in (percent, change, size, bit_rate, seconds)] == ["-"] * 5


def test_an_interval_that_cannot_be_says_so():
    assert interval(-661.6, 2681, 0.0, plain, "too few") == "too few"
    assert interval(0.0, 2681, 0.0, plain, "too few") == "0 to 2,681"
    assert interval(-143.98, 107.46, -100.0, change, "too few") == "too few"
    assert interval(-99.0, -4.0, -100.0, change, "too few") == "-99.00 % to -4.00 %"
    assert interval(None, 4.0, 0.0, plain, "too few") == ""


def test_a_moment_names_its_zone():
    cst = timezone(timedelta(hours=8))
    assert moment(1_800_000_000_000_000_000, cst) == "2027-01-15 16:00:00 UTC+08:00"
    assert moment(1_800_000_000_000_000_000, UTC).endswith("UTC+00:00")
    assert moment(None) == "-"
    assert moment(2**62) == "2116-02-20 23:53:38 UTC+00:00" or moment(2**62).startswith("2116-")
