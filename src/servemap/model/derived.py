"""Whether a repeat's derived files can be used, and the token that has them made again if not."""

import os
from pathlib import Path

from servemap.model.attempts import read_json

TABLES = ("requests.parquet", "telemetry.parquet")
PARQUET_MAGIC = b"PAR1"
"""First and last bytes of every parquet file (format: Apache Parquet, file format)."""


def derived_token(repeat_dir: Path) -> int:
    """Return the token stored in metrics.json, or a new one where a derived file is damaged.

    0 where nothing was derived yet: Snakemake sees that by itself.
    """
    metrics = repeat_dir / "metrics.json"
    paths = [metrics, *(repeat_dir / name for name in TABLES)]
    if not all(os.path.lexists(path) for path in paths):
        return 0
    data = read_json(metrics)
    if data is not None and isinstance(data.get("token"), int) and all(map(_whole, paths[1:])):
        return int(data["token"])
    return max(int(path.lstat().st_mtime_ns) for path in paths)


def analysis_token(capture_dir: Path) -> int:
    """Return the token stored in a capture's analysis.json, or a new one where it must be redone.

    That is where it is damaged, or of another capture than the one that lies there. 0 where nothing
    was analysed yet.
    """
    path = capture_dir / "analysis.json"
    if not os.path.lexists(path):
        return 0
    data = read_json(path) or {}
    capture = read_json(capture_dir / "capture.json") or {}
    about, token = data.get("capture"), data.get("token")
    same = isinstance(about, dict) and about.get("ended_ns") == capture.get("ended_ns")
    if isinstance(token, int) and same:
        return token
    return int(path.lstat().st_mtime_ns)


def _whole(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        begins = handle.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        handle.seek(0, os.SEEK_END)
        if handle.tell() < 2 * len(PARQUET_MAGIC):
            return False
        handle.seek(-len(PARQUET_MAGIC), os.SEEK_END)
        return begins and handle.read() == PARQUET_MAGIC
