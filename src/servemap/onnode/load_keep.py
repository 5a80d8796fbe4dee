"""Answers that ended, kept until the window does: as they came, or packed where they are many."""

from collections import deque
from typing import Deque

from .load_http import Response

HELD_BYTES = 256 * 2**20
PIECE_BYTES = 90
"""What a piece takes besides its bytes: the heads of two objects and their places in lists."""


class Keep:
    """Answers that ended and are not packed, oldest first.

    Up to `HELD_BYTES` they stay as they came, so that a usual run spends no time on them.
    """

    def __init__(self) -> None:
        self._waiting: Deque[Response] = deque()
        self._held_bytes = 0

    def add(self, response: Response) -> None:
        """Take an answer that ended."""
        self._waiting.append(response)
        self._held_bytes += _size(response)

    def crowded(self) -> bool:
        """Tell whether spare time should go into packing."""
        return self._held_bytes > HELD_BYTES and len(self._waiting) > 0

    def pack_one(self) -> None:
        """Pack the oldest answer."""
        response = self._waiting.popleft()
        self._held_bytes -= _size(response)
        response.pack()


def _size(response: Response) -> int:
    return response.read_bytes + PIECE_BYTES * len(response.pieces)
