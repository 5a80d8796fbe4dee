"""Patches of a variant on its nodes: ship the sources, apply, prove, take back.

The work is done by the agent on the node (`onnode/patch.py`), which keeps a journal and the
originals in a work folder. Two work folders with one parent never patch the same path at a time,
so that neither takes the other's patch for the original.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servemap.model.errors import PatchError
from servemap.model.files import parse_json, read_bytes
from servemap.model.protocol import SCHEMA
from servemap.model.server_spec import PatchSpec
from servemap.nodes.base import Completed, Node
from servemap.onnode.patch_claims import taken

Record = dict[str, Any]

_TIMEOUT_S = 300
_SCRIPT_TIMEOUT_S = 660
"""Longer than the agent's own limit for a script, which then reports what the script said."""


def lint_patches(node: Node, patches: list[PatchSpec], work: str) -> None:
    """Check that all patches would apply to the original files, changing nothing.

    Raises:
        PatchError: names every patch that would not: CRLF line ends, a target that is missing,
            outside its root or installed twice, a source that is missing or does not fit.
    """
    _ask(node, "lint", work, patches)


def apply_patches(
    node: Node,
    patches: list[PatchSpec],
    work: str,
    search: Sequence[str] = (),
    uses: Sequence[str] = (),
) -> Record:
    """Bring exactly these patches into place on a node, in order, and prove each.

    Patches of another set are taken back first; no patches at all means the originals. What is
    already in place is proven and not written again. `search` are the folders that the server
    imports from: another copy of a patched file there is refused. `uses` are the files and folders
    that the campaign's servers use: a patch of another campaign there is refused.

    Returns:
        {"schema", "node", "status": "ok", "changed", "order": [ID], "patches": {ID: {"kind",
        "target", "files": [{"path", "sha256_before", "sha256_after", "mode_before", "mode_after",
        "goal_before", "goal_after"}], "verified": [{"kind", "expected", "file", "ok", "found"}],
        "changed"}}, "others": [{"path", "work", "used"}]}; `others` are patches of other campaigns;
        a sha256 is null where there is no file, `goal_*` belong to links.

    Raises:
        PatchError: a patch does not lint, apply or verify (the originals are back then), or
            somebody else changed a target, or another campaign patched one of `uses` (nothing was
            written then).
    """
    return _ask(node, "apply", work, patches, search, uses)


def verify_patches(node: Node, patches: list[PatchSpec], work: str) -> Record:
    """Say whether exactly these patches are in place, changing nothing.

    Returns:
        {"schema", "node", "status": "ok", "in_place", "standing": applied | unpatched | other_set
        | interrupted | foreign, "files": [{"path", "place"}], "verified": {ID: [...]}}.

    Raises:
        PatchError: a source is missing here, or the node's record of patches cannot be used.
    """
    return _ask(node, "verify", work, patches)


def restore_all(node: Node, work: str) -> Record:
    """Put all originals back, last patch first.

    Returns:
        {"schema", "node", "status": "ok", "changed", "files": [{"path", "sha256", "expected",
        "found", "ok", "gone"}]}, the proof by type, sha256, mode and goal; `gone` where the folder
        that held it was removed since. Where no patch is in place, `changed` is false and the
        proof is that of the last time.

    Raises:
        PatchError: somebody else changed a target (nothing was written then), or an original did
            not come back.
    """
    return _ask(node, "restore", work, [])


def active_set(node: Node, work: str) -> Record:
    """Say which patches are in place on a node.

    Returns:
        {"schema", "node", "status": "ok", "patches": [ID], "standing": none | applied | unpatched
        | interrupted | foreign, "files": [{"path", "place"}]}.
    """
    return _ask(node, "status", work, [])


def patched_by_others(node: Node, work: str, uses: Sequence[str]) -> list[Record]:
    """Say on which paths of a node patches of other campaigns stand.

    Returns:
        [{"path", "work", "used"}]; `used` where the path is one of `uses` or below one.

    Raises:
        PatchError: the node's notes of patched paths cannot be read.
    """
    found: list[Record] = _ask(node, "others", work, [], uses=uses)["others"]
    return found


def refuse_others(node: Node, work: str, uses: Sequence[str]) -> None:
    """Refuse to take what another campaign patched for the original.

    Raises:
        PatchError: names the path and the run that patched it.
    """
    used = [one for one in patched_by_others(node, work, uses) if one["used"]]
    if used:
        raise _refused(node, [taken(one["path"], one["work"]).as_json() for one in used])


def request(
    patches: list[PatchSpec], work: str, search: Sequence[str] = (), uses: Sequence[str] = ()
) -> Record:
    """Return what is sent to the agent: the patches with the contents of their sources.

    Raises:
        PatchError: a source is missing or is not what its kind asks for; an id is used twice.
    """
    for name, count in Counter(patch.id for patch in patches).items():
        if count > 1:
            raise PatchError(
                f"patch id {name!r} is used {count} times",
                "server.patches",
                "give each patch of a variant an id of its own",
            )
    return {
        "schema": SCHEMA,
        "work": work,
        "patches": [{**_parts(patch), "files": _files(patch)} for patch in patches],
        "search": list(search),
        "uses": list(uses),
    }


def _parts(patch: PatchSpec) -> dict[str, Any]:
    parts = patch.model_dump(mode="json", exclude_none=True)
    return {**parts, "verify": parts.get("verify", [])}


def _files(patch: PatchSpec) -> list[dict[str, Any]]:
    source = Path(patch.source)
    if patch.kind == "symlink":
        return []
    try:
        if patch.kind != "folder":
            return [_file(source, "")]
        found = sorted(item for item in source.rglob("*") if "__pycache__" not in item.parts)
        links = [item for item in found if item.is_symlink()]
        if links:
            raise _unusable(patch, f"{links[0]} is a link", "give real files")
        files = [_file(item, str(item.relative_to(source))) for item in found if item.is_file()]
    except OSError as error:
        raise _unusable(
            patch,
            f"the source {error.filename or source} cannot be read: {error.strerror}",
            f"give a {'folder' if patch.kind == 'folder' else 'file'}, relative to the folder "
            "that the campaign is run from",
        ) from error
    if not files:
        raise _unusable(patch, f"the source {source} is no folder with files", "name one")
    return files


def _file(path: Path, name: str) -> dict[str, Any]:
    data = read_bytes(path)
    return {
        "path": name,
        "mode": path.stat().st_mode & 0o777,
        "sha256": hashlib.sha256(data).hexdigest(),
        "data": base64.b64encode(data).decode("ascii"),
    }


def _unusable(patch: PatchSpec, what: str, remedy: str) -> PatchError:
    return PatchError(what, f"patches.{patch.id}.source", remedy)


def _ask(
    node: Node,
    command: str,
    work: str,
    patches: list[PatchSpec],
    search: Sequence[str] = (),
    uses: Sequence[str] = (),
) -> Record:
    scripts = sum(patch.kind == "script" for patch in patches)
    done = node.run(
        node.agent_argv("patch", command),
        timeout_s=_TIMEOUT_S + scripts * _SCRIPT_TIMEOUT_S,
        input=json.dumps(request(patches, work, search, uses)),
    )
    answer = _answer(node, done)
    if not answer.pop("ok"):
        raise _refused(node, answer["problems"])
    return {**answer, "schema": SCHEMA, "node": node.name, "status": "ok"}


def _answer(node: Node, done: Completed) -> Record:
    try:
        answer: Record = parse_json(done.stdout)
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise PatchError(
            f"the agent gave no answer (exit status {done.code}): {last}",
            f"node {node.name}",
            "check the node's Python (3.8 or newer) and its work folder",
        ) from error
    return answer


def _refused(node: Node, problems: Sequence[Mapping[str, Any]]) -> PatchError:
    first = problems[0]
    more = "".join(f"; {item['where']}: {item['what']}" for item in problems[1:])
    return PatchError(first["what"] + more, f"{first['where']} (node {node.name})", first["remedy"])
