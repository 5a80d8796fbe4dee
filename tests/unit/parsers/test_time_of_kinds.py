"""No kind takes more than linear time: its texts grown, and lines that no tool writes.

Processor time is compared with itself, for inputs of two lengths. Another process may disturb a
measurement, so the best of five counts; work that grows with the square fails all five.
"""

import gc
import random
import time

import pytest

from servemap.parsers.kinds import KINDS
from tests.kinds import ALL_MADE, MADE, tolerant

TIMES = 16
# Squared growth would be 256 times the time.
MOST = 5 * TIMES


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
    gc.disable()
    start = time.process_time()
    tolerant(kind, raw)
    seconds = time.process_time() - start
    gc.enable()
    return seconds


def assert_linear(kind: str, short: bytes, long: bytes) -> None:
    """Compare the times of two texts of which one is `TIMES` as long as the other."""
    ratios: list[float] = []
    while not ratios or (min(ratios) > MOST and len(ratios) < 5):
        ratios.append(cpu_s(kind, long) / max(cpu_s(kind, short), 0.0002))
    assert min(ratios) <= MOST, ratios


@pytest.mark.parametrize("how", ["repeated", "one line", "last line", "shuffled"])
@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_time_grows_with_the_length_and_no_faster(kind, raw, how) -> None:
    assert_linear(kind, grown(raw, 12_000, how), grown(raw, TIMES * 12_000, how))


# What an expression may take in many ways: runs of one character, and what opens and never closes.
RUNS = [
    *(" ", "\t", "1", "a", "_", "1 ", "a ", "1.", "1,", "a=1,", "é", ".", ",", ":", ";", "|", "-"),
    *("=", "%", "#", "/", "\\", '"', "'", "(", "[", '{"a":', "<a>", "<!--", "&a", "\x1b["),
]


def with_runs(raw: bytes, run: str, length: int) -> bytes:
    """Return a text whose lines come twice, the second time with a long run of `run` within."""
    chance = random.Random(run)
    lines = []
    for line in raw.decode().split("\n")[:30]:
        place = chance.choice([0, chance.randint(0, len(line)), len(line)])
        lines += [line, line[:place] + run * (length // len(run)) + line[place:]]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_within_a_line_costs_no_more_than_its_length(kind) -> None:
    for raw in MADE[kind]:
        for run in RUNS:
            assert_linear(kind, with_runs(raw, run, 250), with_runs(raw, run, TIMES * 250))


@pytest.mark.parametrize("kind", KINDS)
def test_one_long_line_is_read_or_refused_in_the_time_of_its_length(kind) -> None:
    for run in RUNS:
        assert_linear(kind, run.encode() * 4_000, run.encode() * (TIMES * 4_000))
