"""`servemap bench --curve` against the reference server."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from servemap.cli import app
from servemap.model.errors import ConfigError
from tests.reference import reference_server

ASKED = ["bench", "--model", "reference", "--isl", "8", "--osl", "2", "--warmup", "0"]


def test_each_concurrency_is_a_run_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with reference_server(tmp_path, {}) as (url, _):
        argv = [*ASKED, "--curve", "1,4", "--num-prompts", "4", "--url", url, "--out", str(out)]
        done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    found = {path.name: json.loads((path / "load.json").read_text()) for path in out.iterdir()}
    streams = {name: load["segments"][0]["streams"][0] for name, load in found.items()}
    assert {name: stream["concurrency"] for name, stream in streams.items()} == {"c1": 1, "c4": 4}
    assert "concurrency 4\nstatus    ok" in done.output


def test_a_point_without_an_answer_is_said_and_the_next_is_tried(tmp_path: Path) -> None:
    argv = [*ASKED, "--curve", "1,2", "--url", "http://127.0.0.1:1", "--out", str(tmp_path / "o")]
    assert CliRunner().invoke(app, argv).exit_code == 1
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["c1", "c2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--curve", "1,two"], "is no list of concurrencies"),
        (["--curve", "1", "--rate", "3"], "--rate does not go with --curve"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    argv = [*ASKED, *words, "--url", "http://h", "--out", str(tmp_path)]
    with pytest.raises(ConfigError, match=said):
        CliRunner().invoke(app, argv, catch_exceptions=False)
