"""The request that a controller sends with a patch command, checked before anything is done."""

import base64
import json
import os
from typing import Any, Dict, List, NamedTuple

from .patch_files import Problem, sha256

SCHEMA = 1
PROOFS = ("marker", "sha256", "python")

_KINDS = ("file", "folder", "diff", "script", "symlink")


class SourceFile(NamedTuple):
    """One file of a patch's source."""

    data: bytes
    mode: int


class Patch(NamedTuple):
    """A patch with its source; `files` by relative path, "" for a single file."""

    id: str
    kind: str
    source: str
    target: str
    root: str
    eol: str
    proofs: List[Dict[str, Any]]
    files: Dict[str, SourceFile]


class Request(NamedTuple):
    """What to do it with: the work folder, the patches in order, where modules are found, and what
    the servers use."""

    work: str
    patches: List[Patch]
    search: List[str]
    uses: List[str]


def parse(text: bytes) -> Request:
    """Return the request of a JSON text.

    Raises:
        Problem: it is not one of this version, or was damaged on its way.
    """
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, this version reads {SCHEMA}")
        return Request(
            os.path.abspath(data["work"]),
            [_patch(item) for item in data.get("patches", [])],
            [os.path.abspath(folder) for folder in data.get("search", [])],
            [os.path.abspath(path) for path in data.get("uses", [])],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(
            f"the request cannot be used: {type(error).__name__}: {error}",
            "standard input",
            "use a controller and an agent of one version",
        ) from error


def _patch(item: Dict[str, Any]) -> Patch:
    texts = {key: item[key] for key in ("id", "kind", "source", "target", "root", "eol")}
    for key, value in texts.items():
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(f"{key} is {value!r}")
    if texts["kind"] not in _KINDS:
        raise ValueError(f"kind {texts['kind']!r}")
    for proof in item["verify"]:
        if sum(isinstance(proof.get(kind), str) for kind in PROOFS) != 1:
            raise ValueError(f"a proof of {texts['id']} is {proof!r}")
    files = {file["path"]: _source(file) for file in item["files"]}
    single = texts["kind"] in ("file", "diff", "script")
    if single != (list(files) == [""]) or (texts["kind"] == "symlink" and files):
        raise ValueError(f"the source of {texts['id']} is not that of a {texts['kind']}")
    return Patch(**texts, proofs=item["verify"], files=files)


def _source(file: Dict[str, Any]) -> SourceFile:
    data = base64.b64decode(file["data"], validate=True)
    if sha256(data) != file["sha256"]:
        raise ValueError(f"the bytes of {file['path']!r} have another sha256")
    return SourceFile(data, int(file["mode"]) & 0o777)
