"""`servemap bench --search` against the reference server, whose answers slow down with load."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from servemap.cli import app
from servemap.model.errors import ConfigError
from tests.reference import reference_server

SCRIPT = {"answer": {"ttft_ms": 300, "capacity": 3, "queue_ms": 1500}}
ASKED = ["bench", "--search", "--slo", "ttft_s=1.2", "--most", "16", "--num-prompts", "2",
         "--model", "reference", "--isl", "8", "--osl", "2", "--warmup", "0"]  # fmt: skip


def run(url: str, out: Path, *more: str) -> tuple[int, str, dict[str, Any]]:
    done = CliRunner().invoke(app, [*ASKED, "--url", url, "--out", str(out), *more])
    path = out / "search.json"
    return done.exit_code, done.output, json.loads(path.read_text()) if path.exists() else {}


def test_the_largest_concurrency_within_the_slo(tmp_path: Path) -> None:
    with reference_server(tmp_path, SCRIPT) as (url, _):
        code, said, found = run(url, tmp_path / "out")
    assert code == 0, said
    assert [probe["level"] for probe in found["probes"]] == [1, 2, 4, 3]
    assert (found["ended"], found["within_slo"]["level"], found["missed_at"]) == ("converged", 3, 4)
    assert found["most_succeeded"]["level"] == 4
    assert "concurrency 3 within SLO (converged)" in said
    assert (tmp_path / "out/probe-04/requests.jsonl").exists()


def test_rates_and_a_bound(tmp_path: Path) -> None:
    with reference_server(tmp_path, {}) as (url, _):
        more = ["--search=rate", "--start", "20", "--most", "40", "--max-probes", "1"]
        code, said, found = run(url, tmp_path / "out", *more)
    assert code == 0, said
    assert (found["ended"], found["within_slo"]["level"]) == ("probes", 20)
    assert "at least rate 20 req/s within SLO" in said
    assert "most throughput, of the levels probed: rate 20 req/s, probe-01" in said


def test_a_server_that_is_not_there_ends_the_search(tmp_path: Path) -> None:
    code, said, found = run("http://127.0.0.1:1", tmp_path / "out")
    assert (code, found) == (1, {}), said


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--concurrency", "4"], "--concurrency does not go with --search"),
        (["--slo", "ttft=1"], "--slo ttft: unknown key"),
        (["--slo", "ttft_s=soon"], "--slo ttft_s: must be a valid number"),
        (["--start", "32"], "error: start is above most\n"),
        (["--most", "-1"], "--most: must be greater than 0"),
        (["--max-probes", "0"], "--max-probes: must be"),
        (["--min-window", "-1"], "--min-window: must be"),
    ],
)
def test_what_is_refused(tmp_path: Path, more: list[str], word: str) -> None:
    done = CliRunner().invoke(app, [*ASKED, "--url", "http://h", "--out", str(tmp_path), *more])
    assert isinstance(done.exception, ConfigError)
    assert word in f"error: {done.exception}"


@pytest.mark.parametrize("words", [["--search"], ["--curve", "1,4"]])
def test_help_is_of_the_command_as_it_is_typed(words: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", *words, "--help"])
    assert done.exit_code == 0
    assert done.output.startswith(f"usage: servemap bench {words[0]} ")
    assert "Other options are those of `servemap bench`" in " ".join(done.output.split())
