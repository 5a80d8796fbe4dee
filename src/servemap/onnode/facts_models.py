"""Facts of model files: checksums, and headers that show a truncated download.

Formats: safetensors (8 bytes little-endian length, JSON header, then a data buffer that the
tensors' offsets cover without gaps, https://github.com/huggingface/safetensors) and GGUF (magic,
version, counts, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import hashlib
import json
import os
import stat
import struct
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .files import write_json_atomic

BLOCK_BYTES = 4 << 20
# The limit of the safetensors library itself.
MAX_HEADER_BYTES = 100_000_000
MAX_FILES = 10_000
# Files at the top of a model's folder that say what it is, in Hugging Face's layout.
CONFIGS = ("config.json", "hf_quant_config.json")
MAX_CONFIG_BYTES = 1 << 20
# Hashing so much takes long enough that a killed run should not have to do it again.
SAVE_AFTER_BYTES = 256 << 20


class Checksums:
    """sha256 of files, remembered in a cache file by path, size and mtime."""

    def __init__(self, cache_path: Optional[str]) -> None:
        self._path = cache_path
        self._entries: Dict[str, Dict[str, Any]] = {}
        self._unsaved_bytes = 0
        self.error: Optional[str] = None
        if cache_path and os.path.exists(cache_path):
            try:
                with open(cache_path, encoding="utf-8") as handle:
                    self._entries = dict(json.load(handle)["entries"])
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                self.error = "the cache %s is not used: %s" % (cache_path, error)

    def sha256(self, path: str) -> str:
        """Return the digest of a file; ValueError if it changes while it is read."""
        before = os.stat(path)
        if not stat.S_ISREG(before.st_mode):
            raise ValueError("not a regular file")
        key = os.path.realpath(path)
        known = self._entries.get(key)
        identity = {"size": before.st_size, "mtime_ns": before.st_mtime_ns}
        if isinstance(known, dict) and known == {**identity, "sha256": known.get("sha256")}:
            return str(known["sha256"])
        digest = hashlib.sha256()
        with open(path, "rb") as handle:
            for block in iter(lambda: handle.read(BLOCK_BYTES), b""):
                digest.update(block)
        after = os.stat(path)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ValueError("changed while it was read")
        self._entries[key] = {**identity, "sha256": digest.hexdigest()}
        self._unsaved_bytes += before.st_size
        if self._unsaved_bytes >= SAVE_AFTER_BYTES:
            self.save()
        return digest.hexdigest()

    def save(self) -> None:
        """Write the cache file, if there is one; a failure is kept in `error`."""
        self._unsaved_bytes = 0
        if self._path:
            try:
                write_json_atomic(self._path, {"schema": 1, "entries": self._entries})
            except OSError as error:
                self.error = "the cache %s cannot be written: %s" % (self._path, error)


def check_safetensors(header: bytes, size: int) -> Tuple[int, int]:
    """Return (tensors, bytes that the file must have) of a safetensors header.

    Args:
        header: the JSON header, without its length.
        size: of the whole file, in bytes.

    Raises:
        ValueError: the header is not one, or the file has another size than it says.
    """
    try:
        table = json.loads(header.decode("utf-8"))
        tensors = {name: one for name, one in table.items() if name != "__metadata__"}
        data_bytes = max((int(one["data_offsets"][1]) for one in tensors.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError("the header is damaged: %s" % error) from error
    expected = 8 + len(header) + data_bytes
    if size != expected:
        raise ValueError(
            "the file has %d bytes, its header says %d (%s)"
            % (size, expected, "truncated" if size < expected else "too long")
        )
    return len(tensors), expected


def read_safetensors(path: str) -> Dict[str, Any]:
    """Return `{"tensors", "header_bytes", "header_sha256"}`; ValueError if the file is damaged."""
    size = os.path.getsize(path)
    with open(path, "rb") as handle:
        prefix = handle.read(8)
        if len(prefix) < 8:
            raise ValueError("the header is truncated: the file has %d bytes" % size)
        (length,) = struct.unpack("<Q", prefix)
        if length > MAX_HEADER_BYTES:
            raise ValueError("not a safetensors file: a header of %d bytes" % length)
        header = handle.read(length)
    if len(header) < length:
        raise ValueError("the header is truncated: %d of %d bytes" % (len(header), length))
    tensors, _expected = check_safetensors(header, size)
    return {
        "tensors": tensors,
        "header_bytes": length,
        "header_sha256": hashlib.sha256(header).hexdigest(),
    }


def parse_gguf(head: bytes) -> Dict[str, Any]:
    """Return `{"version", "tensors", "metadata_pairs"}` of the first 24 bytes of a GGUF file.

    ValueError if it is truncated, of another format, big endian or of an unknown version.
    """
    if head[:4] != b"GGUF":
        raise ValueError("not a GGUF file: it starts with %r" % head[:4])
    if len(head) < 24:
        raise ValueError("the header is truncated: the file has %d bytes" % len(head))
    version, tensors, pairs = struct.unpack("<IQQ", head[4:24])
    if version not in (2, 3):
        raise ValueError("GGUF version %d is not known" % version)
    return {"version": version, "tensors": tensors, "metadata_pairs": pairs}


def read_gguf(path: str) -> Dict[str, Any]:
    """Return what the start of a GGUF file says; ValueError if it is damaged."""
    with open(path, "rb") as handle:
        return parse_gguf(handle.read(24))


def read_shard_index(path: str) -> Dict[str, Any]:
    """Return `{"shards"}` of a *.safetensors.index.json; ValueError names the missing ones."""
    with open(path, encoding="utf-8") as handle:
        index = json.load(handle)
    try:
        shards = sorted(set(index["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("the index has no weight_map") from error
    folder = os.path.dirname(path)
    missing = [name for name in shards if not os.path.exists(os.path.join(folder, name))]
    if missing:
        raise ValueError("missing shards: %s" % ", ".join(missing))
    return {"shards": len(shards)}


def read_config(path: str) -> Dict[str, Any]:
    """Return what a config.json holds; ValueError if it is no JSON object or too large."""
    with open(path, "rb") as handle:
        data = handle.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ValueError("larger than %d bytes" % MAX_CONFIG_BYTES)
    try:
        config = json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(config, dict):
        raise ValueError("not a JSON object")
    return config


HEADERS = (
    (".safetensors", "safetensors", read_safetensors),
    (".gguf", "gguf", read_gguf),
    (".safetensors.index.json", "index", read_shard_index),
)


def file_record(path: str, name: str, checksums: Checksums) -> Dict[str, Any]:
    """Return `{"name", "size", "mtime_ns", "sha256", ..., "errors"}` of one model file."""
    record: Dict[str, Any] = {"name": name, "size": None, "mtime_ns": None, "sha256": None}
    errors: List[str] = []
    try:
        status = os.stat(path)
        record.update(size=status.st_size, mtime_ns=status.st_mtime_ns)
        record["sha256"] = checksums.sha256(path)
    except (OSError, ValueError) as error:
        errors.append(str(error))
    for suffix, key, read in HEADERS:
        if path.endswith(suffix) and record["sha256"] is not None:
            try:
                record[key] = read(path)
            except (OSError, ValueError) as error:
                errors.append(str(error))
    if name in CONFIGS and record["sha256"] is not None:
        try:
            record["config"] = read_config(path)
        except (OSError, ValueError) as error:
            # No damage of the model: what an engine makes of it is the engine's.
            record["config_error"] = str(error)
    record["errors"] = errors
    return record


def model_files(path: str) -> Iterator[str]:
    """Yield the files below a folder in order, links followed, hidden names left out."""
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield os.path.join(folder, name)


def model(path: str, checksums: Checksums) -> Dict[str, Any]:
    """Return `{"path", "files": [...], "errors": [...]}` of a model file or folder."""
    found: Dict[str, Any] = {"path": path, "files": [], "errors": []}
    if os.path.isfile(path):
        found["files"].append(file_record(path, os.path.basename(path), checksums))
    elif os.path.isdir(path):
        for one in model_files(path):
            if len(found["files"]) == MAX_FILES:
                found["errors"].append("more than %d files; the rest is not listed" % MAX_FILES)
                break
            found["files"].append(file_record(one, os.path.relpath(one, path), checksums))
        if not found["files"]:
            found["errors"].append("the folder holds no files")
    else:
        found["errors"].append("no such file or folder")
    return found


def models(paths: List[str], cache_path: Optional[str]) -> Dict[str, Any]:
    """Return `{"models": [...], "cache_error"}` of the model paths, checksums kept in the cache."""
    checksums = Checksums(cache_path)
    found = [model(path, checksums) for path in paths]
    checksums.save()
    return {"models": found, "cache_error": checksums.error}
