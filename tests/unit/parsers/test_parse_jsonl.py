import json

from hypothesis import given
from hypothesis import strategies as st

from servemap.model.files import parse_json
from servemap.parsers.jsonl import parse_jsonl, stream_jsonl
from servemap.parsers.jsonvalues import DECODER
from servemap.parsers.records import Skipped, skip_summary

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=4,
)
RECORDS = st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=4)


def test_whole_lines_are_kept_and_a_cut_one_is_named():
    content = parse_jsonl(b'{"a":1}\n\n{"b":2}\n{"c":')
    assert [(line.line, line.value) for line in content.lines] == [(1, {"a": 1}), (3, {"b": 2})]
    assert content.skipped == [Skipped(4, "truncated last line")]


def test_a_last_object_without_newline_is_whole():
    assert parse_jsonl(b'{"a":1}').lines[0].value == {"a": 1}


def test_garbled_lines_among_good_ones():
    content = parse_jsonl(b'{"a":1}\n\x00\xff\xfe\n[1]\n3\n{"b":2}\n')
    assert [line.value for line in content.lines] == [{"a": 1}, {"b": 2}]
    assert content.skipped == [
        Skipped(2, "not JSON"),
        Skipped(3, "not a JSON object"),
        Skipped(4, "not a JSON object"),
    ]


def test_nan_is_missing():
    assert parse_jsonl(b'{"a":NaN,"b":Infinity}\n').lines[0].value == {"a": None, "b": None}


def test_numbers_that_nothing_measures_are_missing():
    data = f'{{"a":1e400,"b":{"9" * 30},"c":{2**64 - 1},"d":{-(2**63)}}}\n'.encode()
    (line,) = parse_jsonl(data).lines
    assert line.value == {"a": None, "b": None, "c": 2**64 - 1, "d": -(2**63)}


def test_nesting_beyond_the_parser_is_a_bad_line():
    assert parse_jsonl(b"[" * 100_000 + b"\n").skipped == [Skipped(1, "not JSON")]


@given(RECORDS)
def test_what_was_written_is_read_back(records):
    data = "".join(json.dumps(r) + "\n" for r in records).encode()
    content = parse_jsonl(data)
    assert [line.value for line in content.lines] == records
    assert content.skipped == []


@given(RECORDS, st.data())
def test_a_cut_file_loses_at_most_its_last_line(records, data):
    whole = "".join(json.dumps(r) + "\n" for r in records).encode()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    content = parse_jsonl(cut)
    read = [line.value for line in content.lines]
    assert read == records[: len(read)]
    assert len(read) >= cut.count(b"\n")
    assert len(content.skipped) <= 1


def test_summary_groups_reasons():
    skipped = [Skipped(3, "not JSON"), Skipped(5, "not JSON"), Skipped(9, "cut")]
    assert skip_summary(skipped) == ["not JSON (2 lines, first 3)", "cut (line 9)"]
    assert len(skip_summary([Skipped(n, str(n)) for n in range(50)])) == 5


ODD = (
    b'{"a":NaN}', b'{"a":1e999}', b'{"a":"\\ud800"}', b'{"a":"\xff"}', b"\xef\xbb\xbf{}", b" {} \r",
    b'{"a":18446744073709551615}', b'{"a":1,"a":2}', b'{"a":[1,]}', b"", b"\x0c", b"7",
    b'{"a":-0.0}', b'{"a":"\x01"}', b'{"a"',
)  # fmt: skip


@given(st.lists(st.sampled_from(ODD) | st.binary(max_size=9), max_size=9), st.booleans())
def test_lines_are_read_as_the_standard_library_reads_them(tmp_path_factory, raws, ended):
    data = b"\n".join(raws) + b"\n" * ended
    wanted = []
    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            value = parse_json(raw, DECODER)
        except ValueError:
            continue
        if isinstance(value, dict):
            wanted.append((number, repr(value)))
    found = parse_jsonl(data)
    assert [(line.line, repr(line.value)) for line in found.lines] == wanted
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    path.write_bytes(data)
    skipped = []
    assert list(map(repr, stream_jsonl(path, skipped))) == list(map(repr, found.lines))
    assert skipped == found.skipped
