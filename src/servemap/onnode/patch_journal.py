"""The journal of what patches changed, and taking them back.

The journal and the original bytes are on disk before the first byte of a target changes, and each
file is replaced whole, so that after a kill at any point the originals can be put back.

WORK/journal.json: {"schema": 1, "stamp_s", "set_sha256", "complete", "entries": [{"id",
"kind", "target", "files": [{"path", "before": State, "after": State|null}], "made": [folder, ...],
"verified": [...]}], "last_restore": [proof, ...]}; `complete` is true once the whole set is in
place; WORK/blobs/SHA256 holds the bytes of every
state that was ever replaced or written.
"""

import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from .patch_claims import claim, release
from .patch_files import (
    ABSENT,
    Problem,
    State,
    read_bytes,
    remove,
    same,
    same_content,
    sha256,
    state_of,
    temporary_of,
    write_file,
    write_link,
)
from .patch_request import SCHEMA

Entry = Dict[str, Any]
Proof = Dict[str, Any]


class Journal:
    """The patches that are in place on this node, kept in a work folder."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._path = os.path.join(work, "journal.json")
        self._blobs = os.path.join(work, "blobs")
        self.stamp_s = 0
        self.set_sha256: Optional[str] = None
        self.complete = False
        self.entries: List[Entry] = []
        self.last_restore: List[Proof] = []
        self._load()

    def _load(self) -> None:
        if not os.path.exists(self._path):
            return
        try:
            data = json.loads(read_bytes(self._path).decode("utf-8"))
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema {data['schema']}, this version reads {SCHEMA}")
            self.stamp_s = data["stamp_s"]
            self.set_sha256 = data["set_sha256"]
            self.complete = data["complete"]
            self.entries = data["entries"]
            self.last_restore = data["last_restore"]
        except (ValueError, KeyError, TypeError) as error:
            raise Problem(
                f"the record of applied patches cannot be used: {error}",
                self._path,
                f"the originals are below {self._blobs}, named by their sha256; put them back by "
                "hand, then remove the work folder",
            ) from error

    def save(self) -> None:
        """Write the journal, atomically and durably."""
        data = {
            "schema": SCHEMA,
            "stamp_s": self.stamp_s,
            "set_sha256": self.set_sha256,
            "complete": self.complete,
            "entries": self.entries,
            "last_restore": self.last_restore,
        }
        text = json.dumps(data, indent=1, sort_keys=True) + "\n"
        write_file(self._path, text.encode("utf-8"), {"mode": 0o600})

    def next_mtime_ns(self) -> int:
        """Return a modification time, in whole seconds, that no patched file had before.

        Python takes a cached bytecode file for current when the source's time in seconds and its
        size are as recorded, which two variants patched within a second could meet.
        """
        self.stamp_s = max(int(time.time()), self.stamp_s + 1)
        return self.stamp_s * 1_000_000_000

    def keep(self, data: bytes) -> str:
        """Store bytes by their sha256 and return it."""
        digest = sha256(data)
        path = self.blob(digest)
        if not os.path.exists(path):
            os.makedirs(self._blobs, mode=0o700, exist_ok=True)
            write_file(path, data, {"mode": 0o600})
        return digest

    def blob(self, digest: str) -> str:
        """Return where the bytes of a digest are kept."""
        return os.path.join(self._blobs, digest)

    def original(self, path: str) -> Optional[State]:
        """Return the state that a path had before any patch that is in place."""
        for file in self._files():
            if file["path"] == path:
                before: State = file["before"]
                return before
        return None

    def original_bytes(self, path: str) -> Optional[bytes]:
        """Return the bytes that a path had before any patch, None where there was no file."""
        state = self.original(path) or state_of(path)
        if state["type"] != "file":
            return None
        kept = self.blob(state["sha256"])
        return read_bytes(kept if os.path.exists(kept) else path)

    def paths(self) -> List[str]:
        """Return the paths that the patches in place touch, in order."""
        return list(dict.fromkeys(file["path"] for file in self._files()))

    def put(self, path: str, state: State) -> None:
        """Bring a path to a state whose bytes are kept."""
        if state["type"] == "absent":
            remove(path)
        elif state["type"] == "link":
            write_link(path, state["goal"])
        else:
            write_file(path, read_bytes(self.blob(state["sha256"])), state)

    def standing(self) -> str:
        """Say how the targets stand: none, applied, unpatched, interrupted or foreign.

        `foreign`: somebody else changed a target; `unpatched`: all originals are back although the
        journal knows patches; `interrupted`: anything between.
        """
        if not self.entries:
            return "none"
        found = [self._place(path) for path in self.paths()]
        if "foreign" in found:
            return "foreign"
        if self.complete and all(place in ("after", "both") for place in found):
            return "applied"
        if all(place in ("before", "both") for place in found):
            return "unpatched"
        return "interrupted"

    def places(self) -> List[Dict[str, str]]:
        """Return where each path stands: before, after, both (no difference), between, foreign."""
        return [{"path": path, "place": self._place(path)} for path in self.paths()]

    def _place(self, path: str) -> str:
        states, open_ended = self._chain(path)
        now = state_of(path)
        is_before = same_content(now, states[0])
        is_after = same_content(now, states[-1]) and not open_ended
        if is_before or is_after:
            return "both" if is_before and is_after else "before" if is_before else "after"
        known = open_ended or any(same_content(now, state) for state in states)
        # nothing can be lost where nothing stands
        return "between" if known or now["type"] == "absent" else "foreign"

    def _chain(self, path: str) -> "tuple[List[State], bool]":
        """Return the states that a path went through, and whether a script was cut on it."""
        states: List[State] = []
        open_ended = False
        for file in self._files():
            if file["path"] == path:
                states += [file["before"]] + ([file["after"]] if file["after"] else [])
                open_ended = file["after"] is None
        return states, open_ended

    def _files(self) -> Iterator[Dict[str, Any]]:
        for entry in self.entries:
            yield from entry["files"]

    def refuse_foreign(self) -> None:
        """Refuse to go on where somebody else changed a target.

        Raises:
            Problem: names the target and where its original is kept.
        """
        for path in self.paths():
            if self._place(path) == "foreign":
                entry = next(
                    item
                    for item in reversed(self.entries)
                    if any(file["path"] == path for file in item["files"])
                )
                digest = self._chain(path)[0][0].get("sha256")
                kept = f"; the original is kept in {self.blob(digest)}" if digest else ""
                raise Problem(
                    f"{path} was changed by somebody else after patch {entry['id']!r} was applied",
                    path,
                    f"move the changed file away and run the same command again{kept}",
                    entry["id"],
                )

    def restore(self) -> List[Proof]:
        """Put all originals back, last change first, and return a proof for each path.

        Nothing is put back where somebody removed the whole folder since.

        Raises:
            Problem: somebody else changed a target (nothing was written then), or an original did
                not come back.
        """
        self.refuse_foreign()
        originals = {path: self.original(path) or ABSENT for path in self.paths()}
        for entry in reversed(self.entries):
            for file in reversed(entry["files"]):
                self._take_back(file)
            for folder in reversed(entry["made"]):
                _remove_made(folder)
        proofs = [_prove(path, original) for path, original in originals.items()]
        for proof in proofs:
            if not (proof["ok"] or proof["gone"]):
                raise Problem(
                    f"the original of {proof['path']} did not come back",
                    proof["path"],
                    "look for another program that writes there, then run `unpatch` again",
                )
        if self.entries:
            self.entries, self.set_sha256, self.complete = [], None, False
            self.last_restore = proofs
            self.save()
            release(self._work, originals)
        return proofs

    def add(self, entry: Entry) -> None:
        """Record what is about to be changed.

        Raises:
            Problem: another campaign has a patch in place on one of the paths.
        """
        claim(self._work, [file["path"] for file in entry["files"]])
        self.entries.append(entry)
        self.save()

    def _take_back(self, file: Dict[str, Any]) -> None:
        path = file["path"]
        remove(temporary_of(path))
        now = state_of(path)
        if same(now, file["before"]) or not os.path.isdir(os.path.dirname(path)):
            return
        if file["after"] is None and now["type"] == "file":
            # a script was cut here: what it left is nobody's version, but is not thrown away
            self.keep(read_bytes(path))
        self.put(path, file["before"])


def _prove(path: str, original: State) -> Proof:
    """Compare a path with its original; `gone`: the folder that held it was removed since."""
    found = state_of(path)
    return {
        "path": path,
        "sha256": found.get("sha256"),
        "expected": original,
        "found": found,
        "ok": same(original, found),
        "gone": not os.path.isdir(os.path.dirname(path)),
    }


def _remove_made(folder: str) -> None:
    """Remove a folder that a patch made, with the bytecode of its modules; keep anything else."""
    cache = os.path.join(folder, "__pycache__")
    if os.path.isdir(cache):
        for name in os.listdir(cache):
            if name.endswith(".pyc"):
                os.unlink(os.path.join(cache, name))
    for path in (cache, folder):
        try:
            os.rmdir(path)
        except OSError:
            # not there any more, or it holds what is not ours
            continue
