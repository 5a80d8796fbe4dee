"""Reading the command line of a running server: pure functions, spelled by `engines.yaml`."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Annotated, Literal

import yaml
from pydantic import Field

from servemap.model.base import Model
from servemap.model.secret_names import is_secret_option
from servemap.model.server_spec import ArgValue
from servemap.onnode.redact import redact_text

EngineName = Literal["vllm", "sglang"]
_SHELLS = ("sh", "bash", "dash", "zsh")
_SEPARATORS = ("&&", "||", ";", "|")
_NUMBER = re.compile(r"-?\d")
_LONG = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*")


class Spelling(Model):
    """How one engine is started and how it spells what campaigns have words for."""

    programs: list[list[str]]
    default_port: Annotated[int, Field(ge=1, le=65535)]
    positional_model: bool
    options: dict[str, list[str]]
    given_by_us: list[str]


class Spellings(Model):
    """All engines whose command lines are known."""

    version: Annotated[int, Field(ge=1, le=1, alias="schema")]
    engines: dict[EngineName, Spelling]


@cache
def spellings() -> dict[EngineName, Spelling]:
    """Return the table by engine."""
    file = resources.files("servemap.prepare").joinpath("engines.yaml")
    return Spellings.model_validate(yaml.safe_load(file.read_text(encoding="utf-8"))).engines


@dataclass(frozen=True)
class Command:
    """What a server's command line says.

    Attributes:
        engine: which one it is.
        port: the one given, else the engine's own.
        model: path or name of the model, as the server sees it; None where it is not given.
        name: the name that it answers to, None where it is not given.
        bind: the address it listens on, None where it is not given.
        context: its longest sequence (tokens), None where it is not given as a number.
        topology: tp, pp, dp, ep as far as they are given.
        nodes: number of nodes that it runs on, 1 where it is not given.
        master_port: port at which the ranks meet, None where it is not given.
        args: the other options as given.
        left_out: options that a campaign cannot hold, each with the reason.
    """

    engine: EngineName
    port: int
    model: str | None = None
    name: str | None = None
    bind: str | None = None
    context: int | None = None
    topology: dict[str, int] = field(default_factory=dict)
    nodes: int = 1
    master_port: int | None = None
    args: dict[str, ArgValue] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def find_server(words: Sequence[str]) -> tuple[EngineName, list[str]] | None:
    """Return which engine a command line starts and the words behind its name; None for no server.

    Shells are looked into (`bash -c "cd /x && vllm serve ..."`), other wrappers are skipped.
    """
    for number, word in enumerate(words):
        if word.rpartition("/")[2] in _SHELLS:
            for option, script in zip(words[number + 1 :], words[number + 2 :], strict=False):
                if option.startswith("-") and not option.startswith("--") and "c" in option:
                    return find_server(shell_words(script))
    for start in range(len(words)):
        for engine, spelling in spellings().items():
            for program in spelling.programs:
                found = [word.rpartition("/")[2] for word in words[start : start + len(program)]]
                if found == program and (len(program) > 1 or _is_module(words, start)):
                    return engine, _to_separator(words[start + len(program) :])
    return None


def _is_module(words: Sequence[str], start: int) -> bool:
    return start > 0 and words[start - 1] == "-m"


def _to_separator(words: Sequence[str]) -> list[str]:
    found = []
    for word in words:
        if word in _SEPARATORS or word.startswith((">", "2>", "&>")):
            break
        found.append(word)
    return found


def shell_words(script: str) -> list[str]:
    """Return the words of a shell line as far as quotes tell them apart."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return script.split()


def options(words: Sequence[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the words before the first option, and each option with its values.

    A word that begins with a dash and is no number begins an option.
    """
    before: list[str] = []
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("-") and len(word) > 1 and not _NUMBER.match(word):
            name, equals, value = word.partition("=")
            found.append((name, [value] if equals else []))
        elif found:
            found[-1][1].append(word)
        else:
            before.append(word)
    return before, found


def typed(text: str) -> int | float | str:
    """Return a value as a number where writing that number gives the same text again."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and text not in ("inf", "-inf", "nan"):
            return value
    return text


def read_command(engine: EngineName, words: Sequence[str]) -> Command:
    """Return what the words behind an engine's name say."""
    spelling = spellings()[engine]
    known = {option: key for key, names in spelling.options.items() for option in names}
    before, found = options(words)
    said: dict[str, str] = {}
    if spelling.positional_model and before:
        said["model"] = before[0]
    args: dict[str, ArgValue] = {}
    left_out: list[str] = []
    for option, values in found:
        name = option.replace("_", "-")
        if name in known:
            if values:
                said[known[name]] = values[0]
        elif name in spelling.given_by_us:
            continue
        elif problem := _unfit(option, values):
            left_out.append(problem)
        else:
            args[option.removeprefix("--")] = _value(values)
    numbers = {key: number for key, text in said.items() if (number := _count(text)) is not None}
    master = _count(said.get("master_address", "").rpartition(":")[2])
    return Command(
        engine,
        port=numbers.get("port", spelling.default_port),
        model=said.get("model"),
        name=said.get("name"),
        bind=said.get("bind"),
        context=numbers.get("context"),
        topology={key: numbers[key] for key in ("tp", "dp", "pp", "ep") if key in numbers},
        nodes=numbers.get("nodes", 1),
        master_port=numbers.get("master_port", master),
        args=args,
        left_out=left_out,
    )


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= 10**9 else None


def _value(values: list[str]) -> ArgValue:
    if not values:
        return True
    return typed(values[0]) if len(values) == 1 else list(values)


def _unfit(option: str, values: list[str]) -> str:
    """Return why a campaign cannot hold an option; empty where it can."""
    if not _LONG.fullmatch(option):
        return f"{option}: give the long form of this option"
    secret = values and is_secret_option(option.removeprefix("--"), values[0])
    if secret or any(redact_text(value) != value for value in values):
        return (
            f"{option}: its value looks like a secret; give the engine's variable as "
            "env: { NAME: { secret: NAME } }"
        )
    return ""
