"""A campaign file as text: commented YAML from what is known, `CHANGE` where it is not."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.files import regular

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.@-]*")
_SLUG = re.compile(r"[^a-z0-9_-]+")


def inline(value: Any) -> str:
    """Return a value as YAML on one line, read as the same by every YAML reader.

    Texts that are not plain words are quoted: some readers take `1e5` or `on` for something else.
    """
    if isinstance(value, str):
        resolved = yaml.safe_load(value) if _PLAIN.fullmatch(value) else None
        return value if resolved == value else _quoted(value)
    if isinstance(value, Mapping):
        pairs = (f"{inline(str(key))}: {inline(item)}" for key, item in value.items())
        return "{ " + ", ".join(pairs) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, float):
        return yaml.safe_dump(value).splitlines()[0]  # 1.0e-05: without a dot it would be a text
    return json.dumps(value)


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', width=math.inf, allow_unicode=True).rstrip()


def comment(text: str) -> str:
    """Return a text that can stand behind `#`: one line of printable letters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def slug(text: str, fallback: str = "server") -> str:
    """Return a name made of what ids may hold."""
    return _SLUG.sub("-", text.lower()).strip("-_")[:64].strip("-_") or fallback


def unique_slugs(texts: Iterable[str]) -> list[str]:
    """Return a different id for each text."""
    found: list[str] = []
    for text in texts:
        name, number = slug(text, "node"), 2
        while name in found:
            name = f"{slug(text, 'node')[:58]}-{number}"
            number += 1
        found.append(name)
    return found


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("servemap.prepare"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    environment.filters.update(yaml=inline, comment=comment)
    return environment


def render_draft(template: str, **values: Any) -> str:
    """Return a campaign's text from a template of this package, checked as Snakemake would.

    Raises:
        ConfigError: what was found does not make a campaign; it names the key.
    """
    text = _environment().get_template(template).render(values)
    load_context(yaml.safe_load(text))
    return text


def write_draft(path: Path, text: str, force: bool) -> None:
    """Write a campaign file.

    Raises:
        ConfigError: it is there already and is not to be replaced.
    """
    try:
        with open(path, "w" if force else "x", encoding="utf-8", opener=regular) as handle:
            handle.write(text)
    except FileExistsError as error:
        raise ConfigError(
            "the file is there already", str(path), "give another -o, or --force to replace it"
        ) from error
