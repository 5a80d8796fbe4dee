"""Words and scripts mean the same to a real /bin/sh."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.model.errors import NodeError
from servemap.nodes.ssh_command import LAUNCHER, NAME, program, write
from servemap.nodes.ssh_keys import known_hosts_file

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def launched(line: bytes, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["/bin/sh", "-c", LAUNCHER], input=line + data, capture_output=True, check=False
    )


@settings(max_examples=40)
@given(words=st.lists(WORDS, max_size=4), value=WORDS, data=st.binary(max_size=50))
def test_words_and_variables_arrive_as_they_are(words: list[str], value: str, data: bytes) -> None:
    code = 'printf "%s\\0" "$@" "$V"; exec cat'
    script = program(["sh", "-c", code, "sh", *words], {"V": value}, "/")
    assert script.line().count(b"\n") == 1
    done = launched(script.line(), data)
    begun, _, behind = done.stdout.partition(b"\n")
    assert begun.split()[0] == script.mark.encode()
    expected = b"".join(word.encode() + b"\0" for word in [*words, value])
    assert behind == expected + data
    assert done.stderr == f"{script.mark}\n".encode()


def test_the_fixed_line_holds_nothing_that_shells_read_differently() -> None:
    quoted = LAUNCHER.removeprefix("exec /bin/sh -c '").removesuffix("'")
    assert not set(quoted) & set("'\\!\n`")


def test_marks_are_never_the_same() -> None:
    assert program(["true"], {}, None).mark != program(["true"], {}, None).mark


def test_a_write_whose_input_is_cut_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    done = launched(write(str(target), 5, 0o640).line(), b"half")
    assert (done.returncode, b"cut short" in done.stderr) == (4, True)
    assert list(target.parent.iterdir()) == []
    assert launched(write(str(target), 5, 0o640).line(), b"whole").returncode == 0
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("whole", 0o640)
    assert list(target.parent.iterdir()) == [target]


def test_names_of_variables() -> None:
    assert NAME.fullmatch("A_1")
    assert not NAME.fullmatch("1A")
    assert not NAME.fullmatch("A;B")


def test_a_missing_file_of_host_keys_names_the_command_that_writes_it(tmp_path: Path) -> None:
    missing = tmp_path / "known_hosts"
    with pytest.raises(NodeError) as caught:
        known_hosts_file(str(missing), "10.0.0.1", 2222)
    assert caught.value.where == str(missing)
    assert f"`ssh-keyscan -p 2222 10.0.0.1 >> {missing}`" in caught.value.remedy
    assert "compare" in caught.value.remedy
