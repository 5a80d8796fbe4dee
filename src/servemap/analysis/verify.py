"""Full check of raw files against the hashes that were recorded when they were measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servemap.analysis.repeats import read_object
from servemap.model.attempts import read_records
from servemap.model.canon import file_sha256
from servemap.parsers.values import mapping


def damaged_files(folder: Path) -> list[str]:
    """Return one line for every raw file below a run that is not as it was recorded."""
    found = []
    for repeat in sorted(folder.glob("cases/*/*/r*")):
        for record in read_records(repeat / "attempts", repeat / "meta.json"):
            if record.status == "damaged":
                what = "is not its newest attempt" if record.folder == repeat else "cannot be read"
                found.append(f"{record.folder / 'meta.json'}: {what}")
            found += _changed(record.folder, record.files)
    for path in sorted(folder.glob("captures/*/*/capture.json")):
        capture, trouble = read_object(path)
        if trouble is not None:
            found.append(f"{path}: {trouble}")
        found += _changed(path.parent, mapping(capture.get("files")))
    return found


def _changed(folder: Path, files: Mapping[str, Any]) -> list[str]:
    found = []
    for name, facts in files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{path}: missing")
        elif file_sha256(path) != mapping(facts).get("sha256"):
            found.append(f"{path}: its sha256 is not the recorded one")
    return found
