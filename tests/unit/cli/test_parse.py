"""`servemap parse` as from a shell: what goes to which stream, and the exit code."""

import io
import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from servemap import entry
from servemap.parsers.kinds import KINDS

DMON = b"# gpu    pwr\n# Idx      W\n    0     50\n    1\n"


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def parse(monkeypatch, capsys):
    def call(*args: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "argv", ["servemap", "parse", *args])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            entry.main()
            code = 0
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            code = 1 if isinstance(end.code, str) else end.code or 0
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


def test_data_and_what_was_skipped(parse, tmp_path: Path) -> None:
    file = tmp_path / "dmon.txt"
    file.write_bytes(DMON)
    code, out, err = parse("nvidia-smi-dmon", str(file))
    assert code == 0
    assert json.loads(out) == {
        "schema": 1,
        "kind": "nvidia-smi-dmon",
        "data": {"rows": [{"tick": 0, "gpu": 0, "pwr_watts": 50}]},
        "skipped": [{"line": 4, "reason": "1 words under 2 headings"}],
    }
    assert err == "skipped 1: 1 words under 2 headings (line 4)\n"


def test_stdin_and_nothing_skipped(parse) -> None:
    code, out, err = parse("nvidia-smi-dmon", "-", stdin=DMON[:-6])
    assert (code, err) == (0, "")
    assert json.loads(out)["skipped"] == []


def test_what_no_locale_can_print(parse) -> None:
    host = b'{"nodename": "\\ud800 \xc3\xa9"}'
    code, out, _ = parse("sadf", "-", stdin=b'{"sysstat": {"hosts": [' + host + b"]}}")
    assert code == 0 and out.isascii()
    assert json.loads(out)["data"]["host"]["host"] == "\ud800 é"


def test_a_file_that_is_too_long_is_not_read(parse, monkeypatch, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_bytes(DMON)
    for module in ("servemap.cli_parse", "servemap.parsers.frame"):
        monkeypatch.setattr(f"{module}.MAX_BYTES", 9)
    for args, stdin in ((("mpstat", str(file)), b""), (("mpstat", "-"), DMON)):
        code, out, err = parse(*args, stdin=stdin)
        assert (code, out) == (1, "") and "the limit is 9" in err


@pytest.mark.parametrize(
    ("args", "stdin", "said"),
    [
        (("mpstat", "-"), b"made up\n", "-: mpstat"),
        (("mpstat", "-"), b"", "the input is empty"),
        (("mpstat", "-"), b"\xff\xfe\x00\xd8", "error: "),
        (("made-up", "-"), b"x", "there is no kind 'made-up'"),
        (("mpstat", "/made/up/file"), b"", "/made/up/file"),
        (("mpstat", "/"), b"", "error: "),
        ((), b"", "parse needs a kind and a file"),
        (("mpstat",), b"", "parse needs a kind and a file"),
    ],
)
def test_errors_in_words(parse, args, stdin, said) -> None:
    code, out, err = parse(*args, stdin=stdin)
    assert (code, out) == (1, "")
    assert said in err and "Traceback" not in err


def test_the_list_names_every_kind(parse) -> None:
    code, out, _ = parse("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(KINDS)
