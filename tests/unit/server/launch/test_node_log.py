"""Logs of any length: read in pieces, bounded, credentials taken out."""

from pathlib import Path

import pytest

from servemap.nodes.local import LocalNode
from servemap.onnode import redact
from servemap.server.launch import node_log
from servemap.server.launch.node_log import bounded, log_reader, read_log, redacted, safe_cut

VALUE = "quietly-known-77"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(redact, "_hidden", set())
    monkeypatch.setattr(redact, "_hidden_pattern", None)
    redact.hide([VALUE])
    return VALUE


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_no_value_is_left_however_the_pieces_are_cut(known: str, size: int) -> None:
    text = f"first {known}\n{known}\nlast {known} end {known}"
    data = text.encode()
    out = "".join(redacted(data[at : at + size] for at in range(0, len(data), size)))
    assert out == text.replace(known, redact.REDACTED)


@pytest.mark.parametrize("shift", range(0, 40, 3))
def test_a_value_in_a_line_without_an_end(
    known: str, shift: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log, "LINE_CHARS", 200)
    monkeypatch.setattr(node_log, "HOLD_CHARS", 50)
    text = "y" * (180 - shift) + known + "z" * 300
    data = text.encode()
    out = "".join(redacted(data[at : at + 90] for at in range(0, len(data), 90)))
    assert out == text.replace(known, redact.REDACTED)


def test_a_private_key_over_two_pieces() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nabc\ndef\n-----END PRIVATE KEY-----"
    data = f"one\n{key}\ntwo\n".encode()
    for at in range(len(data)):
        out = "".join(redacted([data[:at], data[at:]]))
        assert out == f"one\n{redact.REDACTED}\ntwo\n"


def test_a_line_that_goes_on_is_held_back() -> None:
    assert safe_cut("whole\nbegun") == len("whole\n")
    assert safe_cut("begun") == 0
    assert safe_cut("") == 0


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [f"line {number}\n" for number in range(1000)]
    log.write_text("".join(lines))
    node = LocalNode("n1")
    assert b"".join(bounded(node, str(log))).decode() == "".join(lines)
    text = b"".join(bounded(node, str(log), 100, 200)).decode()
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 998\nline 999\n")
    assert f"bytes are left out here; the whole log is on node n1: {log}]" in text
    assert len(text) < 300 + 200
    assert read_log(node, str(tmp_path / "none")) == ""


def test_long_lines_are_cut_for_who_looks_for_signatures(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a" * 100_000 + "\nCUDA error\n")
    text = read_log(LocalNode("n1"), str(log))
    assert [len(line) for line in text.splitlines()] == [node_log.SHOWN_CHARS, len("CUDA error")]


def test_a_log_that_grows_faster_than_it_is_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log, "PIECE_BYTES", 10)
    log = tmp_path / "log"
    read = log_reader(LocalNode("n1"), str(log))
    log.write_text("0123456789" + "x" * 500 + "the last\n")
    text = read()
    assert text.startswith("0123456789\n[servemap: ")
    assert len(text) < 100
    assert read().endswith("the last\n")
    assert read() == ""


def test_log_reader_gives_what_is_new(tmp_path: Path) -> None:
    log = tmp_path / "log"
    read = log_reader(LocalNode("n1"), str(log))
    assert read() == ""
    log.write_text("old\n")
    assert read() == "old\n"
    assert read() == ""
    with log.open("a") as handle:
        handle.write("new\n")
    assert read() == "new\n"
    assert read() == ""


def test_log_reader_puts_a_cut_letter_together(tmp_path: Path) -> None:
    log = tmp_path / "log"
    read = log_reader(LocalNode("n1"), str(log))
    data = "模型 loaded\n".encode()
    log.write_bytes(data[:2])
    first = read()
    log.write_bytes(data)
    assert first + read() == "模型 loaded\n"
