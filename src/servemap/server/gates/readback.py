"""The read-back gate: what the spec asked for against what the server says is in force."""

import math
import re
from collections.abc import Mapping
from typing import Any

from servemap.engines.base import Attachable, Effective
from servemap.model.server_spec import ModelSpec, ServerSpec
from servemap.onnode.ask import shorten
from servemap.server.gates.checks import Check

_REMEDIES = {
    "context": "the engine cannot hold longer sequences: lower settings.context and model.context, "
    "or give the KV cache more room",
    "attention_backend": "the engine took another one: its log says why; install what it misses, "
    "or ask for the one that it took",
    "cuda_graph": "the engine runs without graphs where it was asked for them, or the other way: "
    "its log says why; set settings.cuda_graph to what is meant to be measured",
}
_OTHERWISE = "its log says why; ask for what it takes, or mend what keeps it from it"
# One backend has several names in the versions of one engine.
_SAME = {"FLASHATTENTION": "FLASHATTN", "FLASHATTENTION2": "FLASHATTN", "FA2": "FLASHATTN"}


def read_back(
    adapter: Attachable, server: ServerSpec, model: ModelSpec, effective: Effective
) -> list[Check]:
    """Return the checks of a server that has answered (see `compare`)."""
    return compare(adapter.asked(server, model), effective)


def compare(asked: Mapping[str, Any], effective: Effective) -> list[Check]:
    """Return a failed check for each setting that differs, and one that sums up the others.

    What the engine does not say has no answer, and so has a line of its log that says that it
    does something else than it was asked, where no setting differs by it.

    Args:
        asked: settings of the spec by name.
        effective: what the server says.
    """
    said = effective.settings
    wrong = {key for key in asked if key in said and not agrees(key, asked[key], said[key])}
    checks = [
        Check(
            f"settings.{key}",
            False,
            f"asked {asked[key]}, got {said[key]}",
            _REMEDIES.get(key, _OTHERWISE),
        )
        for key in asked
        if key in wrong
    ]
    right = [f"{key} {said[key]}" for key in asked if key in said and key not in wrong]
    silent = [f"{key} {asked[key]}" for key in asked if key not in said]
    if right or silent:
        parts = [f"as asked: {', '.join(right)}"] if right else []
        parts += [f"asked, and not said by the server: {', '.join(silent)}"] if silent else []
        checks.append(Check("settings", None if silent else True, "; ".join(parts)))
    checks += [Check("settings.note", None, shorten(note, 300)) for note in effective.notes]
    return checks


def agrees(key: str, asked: Any, said: Any) -> bool:
    """Return whether a setting is in force; a longer context than was asked for is none too few."""
    if isinstance(asked, bool) or isinstance(said, bool):
        return asked is said
    if isinstance(asked, int | float) and isinstance(said, int | float):
        if key == "context":
            return said >= asked
        return asked == said or _close(asked, said)
    one, other = _plain(asked), _plain(said)
    # A type of which there are several is asked for by its short name: fp8 is fp8_e4m3.
    return one == other or (key == "kv_dtype" and other.startswith(one))


def _close(one: float, other: float) -> bool:
    try:
        return isinstance(one + other, float) and math.isclose(one, other, rel_tol=1e-6)
    except OverflowError:
        return False


def _plain(value: Any) -> str:
    text = re.sub(r"[^A-Z0-9]", "", str(value).upper())
    return _SAME.get(text, text)
