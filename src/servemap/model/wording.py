"""What is wrong with a value of the campaign file, in words instead of pydantic's."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from servemap.model.secret_names import is_secret_option
from servemap.model.spelling import given_steps, meant, named

REMEDIES = {
    "extra_forbidden": "remove the key or mend its spelling; config/README.md lists all keys",
    "missing": "add the key; config/README.md says what it means",
}
OTHER_REMEDY = "give a value that the key allows (config/README.md)"

_UNIONS = {
    "args": "must be true, false, a number, text or a list of texts",
    "env": "must be text or {secret: NAME}; quote numbers, true and false",
    "request": "must be true, false, a number or text",
}
"""Free-form mappings below `server` whose values may have several types."""

_SHOULD = re.compile(r"^(?:Input|String|Value|List|Dictionary|Tuple) should ")
_AFTER = re.compile(r" after validation, not (\d+)$")


def say_problem(problem: Any) -> str:
    """Return what is wrong with the value that one of pydantic's errors is about."""
    kind = problem["type"]
    if kind == "extra_forbidden":
        return "unknown key"
    if kind == "missing":
        return "is missing"
    if kind == "union_tag_invalid":
        return f"must be one of {problem['ctx']['expected_tags']}"
    if kind == "union_tag_not_found":
        return "must be a mapping with the keys of a case"
    if kind in ("model_type", "dict_type"):
        return "must be a mapping of keys to values"
    text = _SHOULD.sub("must ", problem["msg"].removeprefix("Value error, "))
    text = text.partition(", unable to")[0]
    return _AFTER.sub(r", not \1", text)


def say_problems(
    problems: Iterable[Any],
    prefix: str = "",
    data: Any = None,
    model: type[BaseModel] | None = None,
) -> list[tuple[str, str, str]]:
    """Return the key, the whole line and the remedy of each error, one for each value.

    Args:
        problems: pydantic's errors.
        prefix: what stands before their keys, such as `server.`.
        data: what was checked, which names the entries of lists.
        model: what it was checked by, which knows the keys that may have been meant.
    """
    found: dict[str, tuple[str, str, str]] = {}
    tried: dict[str, list[str]] = {}
    for problem in problems:
        kind = problem["type"]
        steps = [part for part in problem["loc"] if part != "[key]"]
        kept = steps if data is None else given_steps(steps, data, kind == "missing")
        location = named(kept, data)
        remedy = REMEDIES.get(kind, OTHER_REMEDY)
        if kind == "extra_forbidden" and model is not None and (key := meant(steps, model)):
            remedy = f"did you mean {key}? config/README.md lists all keys"
        above = prefix.split(".")[:-1]
        path, typed = [*above, *location], [*above, *named(steps, data)]
        value, said = problem["input"], say_problem(problem)
        if typed[0] == "server" and len(typed) > 3 and typed[1] in _UNIONS:
            # One error for each type that it might have been.
            path, said = typed[:3], _UNIONS[typed[1]]
            kind, remedy = "union", OTHER_REMEDY
        if len(typed) > 6 and typed[0] == "grids" and typed[4] == "values":
            path, said = typed[:6], _UNIONS["args"] + ", or null"
            kind, remedy = "union", OTHER_REMEDY
        if kind == "union_tag_invalid":
            path, value = [*path, "kind"], problem["ctx"]["tag"]
        key = ".".join(path)
        if kind != "union" and kept != steps and steps[-1] not in kept[-1:]:
            # What one of the types that a value may have says of the value itself.
            words = tried.setdefault(key, [])
            words.append(said.removeprefix("must be "))
            if len(words) > 1:
                said = f"must be {' or '.join(dict.fromkeys(words))}"
                del found[key]
        rule = kind == "value_error" and isinstance(value, dict)  # of several keys together
        hidden = rule or kind in ("missing", "union") or is_secret_option(path[-1], value)
        shown = "" if hidden else f" (value: {_short(value)})"
        found.setdefault(key, (key, f"{key}: {said}{shown}", remedy))
    # Of a mapping that has a key at fault, no other type was meant.
    return [
        line
        for key, line in found.items()
        if key not in tried or not any(other.startswith(f"{key}.") for other in found)
    ]


def _short(value: Any) -> str:
    text = repr(_without_secrets(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "***" if is_secret_option(str(key), item) else _without_secrets(item)
            for key, item in value.items()
        }
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value
