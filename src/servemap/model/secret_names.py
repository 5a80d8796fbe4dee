"""Which names stand for a secret, so that its value must not lie in a campaign file.

The rule for variables is that of the agent's redaction (`onnode/redact.py`), so that what would be
hidden in a record is refused in the file. A partition key (NCCL_IB_PKEY) is no secret.
"""

import re

_NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(?<!_P)KEY(?:S|_?ID)?(?:_|$)"
    r"|(?:^|_)(?:AUTH|PASS|PAT)(?:_|$)"
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_COUNT_NAME = re.compile(r"TOKENS(?:_|$)")
_TOKEN_IDS = re.compile(r"TOKEN_IDS?(?:_|$)")


def is_secret_name(name: str) -> bool:
    """Return whether a value of this name may be a secret."""
    return _NAME.search(name.upper().replace("-", "_")) is not None


def is_secret_variable(name: str, value: str) -> bool:
    """Return whether an environment variable's value is a secret by its name.

    A number under a name of TOKENS is a limit (VLLM_MAX_NUM_BATCHED_TOKENS), not a secret.
    """
    upper = name.upper().replace("-", "_")
    if _NUMBER.fullmatch(value):
        upper = _COUNT_NAME.sub("", upper)
    return bool(value) and is_secret_name(upper)


def is_secret_option(name: str, value: object) -> bool:
    """Return whether an option's or a request field's value is a secret by its name.

    Switches, token ids and files that hold the secret are none.
    """
    upper = name.upper().replace("-", "_")
    if isinstance(value, bool) or upper.endswith(("_FILE", "_PATH")):
        return False
    return is_secret_variable(_TOKEN_IDS.sub("", upper), str(value))
