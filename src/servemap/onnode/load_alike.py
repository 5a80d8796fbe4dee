"""Events that repeat an earlier one but for their text: what was read of it holds for them too."""

import re

_TEXT = re.compile(
    r'"(?:text|content|reasoning|reasoning_content)": ?"(?P<text>[^"\\\x00-\x1f]+)(?=")'
)
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')


class Alike:
    """The last event that was read whole, without its first text.

    Two JSON texts that are equal but for the inside of one string, where both have something and
    nothing that JSON escapes (RFC 8259, 7), have the same structure and differ in that string only.
    """

    __slots__ = ("_after", "_before", "kind")

    def __init__(self) -> None:
        self.kind = ""
        self._before = ""
        self._after = ""

    def learn(self, data: str, kind: str) -> None:
        """Take an event as the one that others may repeat; `kind` is what it was found to be."""
        found = _TEXT.search(data)
        if found is not None:
            self.kind = kind
            self._before, self._after = data[: found.start("text")], data[found.end("text") :]

    def repeats(self, data: str) -> bool:
        """Tell whether `data` differs from what was learned in its text only."""
        before, after = self._before, self._after
        return (
            before != ""
            and data.startswith(before)
            and data.endswith(after)
            and _PLAIN.fullmatch(data, len(before), len(data) - len(after)) is not None
        )
