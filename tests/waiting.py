"""How tests wait on a machine that may stand still for a while: for events, never for a time."""

import time
from collections.abc import Callable, Iterator
from typing import Any

WAIT_S = 60.0
"""How long one waits for what is to happen; only a test that fails waits so long."""


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of `condition`."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


def longer(first_s: float) -> Iterator[float]:
    """Give limits to try until what must happen before the limit had the time for it.

    A test of what a limit ends needs something to have begun before; on a busy machine it has not
    always. The test stops at the first limit that was long enough, and checks what came of it.
    """
    for factor in (1, 5, 25):
        yield first_s * factor
