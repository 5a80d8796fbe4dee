"""What the command of a load client of others is made from, and what is known of the client."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Order:
    """A load as a client of others is asked for it.

    Attributes:
        url: `http://HOST:PORT` of the server.
        endpoint: path of its completions endpoint.
        engine: the server's engine.
        model: name that the server answers to.
        tokenizer: file or folder on the load's node.
        isl: prompt tokens.
        osl: output tokens.
        concurrency: requests in flight.
        num_prompts: requests.
        timeout_s: longest that a request may take, for clients that know such a limit.
        seed: decides the prompts; another one for each load.
        request: extra fields of every request.
        folder: where the client's files go, absolute.
    """

    url: str
    endpoint: str
    engine: str
    model: str
    tokenizer: str
    isl: int
    osl: int
    concurrency: int
    num_prompts: int
    timeout_s: float
    seed: int
    request: Mapping[str, Any]
    folder: str


@dataclass(frozen=True)
class Adapter:
    """How one client is run.

    Attributes:
        package: name of the distribution that has it.
        words: its command after the interpreter.
        marks: patterns of the lines with which it begins and ends what it measures.
        pause_s: what this client waits between its first mark and its first request.
        env: variables that it needs; those of the campaign prevail.
    """

    package: str
    words: Callable[[Order], list[str]]
    marks: Mapping[str, str]
    pause_s: float = 0.0
    env: Mapping[str, str] = field(default_factory=dict)


def seed_number(seed: str) -> int:
    """Return a seed as the whole number from 0 to 2^31 - 1 that clients take."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") >> 1
