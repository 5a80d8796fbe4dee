"""Broken, mixed and foreign texts, for every kind of the registry: what is whole, or an error.

A new kind is tried as soon as it is registered: with its made-up texts and its samples.
"""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servemap.parsers.kinds import KINDS
from tests.corpus import extract, numbers, read_sample
from tests.kinds import (
    ALL_MADE,
    LONGEST,
    SUMMED,
    guesses,
    not_printed,
    samples,
    texts,
    tolerant,
)
from tests.parts import need

WORDS = [
    *("N/A", "-", "[Not Supported]", "0", "1,5", "1.234,5", "-3", "%", "|", "+--", ",", ";", ":"),
    *("9" * 30, "9" * 400, "1e308", "-1e308", "1e400", "1e-400", "18446744073709551616", "1_0"),
    *(
        "NaN",
        "-inf",
        "Infinity",
        "null",
        "true",
        "0x1f",
        "٣",
        "１２",
        "²",
        "½",
        "−1",
        "∞",
        "\u2028",
    ),
    *("GPU", "all", "Average:", "Durchschn.:", "平均時間:", "Moyenne :", "<a>", "<!--", "&amp;"),
    *("\x1b[31m", "\x1b[4m", "\x1b]0;", "\x00", "\ufeff", "\x85", "\xa0", "\r", "\t", "\ud800"),
    *("{", "}", "[", "]", '"', '""', "'", "\\", "[1]", "{}", "é"),
]
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
Change = Callable[[str, str, random.Random], str]


def _cut(text: str, _: str, chance: random.Random) -> str:
    return text[: chance.randint(0, len(text))]


def _begin(text: str, _: str, chance: random.Random) -> str:
    return text[chance.randint(0, len(text)) :]


def _shuffle(text: str, _: str, chance: random.Random) -> str:
    lines = text.split("\n")
    chance.shuffle(lines)
    return "\n".join(lines)


def _drop_and_double(text: str, _: str, chance: random.Random) -> str:
    return "\n".join(
        line for line in text.split("\n") for _ in range(chance.choice([0, 1, 1, 1, 1, 2]))
    )


def _interleave(text: str, _: str, chance: random.Random) -> str:
    other = chance.choice(ALL_MADE)[1].decode().split("\n")
    return "\n".join(line for pair in zip(text.split("\n"), other, strict=False) for line in pair)


def _other_numbers(text: str, word: str, chance: random.Random) -> str:
    return _NUMBER.sub(lambda found: chance.choice([word, found[0], found[0]]), text)


def _other_words(text: str, word: str, chance: random.Random) -> str:
    parts = re.split(r"(\s+)", text)
    return "".join(word if part.strip() and chance.random() < 0.05 else part for part in parts)


def _insert(text: str, word: str, chance: random.Random) -> str:
    for _ in range(5):
        place = chance.randint(0, len(text))
        text = text[:place] + word + text[place:]
    return text


def _decimal_commas(text: str, _: str, __: random.Random) -> str:
    return re.sub(r"(?<=[0-9])\.(?=[0-9])", ",", text)


def _terminal(text: str, word: str, _: random.Random) -> str:
    return "\ufeff" + text.replace("\n", f"\x1b[0m\r\n\x1b[1;32m{word}")


CHANGES: list[Change] = [
    *(_cut, _begin, _shuffle, _drop_and_double, _interleave, _other_numbers, _other_words),
    *(_insert, _decimal_commas, _terminal),
]
STEPS = st.lists(
    st.tuples(st.sampled_from(CHANGES), st.sampled_from(WORDS), st.integers(0, 2**32)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("kind", KINDS)
@given(raw=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
@example(raw=b"")
def test_anything_gives_data_or_the_parsers_own_error(kind, raw) -> None:
    tolerant(kind, raw)


@pytest.mark.parametrize("kind", KINDS)
@given(which=st.integers(0, 99), steps=STEPS)
def test_a_text_that_is_broken_gives_data_or_the_parsers_own_error(kind, which, steps) -> None:
    own = texts(kind)
    text = own[which % len(own)].decode(errors="replace")
    for change, word, seed in steps:
        text = change(text, word, random.Random(seed))
    tolerant(kind, text.encode(errors="surrogatepass"))


def assert_nothing_is_guessed(kind: str, raw: bytes, end: int, whole: Any) -> None:
    """Read `raw` up to a byte: all that is said then, the whole says in the same place."""
    cut = tolerant(kind, raw[:end])
    if cut is not None:
        assert numbers(cut.data) <= numbers(whole), raw[:end][-80:]
        if kind not in SUMMED:
            assert list(guesses(cut.data, whole)) == [], raw[:end][-80:]


@pytest.mark.parametrize(("kind", "raw"), ALL_MADE)
def test_a_text_that_is_cut_says_nothing_that_the_whole_does_not(kind, raw) -> None:
    whole = extract(kind, raw).data

    @given(end=st.integers(0, len(raw)))
    def cut(end: int) -> None:
        assert_nothing_is_guessed(kind, raw, end, whole)

    cut()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_that_is_cut_says_nothing_that_the_whole_does_not(kind) -> None:
    need("corpus")
    for file, name in samples():
        if name == kind:
            raw = read_sample(file)
            whole = extract(kind, raw).data
            for end in range(0, len(raw), max(1, len(raw) // (60 if len(raw) < LONGEST else 10))):
                assert_nothing_is_guessed(kind, raw, end, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_another_kinds_text_are_numbers_that_stand_in_it(kind) -> None:
    for other in KINDS:
        for raw in texts(other) if other != kind else ():
            found = tolerant(kind, raw)
            if found is not None:
                assert not_printed(found.data, raw) == []
