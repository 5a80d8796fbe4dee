"""All kinds: their documents, their errors, their speed against the length of the input."""

import gc
import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.model.errors import ParseError
from servemap.parsers import frame
from servemap.parsers.kinds import KINDS, parse
from servemap.parsers.page import page
from tests.corpus import extract, numbers

ROOT = Path(__file__).parents[3]
MADE = Path(__file__).parent / "made"
# One or more made-up outputs of each kind: KIND.txt, KIND.2.txt.
TEXTS = {
    kind: [path.read_bytes() for path in sorted(MADE.glob(f"{kind}.*"))] for kind in KINDS
}  # fmt: skip
ALL = [(kind, text) for kind, texts in TEXTS.items() for text in texts]
WORDS = [
    *("N/A", "-", "[Not Supported]", "0", "1,5", "9" * 40, "-3", "%", "|", "+--", ",", ";"),
    *("GPU", "\x1b[4m", "\x00", "\ufeff", "\r", "{", "]", "<a>", "all", "Average:", ":"),
]


def tolerant(kind: str, raw: bytes) -> None:
    """Parse; the parser's own error is an answer, everything else fails the test."""
    try:
        found = extract(kind, raw)
    except ParseError as error:
        assert error.what and error.where and error.remedy
    else:
        lines = raw.count(b"\n") + raw.count(b"\r") + 1
        assert all(1 <= piece.line <= lines and piece.reason for piece in found.skipped)


def test_the_page_is_the_one_of_the_registry() -> None:
    assert (ROOT / "docs/parsers.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_each_kind_is_documented_and_has_a_made_up_text(kind) -> None:
    about, _, rest = kind.documentation.partition("\n\n")
    assert about.endswith(".") and "\n" not in about and len(rest) > 40
    assert "Raises" not in kind.documentation and kind.command and kind.source
    assert TEXTS[kind.name], "there is no made-up output of this kind"


@pytest.mark.parametrize(("kind", "raw"), ALL)
def test_a_made_up_text_is_read_whole(kind, raw) -> None:
    assert extract(kind, raw).skipped == []


@pytest.mark.parametrize(("kind", "raw"), ALL)
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


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(raw=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_nothing_but_its_own_error_on_anything(kind, raw) -> None:
    tolerant(kind, raw)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_nothing_but_its_own_error_on_texts_that_are_cut_mixed_or_garbled(kind, data) -> None:
    foreign = data.draw(st.sampled_from(ALL))[1]
    lines = data.draw(st.sampled_from(TEXTS[kind])).decode().split("\n")
    for _ in range(data.draw(st.integers(0, 4))):
        line = data.draw(st.integers(0, len(lines) - 1))
        start, end = sorted(data.draw(st.integers(0, len(lines[line]))) for _ in range(2))
        match data.draw(st.sampled_from(["cut", "word", "drop", "twice", "foreign", "swap"])):
            case "cut":
                lines = [*lines[:line], lines[line][:end]]
            case "word":
                word = data.draw(st.sampled_from(WORDS))
                lines[line] = lines[line][:start] + word + lines[line][end:]
            case "drop":
                lines[line] = lines[line][:start] + lines[line][end:]
            case "twice":
                lines = lines[: line + 1] + lines[line:]
            case "foreign":
                lines.insert(line, data.draw(st.sampled_from(foreign.decode().split("\n"))))
            case "swap":
                lines[line], lines[0] = lines[0], lines[line]
    tolerant(kind, "\n".join(lines).encode())


@pytest.mark.parametrize(("kind", "raw"), ALL)
@settings(deadline=None)
@given(data=st.data())
def test_a_text_that_is_cut_holds_no_number_that_the_whole_has_not(kind, raw, data) -> None:
    whole = numbers(extract(kind, raw).data)
    end = data.draw(st.integers(0, len(raw)))
    try:
        cut = extract(kind, raw[:end])
    except ParseError:
        return
    assert numbers(cut.data) <= whole


def grown(raw: bytes, size: int, how: str) -> bytes:
    """Return about `size` bytes made of `raw`: repeated, in one line, or as shuffled words."""
    if how == "repeated":
        return raw * (size // len(raw) + 1)
    if how == "one line":
        return (raw.replace(b"\n", b" ") * (size // len(raw) + 1))[:size]
    if how == "last line":
        last = max(raw.split(b"\n"), key=len)
        return raw + b"\n" + last * (size // len(last))
    words = (raw.split() or [b"x"]) * (size // len(raw) + 1)
    random.Random(len(words)).shuffle(words)
    return b"\n".join(b" ".join(words[i : i + 9]) for i in range(0, len(words), 9))


def cpu_s(kind: str, raw: bytes) -> float:
    """Return the processor time that a parse takes."""
    # The collector visits what is alive again and again, and not in proportion.
    gc.collect()
    gc.disable()
    start = time.process_time()
    tolerant(kind, raw)
    seconds = time.process_time() - start
    gc.enable()
    return seconds


@pytest.mark.parametrize("how", ["repeated", "one line", "last line", "shuffled"])
@pytest.mark.parametrize(("kind", "raw"), ALL)
def test_time_grows_with_the_length_and_no_faster(kind, raw, how) -> None:
    """Sixteen times the input takes sixteen times as long; squared growth would take 256 times."""
    short, long = grown(raw, 12_000, how), grown(raw, 16 * 12_000, how)
    ratios = []
    # Once is enough if it is fast; another process may disturb a measurement, not all of five.
    while not ratios or (min(ratios) > 16 * 5 and len(ratios) < 5):
        ratios.append(cpu_s(kind, long) / max(cpu_s(kind, short), 0.0002))
    assert min(ratios) <= 16 * 5, ratios


def test_a_long_run_of_blanks_costs_nccl_tests_no_more_than_its_length():
    raw = TEXTS["nccl-tests"][0]
    ratios = []
    while not ratios or (min(ratios) > 16 * 5 and len(ratios) < 5):
        short, long = (raw + b" " * size + b"x\n" for size in (4_000, 16 * 4_000))
        ratios.append(cpu_s("nccl-tests", long) / max(cpu_s("nccl-tests", short), 0.0002))
    assert min(ratios) <= 16 * 5, ratios


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
@pytest.mark.parametrize(("kind", "raw"), ALL)
def test_times_before_every_line_change_nothing(kind, raw, prefix) -> None:
    assert extract(kind, prefixed(raw.decode(), prefix)) == extract(kind, raw)


@pytest.mark.parametrize(("kind", "raw"), ALL)
def test_records_of_a_log_driver_change_nothing(kind, raw) -> None:
    lines = raw.decode().splitlines(keepends=True)
    records = "".join(json.dumps({"log": line, "stream": "stdout"}) + "\n" for line in lines)
    assert extract(kind, records.encode()) == extract(kind, raw)


@pytest.mark.parametrize("label", ["[pod/a-0/main] ", "bench-1  | ", "[1,0]<stdout>:", "0: "])
@pytest.mark.parametrize(("kind", "raw"), ALL)
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
