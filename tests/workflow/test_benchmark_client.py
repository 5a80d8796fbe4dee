"""The arithmetic of the load client's benchmark, on figures written by hand."""

import shutil
import subprocess
from typing import Any

import pytest

from benchmarks import client, client_load
from benchmarks.client_others import DIGITS, number_of


def figures(**more: Any) -> dict[str, Any]:
    best = {
        "ttft_error_p99_ms": {"best": 0.9},
        "gap_error_p99_ms": {"best": 0.4},
        "overhead_s": {"best": 0.9},
    }
    held = {"accuracy": dict.fromkeys(client.LOADS, best), "ratio": 1.6, "driven": []}
    return {**held, **more}


def test_figures_within_their_limits_break_none():
    assert client.broken(figures()) == []
    assert client.broken(figures(ratio=None)) == []


@pytest.mark.parametrize(
    ("name", "what", "value", "breaks"),
    [
        ("64 together", "ttft_error_p99_ms", 2.1, True),
        ("1024 together", "ttft_error_p99_ms", 2.1, False),
        ("75/s", "ttft_error_p99_ms", 1.1, True),
        ("64 together", "gap_error_p99_ms", 0.6, True),
        ("1024 together", "gap_error_p99_ms", 0.6, False),
        ("75/s", "gap_error_p99_ms", 99.0, False),
        ("75/s", "overhead_s", 1.1, True),
    ],
)
def test_each_limit_is_that_of_its_load(name, what, value, breaks):
    held = figures()
    held["accuracy"][name] = {**held["accuracy"][name], what: {"best": value}}
    found = client.broken(held)
    assert bool(found) is breaks
    assert all(name in text and what in text for text in found)


def test_a_client_that_is_wrong_must_have_said_so():
    row = {"streams": 64, "gap_ms": 1.0}
    for exceeded, told, count in ((True, True, 0), (False, False, 0), (True, False, 1)):
        driven = [{**row, "exceeded": exceeded, "told": told}]
        assert len(client.broken(figures(driven=driven))) == count
    assert len(client.broken(figures(ratio=1.4))) == 1


def test_an_answer_tells_its_number():
    for number in (0, 7, 0x1F2, 16**DIGITS - 1):
        digits = [f"{(number >> 4 * (k % DIGITS)) & 15:x}" for k in range(12)]
        assert number_of("".join(" " + digit for digit in digits)) == number


def test_the_rate_is_of_what_was_written_between_first_and_last():
    served = [{"t_ns": [0, 10**9, 2 * 10**9]}, {"t_ns": [10**9, 2 * 10**9]}]
    assert client_load.events_per_s(served) == 2  # 3 gaps in 2 s


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_emitter_compiles_and_refuses_a_wrong_call(tmp_path):
    program = client_load.compiled(tmp_path)
    assert subprocess.run([str(program)], capture_output=True, check=False).returncode == 2
