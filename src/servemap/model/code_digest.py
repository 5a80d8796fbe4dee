"""A digest of the code that a derive job reaches, so that it reruns when that code changes.

Comments, docstrings and layout do not count: what is hashed is the syntax tree without them. The
code is read and never imported: every planning call asks for these digests.
"""

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from servemap.model.canon import canonical_json

# libyaml where PyYAML was built with it: ten times faster, the same data
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

PACKAGE = "servemap"
ROOT = Path(__file__).parents[2]
"""The folder that the package lies in."""


@dataclass(frozen=True)
class _Source:
    imports: list[str]
    digest: str


@cache
def code_digest(*modules: str) -> str:
    """Return the digest of modules, all of ours that they import, and the tables beside them."""
    reached = _closure(modules)
    lines = [f"{name} {_read(path).digest}" for name, path in sorted(reached.items())]
    folders = {path.parent for path in reached.values()}
    for folder in sorted(folders):
        lines += _tables(folder)
    return _sha256("\n".join(lines))[:16]


@cache
def _tables(folder: Path) -> list[str]:
    """Return a line for each table and template beside the modules of a folder."""
    lines = []
    for table in sorted(folder.glob("*.yaml")):
        content = canonical_json(yaml.load(table.read_text(encoding="utf-8"), Loader=_Loader))
        lines.append(f"{table.name} {_sha256(content)}")
    for template in sorted([*folder.glob("**/*.j2"), *folder.glob("**/*.css")]):
        lines.append(f"{template.name} {_sha256(template.read_text(encoding='utf-8'))}")
    return lines


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _closure(modules: tuple[str, ...]) -> dict[str, Path]:
    reached: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        path = _source_file(name)
        if path is None:
            continue
        reached[name] = path
        waiting += _read(path).imports
    return reached


@cache
def _source_file(module: str) -> Path | None:
    """Return the file of a module or package; None for a name inside a module."""
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


@cache
def _read(path: Path) -> _Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: list[str] = []
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, path)
            imports += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    ours = [name for name in imports if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
    return _Source(ours, _sha256(ast.dump(tree)))


def _origin(node: ast.ImportFrom, path: Path) -> str:
    """Return the absolute name of what a statement imports from; relative ones are below ROOT."""
    if node.level == 0:
        return node.module or ""
    package = path.relative_to(ROOT).parts[: -node.level]
    return ".".join([*package, *filter(None, [node.module])])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements below it, and drop those that are only a text.

    These are docstrings, also those below an assignment. Expressions hold neither them nor imports.
    """
    yield node
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, name, None)
        if isinstance(below, list):
            below[:] = [child for child in below if not _is_text(child)]
            for child in below:
                yield from _statements(child)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
