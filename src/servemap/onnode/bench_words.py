"""Errors of a load specification that options made, in the words of the options."""

import re
from typing import Mapping

from .checked import SpecError

BENCH = {
    r"segments\[1\]\.streams\[1\]\.(isl|osl)": "inject",
    r"(.*\.)?at_s": "inject-at",
    r"warmup\.num_prompts": "warmup",
    r"(.*\.)?prefix_tokens": "prefix-share",
    r"(.*\.)?rate_rps": "rate",
    r"request(\..+)?": "request",
    r"chat\.tools": "tools",
    r"chat(\.roles)?": "chat",
    r"flush(\..+)?": "flush",
    r"(case_)?timeout_s": "timeout",
    r"min_window_s": "min-window",
    r"api_key_env": "api-key-env",
    r"(.*\.)?num_prompts": "num-prompts",
    r"(?:.*\.)?(?P<name>isl|osl|concurrency|arrivals|burstiness)": "",
    r"(?P<name>url|endpoint|model|seed|vocab)": "",
}
"""Key of a specification -> the option that gives it; "": the option is called as its last part."""

CALIBRATE = {
    r"(.*\.)?osl": "tokens",
    r"(.*\.)?num_prompts": "waves",
    r"(.*\.)?concurrency": "concurrency",
    r"answer\.gap_ms.*": "gap-ms",
}
"""The same of `calibrate`."""


def by_option(error: SpecError, options: Mapping[str, str]) -> SpecError:
    """Return the error with the option in the place of the key that it begins with, if it does."""
    key, colon, rest = str(error).partition(": ")
    for pattern, option in options.items():
        found = re.fullmatch(pattern, key)
        if colon and found is not None:
            return SpecError(f"--{option or found['name']}: {rest}")
    return error
