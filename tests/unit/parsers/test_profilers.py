"""Numbers and tables of Nsight's tools, as their versions and locales print them (simulated)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import ParseError
from servemap.parsers.kinds import parse
from servemap.parsers.profilers.amounts import (
    amount_of,
    grouping_mark,
    heading_of,
    kept_number,
    printed_number,
)

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    '"Section Name","Metric Name","Metric Unit","Metric Value"\n'
)


def long(*rows: tuple[str, str, str], kernel: str = "k", number: str = "0") -> str:
    """Return lines of the page `details`, without its heading."""
    first = f'"{number}","1","python3","h","{kernel}","1","7","S"'
    return "".join(f'{first},"{name}","{unit}","{value}"\n' for name, unit, value in rows)


def launches(text: str) -> list[dict]:
    return parse("ncu", text.encode()).data["launches"]


@given(st.integers(-(10**12), 10**12))
def test_grouped_digits_are_read_as_they_are_printed(number) -> None:
    assert printed_number(f"{number:,}") == number
    assert printed_number(f"{number:,}".replace(",", "."), ".") == number


@given(st.integers(0, 10**12), st.integers(0, 9))
def test_a_fraction_behind_grouped_digits_stays(number, tenth) -> None:
    assert printed_number(f"{number:,}.{tenth}") == float(f"{number}.{tenth}")


@pytest.mark.parametrize(
    ("words", "mark"),
    [
        (["1,602,579"], ","),
        (["1,215.50"], ","),
        (["27.595.520"], "."),
        (["1.215,50"], "."),
        (["65,77"], "."),
        (["14.26"], ","),
        (["1,215", "12", "k"], None),
        (["1,2,3"], None),
        (["65,77", "14.26"], None),
        ([], None),
    ],
)
def test_what_groups_the_digits_is_seen_from_the_text(words, mark) -> None:
    assert grouping_mark(words) == mark


def test_what_is_no_number_is_missing_and_never_zero() -> None:
    for word in ("", "n/a", "1,2", "12,34,567", "one", "1" * 70, "(256, 1, 1)"):
        assert printed_number(word) is None, word


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Total Time (ns)", "total_time_ns"),
        ("Avg (ms)", "avg_ns"),
        ("Time(%)", "time_percent"),
        ("Total (MiB)", "total_bytes"),
        ("Num Calls", "num_calls"),
        ("GPU (odd unit)", "gpu_odd_unit"),
    ],
)
def test_a_heading_becomes_a_key_with_the_kept_unit(text, key) -> None:
    assert heading_of(text)[0] == key


def test_units_are_scaled_and_whole_numbers_stay_whole() -> None:
    assert kept_number("1.5", amount_of("ms")) == 1_500_000
    assert isinstance(kept_number("2.000", amount_of("us")), int)
    assert kept_number("0.5", amount_of("ns")) == 0.5


def test_a_row_that_does_not_fit_its_heading_is_left_out_and_said() -> None:
    text = "Time (%),Total Time (ns),Instances,Name\n50,10,1,a\n50,10,1,b,c,d\n10,1,1,e\n"
    found = parse("nsys-stats", text.encode())
    assert [row["name"] for row in found.data["reports"][0]["rows"]] == ["a", "e"]
    assert [piece.line for piece in found.skipped] == [3]


def test_older_headings_without_a_report_name_are_read() -> None:
    text = (
        "CUDA Kernel Statistics:\n\n"
        " Time(%)  Total Time (ns)  Instances  Average (ns)  Name\n"
        " -------  ---------------  ---------  ------------  ----\n"
        "   100.0            1,000          2         500.0  k(int, \n\n"
    )
    (report,) = parse("nsys-stats", text.encode()).data["reports"]
    assert report["report"] is None
    assert report["rows"] == [
        {"time_percent": 100, "total_time_ns": 1000, "instances": 2, "average_ns": 500,
         "name": "k(int,"},
    ]  # fmt: skip


def test_no_summary_is_refused() -> None:
    with pytest.raises(ParseError, match="no summary"):
        parse("nsys-stats", b"nothing of it, a(b), c, d, e\n")


def test_the_same_values_come_from_a_german_table() -> None:
    plain = HEAD + long(
        ("gpu__time_duration.sum", "ns", "117,344"),
        ("lts__t_sector_hit_rate.pct", "%", "65.77"),
        ("dram__bytes.sum", "byte", "27,595,520"),
    )
    german = plain.translate(str.maketrans(",.", ".,")).replace('"."', '","')
    german = german.replace("__time_duration,sum", "__time_duration.sum")
    german = german.replace("hit_rate,pct", "hit_rate.pct").replace("bytes,sum", "bytes.sum")
    one, other = launches(plain)[0], launches(german)[0]
    assert one["figures"] == other["figures"]
    assert one["figures"]["duration_ns"] == 117344 and one["figures"]["l2_hit_percent"] == 65.77
    assert other["metrics"]["dram__bytes.sum"] == {"value": 27595520, "unit": "bytes"}


def test_labels_that_stand_for_two_metrics_are_told_apart_by_unit() -> None:
    text = HEAD + long(
        ("Memory Throughput", "Gbyte/second", "2.5"), ("Memory Throughput", "%", "40")
    )
    figures = launches(text)[0]["figures"]
    assert figures["dram_bytes_per_s"] == 2_500_000_000
    assert figures["memory_percent"] == 40


def test_launches_stay_apart_and_what_was_not_collected_is_null() -> None:
    text = HEAD + long(("Duration", "us", "2")) + long(("Duration", "us", "4"), number="1")
    found = launches(text)
    assert [one["figures"]["duration_ns"] for one in found] == [2000, 4000]
    assert {one["figures"]["l2_hit_percent"] for one in found} == {None}


def test_values_followed_by_those_of_instances_are_the_aggregate() -> None:
    text = HEAD + long(("memory_l2_transactions", "Kbyte", "240 (1; 2; 3)"))
    assert launches(text)[0]["metrics"]["memory_l2_transactions"]["value"] == 240_000


@pytest.mark.parametrize(
    ("text", "said", "todo"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            "no access to the GPU's performance counters",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("==WARNING== No kernels were profiled.\n", "no kernel was profiled", "--kernel-name"),
        (
            "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub?).\n",
            "no CUDA driver",
            "a card",
        ),
        ("nothing\n", "no table of a profiled kernel", "--page raw"),
        (HEAD, "no table of a profiled kernel", "--page raw"),
    ],
)
def test_a_refusal_of_the_tool_is_in_words(text, said, todo) -> None:
    with pytest.raises(ParseError, match=said) as caught:
        parse("ncu", text.encode())
    assert todo in caught.value.remedy
