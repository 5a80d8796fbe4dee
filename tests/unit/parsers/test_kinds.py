"""All kinds: their documents, their errors, and what launchers and terminals add to a text."""

import json
from pathlib import Path

import pytest

from servemap.model.errors import ParseError
from servemap.parsers import frame
from servemap.parsers.kinds import KINDS, parse
from servemap.parsers.page import page
from tests.corpus import extract
from tests.kinds import ALL_MADE, MADE

ROOT = Path(__file__).parents[3]


def test_the_page_is_the_one_of_the_registry() -> None:
    assert (ROOT / "docs/parsers.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_each_kind_is_documented_and_has_a_made_up_text(kind) -> None:
    about, _, rest = kind.documentation.partition("\n\n")
    assert about.endswith(".") and "\n" not in about and len(rest) > 40
    assert "Raises" not in kind.documentation and kind.command and kind.source
    assert MADE[kind.name], "there is no made-up output of this kind"


@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_a_made_up_text_is_read_whole(kind, raw) -> None:
    assert extract(kind, raw).skipped == []


@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_decoration_changes_nothing(kind, raw) -> None:
    plain = extract(kind, raw)
    text = raw.decode()
    assert extract(kind, b"\xef\xbb\xbf" + raw) == plain
    assert extract(kind, text.encode("utf-16")) == plain
    assert extract(kind, raw.replace(b"\n", b"\r\n")) == plain
    assert extract(kind, b"\x1b[0m" + raw.replace(b"\n", b"\x1b[K\n")) == plain
    indented = "".join(f"    {line}" for line in text.splitlines(keepends=True))
    assert extract(kind, indented.encode()) == plain


def test_an_unknown_kind_and_bad_inputs_are_said_in_words(monkeypatch) -> None:
    with pytest.raises(ParseError, match="there is no kind 'made-up'"):
        parse("made-up", b"x")
    for raw in (b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"\x1b[0m"):
        with pytest.raises(ParseError, match="empty"):
            parse("numastat", raw)
    monkeypatch.setattr(frame, "MAX_BYTES", 3)
    with pytest.raises(ParseError, match="4 bytes or more, the limit is 3"):
        parse("numastat", b"1234")


def prefixed(text: str, prefix: str) -> bytes:
    return "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True)).encode()


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-03-01T12:00:01.123456789Z ",
        "2026-03-01T12:00:01.123456789+01:00 stdout F ",
        "[2026-03-01 12:00:01] ",
        "Mar  1 12:00:01 ",
        "Mar  1 12:00:01 node-a bench[123]: ",
    ],
)
@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_times_before_every_line_change_nothing(kind, raw, prefix) -> None:
    assert extract(kind, prefixed(raw.decode(), prefix)) == extract(kind, raw)


@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_records_of_a_log_driver_change_nothing(kind, raw) -> None:
    lines = raw.decode().splitlines(keepends=True)
    records = "".join(json.dumps({"log": line, "stream": "stdout"}) + "\n" for line in lines)
    assert extract(kind, records.encode()) == extract(kind, raw)


@pytest.mark.parametrize("label", ["[pod/a-0/main] ", "bench-1  | ", "[1,0]<stdout>:", "0: "])
@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_one_writers_label_changes_nothing_and_several_are_refused(kind, raw, label) -> None:
    if KINDS[kind].reads_labels:
        return
    text = raw.decode()
    assert extract(kind, prefixed(text, label)) == extract(kind, raw)
    other = label.replace("0", "7").replace("bench", "other")
    with pytest.raises(ParseError, match="lines of 2 writers are mixed"):
        parse(kind, prefixed(text, label) + prefixed(text, other))


def test_a_prefix_that_is_cut_or_not_on_every_line_stays_text() -> None:
    whole = b"2026-03-01T12:00:01Z node0\n2026-03-01T12:00:01Z numa_hit 5\n"
    plain = [{"title": None, "nodes": {"0": {"numa_hit_pages": 5}}}]
    assert extract("numastat", whole + b"2026-03-0").data["tables"] == plain
    with pytest.raises(ParseError, match="no line that names the NUMA nodes"):
        parse("numastat", whole + b"half\n")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("prometheus", 'm{a="b"} %s\nn 1\n'),
        ("prometheus", "m %s\nn 1\n"),
        ("engine-metrics", "vllm:m %s\nn 1\n"),
        ("engine-metrics", 'h_bucket{le="%s"} 1\nh_sum 1\nh_count 1\n'),
        ("engine-metrics", 'h_bucket{le="+Inf"} 1\nh_sum %s\nh_count 1e-9\n'),
        ("dcgm-exporter", 'DCGM_FI_DEV_FB_USED{gpu="0"} %s\n'),
        ("superbench-monitor", '{"time": "now", "eth0_receive_bw": %s}\n'),
        ("bench-result", '{"completed": 1, "mean_ttft_ms": %s}\n'),
        ("bench-result", '{"completed": %s, "mean_ttft_ms": 1}\n'),
    ],
)
@pytest.mark.parametrize(
    "digits", ["1e308", "-1e308", "1e400", "-1e400", "9" * 30, "9" * 400, "NaN"]
)
def test_numbers_that_no_float_holds_are_missing(kind, text, digits) -> None:
    """`extract` proves that the data are strict JSON."""
    data = json.dumps(extract(kind, (text % digits).encode()).data)
    assert "9" * 30 not in data and "inf" not in data.lower().replace("+inf", "")


def test_a_heading_of_nccl_tests_without_a_column_that_all_have_is_none() -> None:
    measured = "10.5 0.10 0.10 0 10.5 0.10 0.10 0"
    heading = "# size count redop root" + 2 * " time algbw busbw #wrong"
    text = f"{heading}\n 8 2 float sum {measured}\n 16 4 float sum {measured}\n"
    (run,) = extract("nccl-tests", text.encode()).data["runs"]
    assert [(row["type"], row["redop"]) for row in run["rows"]] == 2 * [("float", "sum")]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nvidia-smi-csv", "timestamp, name, utilization.gpu [%], "),
        ("sadf", "# hostname;interval;timestamp;CPU;%us"),
    ],
)
def test_a_heading_that_is_cut_is_no_row(kind, text) -> None:
    with pytest.raises(ParseError):
        parse(kind, text.encode())


@pytest.mark.parametrize(
    ("kind", "text", "key"),
    [
        ("ixsmi", "| IX-ML: 4.3.0    Driver Version: 4.3", "driver_version"),
        ("npu-smi", "| npu-smi 24.1.rc3    Version: 24.1", "driver_version"),
        ("nvidia-smi-table", "| NVIDIA-SMI 570.1   Driver Version: 57", "driver_version"),
    ],
)
def test_a_version_that_is_cut_is_missing(kind, text, key) -> None:
    data, skipped = extract(kind, text.encode())
    assert data[key] is None
    assert [piece.reason for piece in skipped] == ["a line without its end"]
