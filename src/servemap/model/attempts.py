"""Attempts on disk, and the token that makes Snakemake rerun exactly what is not good.

A token is a rule parameter. It is the one stored in the newest record while that record is good,
else a higher one: Snakemake sees a changed parameter and reruns that job and no other.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from servemap.model.canon import file_sha256, write_json_atomic
from servemap.model.errors import ResultsError
from servemap.model.files import read_json_value
from servemap.model.protocol import SCHEMA

CAUSES_THAT_COUNT = frozenset({"launch", "breaker"})
"""Causes of `not_run` that use up an attempt.

An orderly stop does not, nor a node that was away before anything was asked of it (`unreachable`):
each command tries a repeat once, so that ends by itself. A case that fails because a node went away
while it ran counts (`failed`): it may be what took the node down.
"""

CAUSES_THAT_STAY = frozenset({"profiler"})
"""Causes of `failed` that the next try would meet again, so that there is none."""

DISTURBED = "disturbed"
"""Cause of `failed` where a load did its job, though not alone; see `analysis/disturbed.py`."""
DISTURBED_TRIES = 2
"""A disturbed repeat is measured once more, however many attempts others may take."""

State = Literal["done", "failed", "gave_up", "not_run", "damaged", "changed", "missing"]


@dataclass(frozen=True)
class Record:
    """What the newest decision needs to know of one attempt or launch."""

    folder: Path
    number: int
    token: int
    status: str
    spec_sha256: str
    cause: str | None
    files: dict[str, dict[str, Any]]

    @property
    def used_a_try(self) -> bool:
        """Whether this record counts towards `max_attempts`; an interrupted one does not."""
        return (self.status == "failed" and self.cause != "interrupted") or (
            self.status == "not_run" and self.cause in CAUSES_THAT_COUNT
        )


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON mapping, or None where the file is missing, cut, no mapping or no file."""
    try:
        data = read_json_value(path)
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def read_records(folder: Path, copy: Path | None = None) -> list[Record]:
    """Return the finished records below `folder` (`NNN/meta.json`), oldest first.

    A record that cannot be read counts as damaged: it has status `damaged`, and its number as
    token. `copy` is where the newest record stands again, as the output of a rule: where it is
    there but is not that record, a damaged one is added.

    Raises:
        ResultsError: a record has a newer schema than this version writes.
    """
    records = []
    try:
        names = sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit())
    except OSError:
        names = []
    for number in names:
        item = folder / f"{number:03d}"
        path = item / "meta.json"
        if not path.exists():
            continue
        records.append(_record(item, number, read_json(path)))
    return records if copy is None else _checked(records, copy)


def _checked(records: list[Record], copy: Path) -> list[Record]:
    """Add a damaged record where the copy is not the newest record, or that record is gone."""
    try:
        written_s = int(copy.lstat().st_mtime)
    except OSError:
        return records
    data = read_json(copy)
    newest = records[-1] if records else None
    if (
        newest is not None
        and data is not None
        and _well_formed(data)
        and data.get("token") == newest.token
        and data.get("attempt") in (None, newest.number)
    ):
        return records
    known = [record.token for record in records]
    if data is not None and isinstance(data.get("token"), int):
        known.append(data["token"])
    # Where nothing tells the token that Snakemake stored, the time makes one that it did not.
    token = max(known) if known else written_s
    return [*records, Record(copy.parent, 0, token, "damaged", "", None, {})]


def next_record(folder: Path) -> Path:
    """Return the folder of the next record below `folder`; it is not made."""
    names = folder.glob("[0-9]*")
    number = 1 + max((int(item.name) for item in names if item.name.isdigit()), default=0)
    return folder / f"{number:03d}"


def keep_record(folder: Path, record: dict[str, Any]) -> None:
    """Add a finished record below `folder`, as `read_records` finds it."""
    write_json_atomic(next_record(folder) / "meta.json", record)


def _record(folder: Path, number: int, data: dict[str, Any] | None) -> Record:
    if data is None or not _well_formed(data):
        # its token cannot be read, but none is higher than the number of its attempt
        return Record(folder, number, number, "damaged", "", None, {})
    if data.get("schema") != SCHEMA:
        raise ResultsError(
            f"record of schema {data.get('schema')!r}, this version reads {SCHEMA}",
            str(folder / "meta.json"),
            "use the version that wrote it, or give the campaign another `run` name",
        )
    return Record(
        folder,
        number,
        int(data.get("token") or 0),
        str(data["status"]),
        str(data.get("spec_sha256")),
        data.get("cause"),
        data.get("files") or {},
    )


def _well_formed(data: dict[str, Any]) -> bool:
    files = data.get("files") or {}
    return (
        "status" in data
        and isinstance(data.get("token") or 0, int)
        and isinstance(data.get("files", {}), dict | None)
        and all(
            isinstance(facts, dict) and {"size", "mtime_ns", "sha256"} <= facts.keys()
            for facts in files.values()
        )
    )


def intact(record: Record) -> bool:
    """Whether the raw files are those recorded: same size and time, else same sha256.

    Copies and fresh clones change times, so a changed time alone costs a hash, not a rerun.
    """
    for name, facts in record.files.items():
        path = record.folder / name
        try:
            stat = path.stat()
        except OSError:
            return False
        if stat.st_size != facts["size"]:
            return False
        if stat.st_mtime_ns != facts["mtime_ns"] and file_sha256(path) != facts["sha256"]:
            return False
    return True


def state(
    records: list[Record], spec_sha256: str, max_attempts: int, expect_failure: bool = False
) -> State:
    """Return what stands on disk for one planned job, judged by its newest record."""
    if not records:
        return "missing"
    newest = records[-1]
    if newest.status == "damaged":
        return "damaged"
    if newest.spec_sha256 != spec_sha256:
        return "changed"
    if newest.status in ("ok", "not_available"):
        return "done" if intact(newest) else "damaged"
    if newest.status == "failed" and expect_failure:
        return "done"
    if newest.cause in CAUSES_THAT_STAY:
        return "gave_up"
    own = [record for record in records if record.spec_sha256 == spec_sha256]
    if newest.used_a_try and sum(record.used_a_try for record in own) >= max_attempts:
        return "gave_up"
    disturbed = sum(record.cause == DISTURBED for record in own)
    if newest.cause == DISTURBED and disturbed >= DISTURBED_TRIES:
        return "gave_up"
    return "not_run" if newest.status == "not_run" else "failed"


def token(
    records: list[Record], spec_sha256: str, max_attempts: int, expect_failure: bool = False
) -> int:
    """Return the token that the job shall carry; 1 where nothing was tried yet."""
    if not records:
        return 1
    if state(records, spec_sha256, max_attempts, expect_failure) in ("done", "gave_up"):
        return records[-1].token
    return max(record.token for record in records) + 1
