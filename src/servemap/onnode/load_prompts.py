"""Prompts of token ids and the bytes of the requests that carry them.

Token ids make the input length exact without a tokenizer. No prompt may reuse another's cached
prefix, so the first tokens come from a counter over a shuffled vocabulary and the rest is random.
"""

import hashlib
import json
import random
from typing import Any, Dict, List, NamedTuple, Optional
from urllib.parse import urlsplit

from .checked import SpecError
from .load_spec import Recorded


class Target(NamedTuple):
    """Where requests go: host and port to connect to, path and Host header to send."""

    host: str
    port: int
    path: str
    authority: str


def parse_target(url: str, endpoint: str) -> Target:
    """Split a base URL and an endpoint path; a base that ends in /v1 is not doubled."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise SpecError(f"url: {error}; give http://HOST:PORT") from error
    if parts.scheme == "https":
        raise SpecError(
            f"url: {parts.scheme}://{parts.hostname} needs TLS, which this client does not speak; "
            "use the server's plain http address on a trusted network"
        )
    if parts.scheme != "http" or not parts.hostname:
        raise SpecError("url: give http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise SpecError("url: holds credentials; name an environment variable as api_key_env")
    if parts.query or parts.fragment:
        raise SpecError("url: give it without a query or fragment")
    base = parts.path.rstrip("/")
    if base.endswith("/v1") and endpoint.startswith("/v1/"):
        base = base[: -len("/v1")]
    path = base + endpoint
    host = parts.hostname
    if not (host + path).isascii() or any(char <= " " for char in host + path):
        raise SpecError(f"url: {host + path!r} has characters that a request cannot hold")
    return Target(host, port, path, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


class Prompts:
    """Deterministic prompts for one seed, of token ids as decimal texts or of words.

    `balanced`: each word comes equally often, so that prompts of words which cost different
    numbers of tokens still have nearly the same length.
    """

    def __init__(self, seed: str, words: List[str], balanced: bool = False) -> None:
        self.seed = seed
        self.words = words
        self.balanced = balanced
        self.first = list(self.words)
        random.Random(f"{seed}/first").shuffle(self.first)

    def tokens(self, ordinal: int, isl: int, prefix: int = 0) -> List[str]:
        """Return `isl` of the words; prompts of two ordinals part within a few.

        Ordinals count in the vocabulary's base over the leading positions: for as many
        requests as there are words, no two share even their first one. With `prefix`,
        so many tokens that all prompts share come first, and prompts part after them.
        """
        if prefix:
            shared = random.Random(f"{self.seed}/prefix").choices(self.words, k=prefix)
            return shared + self.tokens(ordinal, isl - prefix)
        words = self._draw(random.Random(f"{self.seed}/{ordinal}"), isl)
        size, place = len(self.first), 0
        rest = ordinal
        while place < isl and (rest or place < 2):
            words[place] = self.first[rest % size]
            rest //= size
            place += 1
        return words

    def replayed(self, ordinal: int, request: Recorded, block_tokens: int) -> List[str]:
        """Return the prompt of a recorded request: alike where the recorded ones were alike."""
        if request.conversation is not None and not request.blocks:
            draw = random.Random(f"{self.seed}/conversation/{request.conversation}")
            return draw.choices(self.words, k=request.isl)
        words: List[str] = []
        for block in request.blocks:
            draw = random.Random(f"{self.seed}/block/{block}")
            words += draw.choices(self.words, k=block_tokens)
        if len(words) >= request.isl:
            return words[: request.isl]
        return words + self.tokens(ordinal, request.isl - len(words))

    def _draw(self, draw: random.Random, count: int) -> List[str]:
        if not self.balanced:
            return draw.choices(self.words, k=count)
        words: List[str] = []
        while len(words) < count:
            words += draw.sample(self.words, min(len(self.words), count - len(words)))
        return words


def request_bytes(
    target: Target,
    content: str,
    osl: int,
    model: str,
    extra: Dict[str, Any],
    request_id: str,
    api_key: Optional[str],
) -> bytes:
    """Serialise one streaming request (HTTP/1.1, keep-alive); `content`: the prompt's members."""
    fields = {"model": model, "max_tokens": osl, "stream": True, **extra}
    fields["stream_options"] = {"include_usage": True, **extra.get("stream_options", {})}
    head = json.dumps(fields, separators=(",", ":"))
    body = f"{head[:-1]},{content}}}".encode("ascii")
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        f"X-Request-Id: {request_id}",
        f"Content-Length: {len(body)}",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


def seed_tag(seed: str) -> str:
    """Short tag of a seed; keeps request ids of two clients at one server apart."""
    return hashlib.sha256(seed.encode("utf-8")).hexdigest()[:8]
