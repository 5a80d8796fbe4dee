"""Linting, applying and verifying a set of patches."""

import json
import os
from typing import Any, Dict, List, Optional

from . import patch_script
from .patch_check import check
from .patch_copies import copy_problems
from .patch_files import Problem, State, read_bytes, sha256, state_of
from .patch_journal import Entry, Journal
from .patch_others import others, refuse_used
from .patch_plan import Change, interpreter, plan
from .patch_request import Patch, Request

Answer = Dict[str, Any]


def lint(journal: Journal, request: Request) -> Answer:
    """Return the problems of all patches, judged against the original files."""
    ahead: Dict[str, Optional[bytes]] = {}
    unknown = set()

    def content(path: str) -> Optional[bytes]:
        if path not in ahead:
            ahead[path] = journal.original_bytes(path)
        return ahead[path]

    problems = []
    for patch in request.patches:
        try:
            for change in plan(patch, content):
                if change.data is not None:
                    ahead[change.path] = change.data
                elif change.goal is None:
                    unknown.add(change.path)
        except Problem as problem:
            # what a diff meets after a script is known only when the script has run
            if not (patch.kind == "diff" and os.path.realpath(patch.target) in unknown):
                problems.append(problem.as_json())
    return _linted(problems + copy_problems(request))


def _linted(problems: List[Dict[str, Any]]) -> Answer:
    return {"ok": not problems, "problems": problems}


def apply(journal: Journal, request: Request) -> Answer:
    """Bring exactly these patches into place, in order, taking back others first.

    Raises:
        Problem: then no patch is in place, or somebody else changed a target or another work
            folder patched what the servers use, and nothing was done.
    """
    patches = request.patches
    foreign = others(request.work, request.uses)
    refuse_used(foreign)
    if journal.set_sha256 == _set_sha256(patches) and journal.standing() == "applied":
        copied = _linted(copy_problems(request))
        if not copied["ok"]:
            return copied
        _prove(journal, patches)
        return _record(journal, foreign, wrote=False)
    journal.restore()
    linted = lint(journal, request)
    if not linted["ok"]:
        return linted
    journal.set_sha256 = _set_sha256(patches)
    try:
        for patch in patches:
            _apply_one(journal, patch)
    except (Problem, OSError):
        journal.restore()
        raise
    journal.complete = True
    _prove(journal, patches)
    journal.save()
    return _record(journal, foreign, wrote=True)


def verify(journal: Journal, request: Request) -> Answer:
    """Say whether exactly these patches are in place and proven, changing nothing."""
    patches = request.patches
    standing = journal.standing()
    if not journal.entries:
        standing = "unpatched" if patches else "applied"
    elif journal.set_sha256 != _set_sha256(patches):
        standing = "other_set"
    verified = {}
    if standing == "applied":
        verified = {
            patch.id: check(os.path.abspath(patch.target), patch.proofs) for patch in patches
        }
    return {
        "ok": True,
        "in_place": standing == "applied"
        and all(proof["ok"] for proofs in verified.values() for proof in proofs),
        "standing": standing,
        "files": journal.places(),
        "verified": verified,
    }


def _set_sha256(patches: List[Patch]) -> str:
    parts = [
        [patch.id, patch.kind, patch.source, os.path.abspath(patch.target)]
        + [os.path.abspath(patch.root), patch.eol]
        + [[name, file.mode, sha256(file.data)] for name, file in sorted(patch.files.items())]
        for patch in patches
    ]
    return sha256(json.dumps(parts).encode("utf-8"))


def _apply_one(journal: Journal, patch: Patch) -> None:
    def content(path: str) -> Optional[bytes]:
        return read_bytes(path) if state_of(path)["type"] == "file" else None

    changes = plan(patch, content)
    mtime_ns = journal.next_mtime_ns()
    files: List[Dict[str, Any]] = []
    for change in changes:
        before = state_of(change.path)
        if before["type"] == "file":
            journal.keep(read_bytes(change.path))
        after = _after(journal, change, before, mtime_ns)
        files.append({"path": change.path, "before": before, "after": after})
    entry: Entry = {
        "id": patch.id,
        "kind": patch.kind,
        "target": patch.target,
        "files": files,
        "made": _folders_to_make(changes),
        "verified": [],
    }
    journal.add(entry)
    for folder in entry["made"]:
        os.mkdir(folder)
    for file in files:
        if patch.kind == "script":
            file["after"] = _run_script(journal, patch, file["path"])
        elif file["after"] != file["before"]:
            journal.put(file["path"], file["after"])
    journal.save()


def _after(journal: Journal, change: Change, before: State, mtime_ns: int) -> Optional[State]:
    if change.goal is not None:
        return {"type": "link", "goal": change.goal}
    if change.data is None:
        return None
    digest = journal.keep(change.data)
    if before.get("sha256") == digest:
        return before
    kept = before if before["type"] == "file" else {"mode": change.mode}
    return {**kept, "type": "file", "sha256": digest, "mtime_ns": mtime_ns}


def _folders_to_make(changes: List[Change]) -> List[str]:
    made = set()
    for change in changes:
        folder = os.path.dirname(change.path)
        while not os.path.lexists(folder):
            made.add(folder)
            folder = os.path.dirname(folder)
    return sorted(made)


def _run_script(journal: Journal, patch: Patch, target: str) -> State:
    script = patch.files[""].data
    path = journal.blob(journal.keep(script))
    patch_script.run(patch, path, interpreter(patch, script), target)
    after = state_of(target)
    if after["type"] == "file":
        journal.keep(read_bytes(target))
    return after


def _prove(journal: Journal, patches: List[Patch]) -> None:
    """Check what the patches promise; take all of them back where one does not hold it."""
    for patch, entry in zip(patches, journal.entries):  # noqa: B905 - Python 3.8 has no strict=
        entry["verified"] = check(os.path.abspath(patch.target), patch.proofs)
        broken = next((proof for proof in entry["verified"] if not proof["ok"]), None)
        if broken is not None:
            journal.restore()
            raise Problem(
                f"{broken['kind']} {broken['expected']!r} does not hold for {broken['file']}: "
                f"{broken['found']}",
                f"patches.{patch.id}.verify",
                "mend the patch or its proof; the originals are back",
                patch.id,
            )


def _record(journal: Journal, foreign: List[Dict[str, Any]], wrote: bool) -> Answer:
    patches = {}
    for entry in journal.entries:
        files = [
            {"path": file["path"], **_side("before", file), **_side("after", file)}
            for file in entry["files"]
        ]
        patches[entry["id"]] = {
            "kind": entry["kind"],
            "target": entry["target"],
            "files": files,
            "verified": entry["verified"],
            "changed": wrote and any(file["before"] != file["after"] for file in entry["files"]),
        }
    return {
        "ok": True,
        "changed": any(patch["changed"] for patch in patches.values()),
        "order": list(patches),
        "patches": patches,
        "others": foreign,
    }


def _side(when: str, file: Dict[str, Any]) -> Dict[str, Any]:
    return {f"{key}_{when}": file[when].get(key) for key in ("sha256", "mode", "goal")}
