"""`servemap kernel`, with a stand-in for ncu (simulated)."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servemap.cli import app
from servemap.engines.ncu import ncu_argv
from servemap.model.errors import ConfigError, ParseError

MADE = Path(__file__).parents[1] / "parsers" / "made" / "ncu.2.csv"

SHIM = """#!{python}
# servemap: simulated
import sys
log = [word[11:] for word in sys.argv if word.startswith("--log-file=")][0]
open({calls!r}, "w").write("\\n".join(sys.argv[1:]))
if {text!r}:
    open(log, "w").write({text!r})
sys.exit({code})
"""


def ncu(folder: Path, text: str, code: int = 0) -> str:
    path = folder / "ncu"
    calls = str(folder / "calls")
    path.write_text(SHIM.format(python=sys.executable, calls=calls, text=text, code=code))
    path.chmod(0o755)
    return str(path)


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(app, ["kernel", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_for_a_kernel_of_a_script() -> None:
    argv = ncu_argv(["python", "r.py"], kernel="moe", log="k.csv", skip=5, count=2)
    assert argv == [
        *("ncu", "--csv", "--page=raw", "--log-file=k.csv", "--target-processes=all", "--set=full"),
        *("--kernel-name=regex:moe", "--launch-skip=5", "--launch-count=2", "python", "r.py"),
    ]
    some = ncu_argv(["x"], kernel="k", log="l", sections=["Occupancy", "LaunchStats"])
    assert "--section=Occupancy" in some and "--set=full" not in some


def test_a_table_becomes_figures(tmp_path: Path) -> None:
    out = tmp_path / "kernel.json"
    said = run(MADE, "--out", out)
    assert "made: 2 launches" in said
    row = next(line.split() for line in said.splitlines() if line.startswith("duration_ns"))
    assert row == ["duration_ns", "13500", "12250", "14750"]
    assert "waits for barrier, cycles" in said
    record = json.loads(out.read_text())
    assert record["profiled"] is True
    assert record["kernels"][0]["figures"]["duration_ns"]["max"] == 14750


def test_a_script_is_profiled_and_its_table_read(tmp_path: Path) -> None:
    program = ncu(tmp_path, MADE.read_text())
    table, out = tmp_path / "k.csv", tmp_path / "k.json"
    words = ["--script", "python repro.py --n 3", "--kernel", "moe", "--program", program]
    assert "made: 2 launches" in run(table, "--out", out, *words)
    called = (tmp_path / "calls").read_text().splitlines()
    assert called[-4:] == ["python", "repro.py", "--n", "3"]
    assert "--kernel-name=regex:moe" in called


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission\n", ParseError, "performance counters"),
        ("==WARNING== No kernels were profiled.\n", ParseError, "no kernel was profiled"),
        ("", ConfigError, "ncu ended with 1 and wrote nothing"),
    ],
)
def test_what_ncu_refuses_is_in_words(
    tmp_path: Path, text: str, error: type[Exception], said: str
) -> None:
    program = ncu(tmp_path, text, code=1)
    with pytest.raises(error, match=said):
        run(tmp_path / "k.csv", "--script", "x", "--kernel", "k", "--program", program)


def test_no_ncu_and_half_a_question_are_in_words(tmp_path: Path) -> None:
    words = ["--script", "x", "--kernel", "k", "--program", str(tmp_path / "no")]
    with pytest.raises(ConfigError, match="ncu cannot be started"):
        run(tmp_path / "k.csv", *words)
    with pytest.raises(ConfigError, match="belong together"):
        run(tmp_path / "k.csv", "--kernel", "k")


@pytest.mark.parametrize("script", ["", "python 'repro.py"])
def test_a_script_that_is_no_command_is_refused_in_words(tmp_path: Path, script: str) -> None:
    with pytest.raises(ConfigError, match="the script is no command"):
        run(tmp_path / "k.csv", "--script", script, "--kernel", "k")


def test_an_earlier_table_stays_until_there_is_a_new_one(tmp_path: Path) -> None:
    table, words = tmp_path / "k.csv", ["--script", "x", "--kernel", "k", "--program"]
    table.write_text("earlier")
    for program in (str(tmp_path / "no"), ncu(tmp_path, "", code=1)):
        with pytest.raises(ConfigError):
            run(table, *words, program)
        assert table.read_text() == "earlier"
    run(table, "--out", tmp_path / "k.json", *words, ncu(tmp_path, MADE.read_text()))
    assert table.read_text() == MADE.read_text()
    assert not list(tmp_path.glob("*.before"))


def test_the_figures_never_overwrite_the_table(tmp_path: Path) -> None:
    table = tmp_path / "k.csv"
    table.write_text(MADE.read_text())
    with pytest.raises(ConfigError, match="would overwrite the table"):
        run(table, "--out", table)
    with pytest.raises(ConfigError, match="would be a folder"):
        run(tmp_path, "--script", "x", "--kernel", "k")
    assert table.read_text() == MADE.read_text()


def test_a_negative_time_is_missing(tmp_path: Path) -> None:
    table, out = tmp_path / "k.csv", tmp_path / "k.json"
    heads = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    table.write_text(f'{heads}\n"0","k","gpu__time_duration.sum","nsecond","-5"\n')
    run(table, "--out", out)
    assert json.loads(out.read_text())["kernels"][0]["figures"]["duration_ns"] is None
