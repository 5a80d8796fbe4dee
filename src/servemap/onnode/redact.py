"""Takes secrets out of what is recorded: by a variable's name, a value's look, and known values."""

import json
import re
from typing import Any, Iterable, Optional, Pattern, Set, Tuple

REDACTED = "<redacted>"

_NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|KEY(?:S|_?ID)?(?:_|$)"
    r"|(?:^|_)(?:AUTH|PASS|PAT)(?:_|$)"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_COUNT_NAME = re.compile(r"TOKENS(?:_|$)")

# Well-known shapes of credentials, wherever they stand in a text.
_VALUES = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}"
    r"|\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{8,}|\bgithub_pat_\w{8,}|\bglpat-[\w-]{8,}"
    r"|\bnvapi-[\w-]{8,}|\bxox[abeprs]-[\w-]{8,}|\bAIza[\w-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\beyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# (what introduces a secret, the secret itself); each begins at the start of a run of its letters,
# so that a long line of dashes takes time in proportion to its length
_BEARER = re.compile(r"(\b(?:bearer|basic)\s+)[^\s\"',]+", re.IGNORECASE)
_URL = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]+://)[^\s/@\"']+@")
_OPTION = re.compile(
    r"((?<![\w-])(?=\w*-)[\w-]*[-_](?:api[-_]?key|key|token|secret|password|passwd)(?:=|\s+))"
    r"(?:\"[^\"]*\"|'[^']*'|\S+)",
    re.IGNORECASE,
)
_ASSIGNMENT = re.compile(
    r"(\b[A-Z][A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|KEY)=)(?:\"[^\"]*\"|'[^']*'|\S+)"
)


SHORTEST_HIDDEN = 6
"""A shorter value would take ordinary words out of every record."""

_hidden: Set[str] = set()
_hidden_pattern: Optional[Pattern[str]] = None


def hide(values: Iterable[str]) -> None:
    """Have `redact_text` replace these values too, from now on and in this process."""
    global _hidden_pattern
    for value in values:
        forms = [value, value.strip(), *value.splitlines(), json.dumps(value)[1:-1]]
        _hidden.update(form for form in forms if len(form.strip()) >= SHORTEST_HIDDEN)
    if _hidden:
        longest_first = sorted(_hidden, key=len, reverse=True)
        _hidden_pattern = re.compile("|".join(map(re.escape, longest_first)))


def hidden_values() -> Tuple[str, ...]:
    """Return what `hide` was told."""
    return tuple(_hidden)


def redact_value(value: Any) -> Any:
    """Return a value of JSON with every text in it redacted, names too."""
    if isinstance(value, dict):
        return {redact_value(key): redact_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_value(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Return `text` with everything that is known to be or looks like a credential replaced."""
    if _hidden_pattern is not None:
        text = _hidden_pattern.sub(REDACTED, text)
    text = _VALUES.sub(REDACTED, text)
    text = _URL.sub(r"\1" + REDACTED + "@", text)
    for pattern in (_BEARER, _OPTION, _ASSIGNMENT):
        text = pattern.sub(r"\1" + REDACTED, text)
    return text


def redact_variable(name: str, value: str) -> str:
    """Return the value of an environment variable as it may be recorded.

    A number under a name of TOKENS is a limit (VLLM_MAX_NUM_BATCHED_TOKENS), not a secret.
    """
    upper = name.upper()
    if _NUMBER.fullmatch(value):
        upper = _COUNT_NAME.sub("", upper)
    if value and _NAME.search(upper):
        return REDACTED
    return redact_text(value)
