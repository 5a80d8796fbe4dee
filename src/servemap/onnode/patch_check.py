"""Proofs that a patch is in place: a marker, a digest, or an expression over the text."""

import ast
import os
from typing import Any, Callable, Dict, List

from .patch_files import read_bytes, sha256
from .patch_request import PROOFS

_FUNCTIONS: Dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (all, any, bool, enumerate, int, len, max, min, range, set, sorted, str, sum)
}


def evaluate(expression: str, text: str) -> bool:
    """Return the truth of a Python expression over `text`.

    Only the functions above are known, and no name or attribute that begins with an underscore.

    Raises:
        ValueError: the expression is malformed, uses what is not allowed, or fails.
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        for node in ast.walk(tree):
            name = getattr(node, "attr", getattr(node, "id", ""))
            if name.startswith("_") or name in ("format", "format_map"):
                raise ValueError(f"{name!r} is not allowed")
        names = {**_FUNCTIONS, "text": text}
        return bool(eval(compile(tree, "<verify>", "eval"), {"__builtins__": {}, **names}))
    except Exception as error:  # whatever fails in a user's expression is a refusal
        raise ValueError(f"{type(error).__name__}: {error}") from error


def check(target: str, proofs: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return for each proof {"kind", "expected", "file", "ok", "found"}."""
    return [_one(target, proof) for proof in proofs]


def _one(target: str, proof: Dict[str, Any]) -> Dict[str, Any]:
    kind = next(key for key in PROOFS if proof.get(key) is not None)
    path = os.path.join(target, proof["file"]) if proof.get("file") else target
    result = {"kind": kind, "expected": proof[kind], "file": path, "ok": False, "found": None}
    if os.path.commonpath([os.path.realpath(path), os.path.realpath(target)]) != os.path.realpath(
        target
    ):
        return {**result, "found": "lies outside the target"}
    try:
        data = read_bytes(path)
    except OSError as error:
        return {**result, "found": f"cannot be read: {error.strerror}"}
    if kind == "sha256":
        digest = sha256(data)
        return {**result, "ok": digest == proof[kind].lower(), "found": digest}
    text = data.decode("utf-8", "surrogateescape")
    if kind == "marker":
        count = text.count(proof[kind]) if proof[kind] else 0
        return {**result, "ok": count > 0, "found": f"{count} times"}
    try:
        truth = evaluate(proof[kind], text)
    except ValueError as error:
        return {**result, "found": str(error)}
    return {**result, "ok": truth, "found": str(truth)}
