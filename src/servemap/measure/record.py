"""An attempt on disk: opened before anything is asked of the server, closed once and for ever."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.canon import file_sha256, write_json_atomic
from servemap.model.protocol import SCHEMA
from servemap.onnode.redact import redact_text


@dataclass(frozen=True)
class Attempt:
    """One try at a repeat: `attempts/NNN`."""

    folder: Path
    number: int

    @property
    def raw(self) -> Path:
        """Where the raw files go."""
        return self.folder / "raw"

    @property
    def closed(self) -> bool:
        """Whether its meta.json was written."""
        return (self.folder / "meta.json").exists()

    def opening(self) -> dict[str, Any]:
        """Return what was noted when it was opened; empty where that was lost."""
        return read_json(self.folder / "open.json") or {}

    def note(self, facts: dict[str, Any]) -> None:
        """Add facts to what is known of the open attempt."""
        write_json_atomic(self.folder / "open.json", {**self.opening(), **facts})


def known_attempts(repeat_dir: Path) -> list[Attempt]:
    """Return the attempts of a repeat, oldest first."""
    folder = repeat_dir / "attempts"
    if not folder.is_dir():
        return []
    numbers = sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit())
    return [Attempt(folder / f"{number:03d}", number) for number in numbers]


def open_attempt(repeat_dir: Path, facts: dict[str, Any]) -> Attempt:
    """Create the next attempt and note who opened it and for what."""
    known = known_attempts(repeat_dir)
    number = known[-1].number + 1 if known else 1
    attempt = Attempt(repeat_dir / "attempts" / f"{number:03d}", number)
    attempt.raw.mkdir(parents=True)
    attempt.note({**facts, "opened_ns": time.time_ns()})
    return attempt


def raw_files(attempt: Attempt) -> dict[str, dict[str, Any]]:
    """Return {path below the attempt: {size, mtime_ns, sha256}} of its raw files."""
    files = {}
    for path in sorted(attempt.folder.glob("raw*/**/*")):
        if path.is_file():
            files[str(path.relative_to(attempt.folder))] = file_facts(path)
    return files


def file_facts(path: Path) -> dict[str, Any]:
    """Return {size, mtime_ns, sha256} of a file as records have it."""
    stat = path.stat()
    return {
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "sha256": file_sha256(path),
    }


def close_attempt(attempt: Attempt, meta: dict[str, Any]) -> dict[str, Any]:
    """Write the attempt's meta.json, last and atomically, and return it.

    What looks like a credential is taken out of the reasons: they may quote a server's log.
    """
    opening = attempt.opening()
    whole = {
        "schema": SCHEMA,
        "attempt": attempt.number,
        "cause": None,
        "segments": [],
        "counts": None,
        "clock": {},
        "collectors": {},
        "server": None,
        "fallback": None,
        "away_s": {},
        "overhead": {},
        "started_ns": opening.get("opened_ns"),
        **meta,
        "reasons": [redact_text(reason) for reason in meta.get("reasons", [])],
        "files": raw_files(attempt),
        "ended_ns": time.time_ns(),
    }
    write_json_atomic(attempt.folder / "meta.json", whole)
    (attempt.folder / "open.json").unlink(missing_ok=True)
    return whole
