"""Tables of which only the headings are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import ParseError
from servemap.parsers.columns import parse_columns

BOX = """\
my-smi 1.0
+-----+------------+--------+
| GPU | Power      | Memory |
+=====+============+========+
| 0   | 66W        | 12 MiB |
| 1   | N/A        | 13 MiB |
+-----+------------+--------+
"""
FORMS = {
    "bars": BOX,
    "commas": 'time,"GPU",Power,Memory\n1,0,66 W,12\n1,1,,13\n',
    "tabs": "GPU\tPower\tMemory\n0\t66\t12\n1\t-\t13\n",
    "blanks": "GPU Power Memory\n0 66 12\n1 N/A 13\n",
    "columns": "GPU   Power  Memory\n0     66 W   12 MiB\n1     N/A    13 MiB\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str) -> None:
    data, skipped = parse_columns(FORMS[form], ["GPU", "Power", "Memory"])
    rows = [{key: row[key] for key in ("GPU", "Power", "Memory")} for row in data["rows"]]
    assert rows == [
        {"GPU": 0, "Power": 66, "Memory": 12},
        {"GPU": 1, "Power": None, "Memory": 13},
    ]
    assert skipped == []


def test_a_heading_of_several_words_and_rows_that_do_not_fit() -> None:
    text = "Name  Total used\na1  5\nno row of it at all here\nName  Total used\nb  7\nc"
    data, skipped = parse_columns(text, ["Name", "Total used"])
    assert data["rows"] == [{"Name": "a1", "Total used": 5}, {"Name": "b", "Total used": 7}]
    assert [one.line for one in skipped] == [3, 6]


@pytest.mark.parametrize(
    "heading, row",
    [
        ("GPU  Temp  Power  Mem", "0          300W  900 MiB"),
        ("GPU  Temp  Power", "1          40 W"),
        ("GPU  Temp  Power Util", "1          40W  7 %"),
        ("GPU Temp Power Util", "1 40W 7 %"),
        ("GPU  Name  Temp  Power", "0    Card 4      300W"),
    ],
)
def test_a_blank_cell_moves_no_value_to_another_column(heading: str, row: str) -> None:
    data, skipped = parse_columns(f"{heading}\n{row}\n", heading.split())
    assert data["rows"] == []
    assert [one.line for one in skipped] == [2]


@pytest.mark.parametrize("row", ["0   66    12", "  0    66     12", "0 66 12", "0     66  12"])
def test_rows_that_are_laid_out_left_or_right_are_read(row: str) -> None:
    data, skipped = parse_columns(f"GPU Power Memory\n{row}\n", ["GPU", "Power", "Memory"])
    assert (data["rows"], skipped) == ([{"GPU": 0, "Power": 66, "Memory": 12}], [])


def test_another_unit_than_before_is_missing_and_said() -> None:
    units: dict[str, str] = {}
    text = "| GPU | Mem |\n| 0 | 900 MiB |\n| 1 | 1.5 GiB |\n| 2 | 0 |\n"
    data, skipped = parse_columns(text, ["GPU", "Mem"], units)
    assert [row["Mem"] for row in data["rows"]] == [900, None, 0]
    assert [tuple(one) for one in skipped] == [(3, "Mem in GiB, in MiB before")]
    later, _ = parse_columns("| GPU | Mem |\n| 1 | 2 GiB |\n", ["GPU", "Mem"], units)
    assert later["rows"] == [{"GPU": 1, "Mem": None}]


@pytest.mark.parametrize("cell", ["0x1F", "01:23:45", "12/80", "81,559 MiB", "1,024", "66W/300W"])
def test_what_is_no_number_is_text(cell: str) -> None:
    data, _ = parse_columns(f"| GPU | Mem |\n| 0 | {cell} |\n", ["GPU", "Mem"])
    assert data["rows"] == [{"GPU": 0, "Mem": cell}]


def test_a_heading_that_comes_twice_is_no_column() -> None:
    with pytest.raises(ParseError, match="each once"):
        parse_columns("GPU,Util,Util\n0,5,90\n", ["GPU", "Util"])


def test_other_headings_are_named() -> None:
    with pytest.raises(ParseError, match="headings GPU, Watts"):
        parse_columns(BOX, ["GPU", "Watts"])


@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=3))
def test_only_its_own_error_is_raised(text: str, headings: list[str]) -> None:
    try:
        data, _ = parse_columns(text, headings)
    except ParseError:
        return
    assert all(set(headings) <= set(row) for row in data["rows"])


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=20))
def test_numbers_come_back(cells: list[tuple[int, int]]) -> None:
    text = "GPU,Power\n" + "".join(f"{a},{b}\n" for a, b in cells)
    rows = parse_columns(text, ["GPU", "Power"]).data["rows"]
    assert [(row["GPU"], row["Power"]) for row in rows] == cells
