"""Lines that name a failure or the cause of a slower path, by the table nccl_findings.yaml."""

import re
from functools import cache
from importlib.resources import files

import yaml

# Words of which one is in every line that the table knows; a cheap look before the patterns.
_HINT = re.compile(
    r"shm|shared memory|interface found|Got completion|async fatal|libibverbs|No device found"
    r"|failure|ersion mismatch|version detected|onnection |Model weights|become ready"
)


@cache
def _table() -> list[tuple[str, re.Pattern[str]]]:
    text = files("servemap.parsers.communication").joinpath("nccl_findings.yaml")
    entries: list[dict[str, str]] = yaml.safe_load(text.read_text(encoding="utf-8"))
    return [(entry["class"], re.compile(entry["pattern"])) for entry in entries]


def may_be_finding(information: str) -> bool:
    """Return whether a message of NCCL that is no warning can be one of the table."""
    return information.startswith(("Failed", "NET/IB"))


def finding_of(line: str) -> str | None:
    """Return the class of the finding that a line is, None for most lines."""
    if not _HINT.search(line):
        return None
    return next((name for name, pattern in _table() if pattern.search(line)), None)
