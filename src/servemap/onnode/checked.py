"""A JSON object whose keys are taken one by one, each checked; errors are one line for people."""

import json
from typing import Any, Dict, List, NoReturn, Optional

MAX_COUNT = 10_000_000
MOST_TOKENS = 100_000_000
"""A server's count of tokens is a whole number from 0 to this, more than any context holds."""


class SpecError(Exception):
    """The input asks for something that cannot be done: the key, the value and the remedy."""


def refuse(where: str, value: Any, remedy: str) -> NoReturn:
    """Raise SpecError for the value at the key `where`."""
    shown = json.dumps(value, default=repr)
    raise SpecError(f"{where}: {shown[:80]} is refused: {remedy}")


def read_json(path: str) -> Any:
    """Read the JSON file `path`; raises SpecError."""
    try:
        with open(path, encoding="utf-8") as handle:
            return json.load(handle)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path}: is not JSON ({error})") from error


def seconds(value: Any, where: str, above: Optional[float] = None) -> float:
    """Check a number of seconds from 0, or more than `above`, to 1e7; raises SpecError."""
    return number(value, where, 1e7, above, "a number of seconds")


def number(value: Any, where: str, below: float, above: Optional[float], what: str) -> float:
    """Check a number from 0, or more than `above`, to less than `below`; raises SpecError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(where, value, f"give {what}")
    if not 0 <= value < below or (above is not None and value <= above):
        refuse(where, value, f"give {what} in range")
    return float(value)


class Table:
    """A JSON object; `finish` refuses the keys that nobody took. All methods raise SpecError."""

    def __init__(self, raw: Any, where: str, whole: str = "load spec") -> None:
        self.where = where
        if not isinstance(raw, dict):
            refuse(where or whole, raw, "give an object")
        self.left: Dict[str, Any] = dict(raw)

    def key(self, name: str) -> str:
        """Return the whole name of a key."""
        return f"{self.where}.{name}" if self.where else name

    def get(self, name: str, default: Any = None) -> Any:
        """Take a value as it is."""
        return self.left.pop(name, default)

    def text(self, name: str, default: Optional[str] = None) -> str:
        """Take a printable text that is not empty."""
        value = self.get(name, default)
        if not isinstance(value, str) or not value or not value.isprintable():
            refuse(self.key(name), value, "give a printable text that is not empty")
        return value

    def optional_text(self, name: str) -> Optional[str]:
        """Take a text that may be absent or null."""
        return self.text(name) if self.left.get(name) is not None else self.get(name)

    def choice(self, name: str, choices: List[str], default: Optional[str] = None) -> str:
        """Take one of some words."""
        value = self.get(name, default)
        if value not in choices:
            refuse(self.key(name), value, f"give one of: {', '.join(choices)}")
        return str(value)

    def whole(self, name: str, default: Optional[int] = None, least: int = 1) -> int:
        """Take a whole number from `least` on."""
        value = self.get(name, default)
        good = isinstance(value, int) and not isinstance(value, bool)
        if not good or not least <= value <= MAX_COUNT:
            refuse(self.key(name), value, f"give a whole number from {least} to {MAX_COUNT}")
        return int(value)

    def optional_whole(self, name: str, least: int = 1) -> Optional[int]:
        """Take a whole number that may be absent or null."""
        return self.whole(name, least=least) if self.left.get(name) is not None else self.get(name)

    def flag(self, name: str, default: bool) -> bool:
        """Take true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            refuse(self.key(name), value, "give true or false")
        return value

    def number(
        self, name: str, default: Optional[float] = None, above: Optional[float] = None
    ) -> float:
        """Take a number of seconds."""
        return seconds(self.get(name, default), self.key(name), above)

    def finish(self) -> None:
        """Refuse what is left."""
        for name, value in self.left.items():
            refuse(self.key(name), value, "this key is not known; remove it")
