"""The class of a kernel or operator, by its name, from `kernel_classes.yaml`."""

import re
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, TypeAdapter

from servemap.model.base import Model, Slug

WorkKind = Literal["compute", "communication", "copy"]
UNMATCHED = "unmatched"

_SEARCHED = 1000
"""Characters of a name that are looked at; a longer search could take very long."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]


class KernelClass(Model):
    """One entry of `kernel_classes.yaml`, whose head explains the keys."""

    id: Slug
    means: str = Field(min_length=1)
    kind: WorkKind
    patterns: tuple[Pattern, ...] = Field(min_length=1, strict=False)


def check_classes(document: object) -> tuple[KernelClass, ...]:
    """Return the classes of a table; pydantic.ValidationError or ValueError where it is wrong."""
    classes = TypeAdapter(tuple[KernelClass, ...]).validate_python(document)
    ids = [one.id for one in classes]
    if len(set(ids)) < len(ids) or UNMATCHED in ids:
        raise ValueError(f"each class needs an id of its own, other than {UNMATCHED!r}")
    return classes


@cache
def kernel_classes() -> tuple[KernelClass, ...]:
    """Return the classes in order of the table; `unmatched` is none of them."""
    text = files(__package__).joinpath("kernel_classes.yaml").read_text(encoding="utf-8")
    return check_classes(yaml.safe_load(text))


@cache
def _searches() -> tuple[re.Pattern[str], ...]:
    return tuple(
        re.compile("|".join(f"(?:{pattern})" for pattern in one.patterns), re.IGNORECASE)
        for one in kernel_classes()
    )


@cache
def class_of(name: str) -> int:
    """Return the index of a name's class in `kernel_classes`, or their number for unmatched."""
    for index, search in enumerate(_searches()):
        if search.search(name, 0, _SEARCHED):
            return index
    return len(kernel_classes())


def class_ids() -> list[str]:
    """Return the ids of all classes, `unmatched` last."""
    return [*(one.id for one in kernel_classes()), UNMATCHED]


def class_kinds() -> list[WorkKind]:
    """Return the kind of each class of `class_ids`; what is unmatched counts as compute."""
    return [*(one.kind for one in kernel_classes()), "compute"]


def classes_of(names: list[str], used: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Return the class of each row, given its index into `names`."""
    table = np.full(len(names), len(kernel_classes()), np.int32)
    for index in np.unique(used):
        table[index] = class_of(names[index])
    found: NDArray[np.int32] = table[used]
    return found
