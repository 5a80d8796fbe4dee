"""Full check of raw files against the hashes that were recorded when they were measured."""

from pathlib import Path

from servemap.model.attempts import read_records
from servemap.model.canon import file_sha256


def damaged_files(folder: Path) -> list[str]:
    """Return one line for every raw file below a run that is not as it was recorded."""
    found = []
    for repeat in sorted(folder.glob("cases/*/*/r*")):
        for record in read_records(repeat / "attempts", repeat / "meta.json"):
            if record.status == "damaged":
                what = "is not its newest attempt" if record.folder == repeat else "cannot be read"
                found.append(f"{record.folder / 'meta.json'}: {what}")
            for name, facts in record.files.items():
                path = record.folder / name
                if not path.is_file():
                    found.append(f"{path}: missing")
                elif file_sha256(path) != facts.get("sha256"):
                    found.append(f"{path}: its sha256 is not the recorded one")
    return found
