"""Where an error of a campaign is, in the campaign's own names, and which key was meant."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel

_LONGEST = 60
"""A longer `id` is no name, and an error shall stay readable."""


def named(path: Sequence[Any], data: Any) -> list[str]:
    """Return a location with the entries of lists named by their `id` where they have one.

    Args:
        path: keys and positions from the top of `data`.
        data: what the location is in, as it was given.
    """
    found = []
    for step in path:
        below = _below(data, step)
        own = below.get("id") if isinstance(below, dict) and isinstance(step, int) else None
        plain = isinstance(own, str) and 0 < len(own) <= _LONGEST and own.isprintable()
        found.append(str(own) if plain else str(step))
        # A step that is no key of the data is the name of a type that pydantic tried.
        data = data if below is None else below
    return found


def given_steps(path: Sequence[Any], data: Any, missing: bool) -> list[Any]:
    """Return a location without the names of types that pydantic tried there.

    Args:
        path: keys and positions from the top of `data`, and names of types of unions.
        data: what the location is in, as it was given.
        missing: the last step is a key that is not there.
    """
    found = []
    for number, step in enumerate(path):
        below = _below(data, step)
        here = isinstance(data, dict) and step in data
        here = here or (isinstance(data, list) and isinstance(step, int))
        if here or (missing and number == len(path) - 1):
            found.append(step)
            data = below
    return found


def _below(data: Any, step: Any) -> Any:
    try:
        return data[step] if isinstance(data, dict | list) else None
    except (KeyError, IndexError, TypeError):
        return None


def meant(path: Sequence[Any], model: type[BaseModel]) -> str | None:
    """Return the key of the model at this location that is nearest to its last step, or None."""
    here = [model]
    for step in path[:-1]:
        # Pydantic names the kind of an entry, where there are several.
        here = [m for m in here if step in _kinds(m)] or here
        fields = [m.model_fields[step].annotation for m in here if step in m.model_fields]
        # Positions in lists and names of types that pydantic tried are no fields.
        here = [inner for field in fields for inner in _models(field)] or here
    keys = dict.fromkeys(key for one in here for key in one.model_fields)
    return next(iter(difflib.get_close_matches(str(path[-1]), keys, n=1)), None)


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return () if field is None else get_args(field.annotation)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
