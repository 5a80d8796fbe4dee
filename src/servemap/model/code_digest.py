"""A digest of the code that a derive job reaches, so that it reruns when that code changes.

Comments, docstrings and layout do not count: what is hashed is the syntax tree without them.
"""

import ast
import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import yaml

from servemap.model.canon import canonical_json

PACKAGE = "servemap"


@cache
def code_digest(*modules: str) -> str:
    """Return the digest of modules, all of ours that they import, and the tables beside them."""
    reached = _closure(modules)
    lines = [f"{name} {_tree_digest(path)}" for name, path in sorted(reached.items())]
    folders = {path.parent for path in reached.values()}
    for folder in sorted(folders):
        for table in sorted(folder.glob("*.yaml")):
            content = canonical_json(yaml.safe_load(table.read_text(encoding="utf-8")))
            lines.append(f"{table.name} {_sha256(content)}")
        for template in sorted([*folder.glob("**/*.j2"), *folder.glob("**/*.css")]):
            lines.append(f"{template.name} {_sha256(template.read_text(encoding='utf-8'))}")
    return _sha256("\n".join(lines))[:16]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _closure(modules: tuple[str, ...]) -> dict[str, Path]:
    reached: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        path = _source(name)
        if path is None:
            continue
        reached[name] = path
        waiting += _imports(path)
    return reached


@cache
def _source(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name == PACKAGE or name.startswith(f"{PACKAGE}.")]


class _WithoutTexts(ast.NodeTransformer):
    """Drops statements that are only a text: docstrings, also those below an assignment."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else node


def _tree_digest(path: Path) -> str:
    return _sha256(ast.dump(_WithoutTexts().visit(_parse(path))))
