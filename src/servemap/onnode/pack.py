"""`pack`: send the regular files below a folder, with digests, over stdout.

Request (JSON on stdin): `{"folder", "have": {path: [size, mtime_ns, sha256]}, "max_bytes"}`.
The stream holds lines of JSON and bytes between them:

    {"files": N, "bytes": TOTAL}                           or {"error"} and the end
    {"path", "size", "mtime_ns"}                           for each file, then
      LENGTH newline BYTES ... 0 newline                   its bytes in blocks, then
      {"sha256", "size", "changed"}                        or {"error"}
    {"path", "size", "mtime_ns", "same": true, "sha256"}   for one that the receiver has
    {"end": true}

Links and special files are passed over, and files that vanish while we work.
"""

import errno
import hashlib
import json
import os
import stat
import sys
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

BLOCK = 1 << 20
MAX_FILES = 20000
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def listing(folder: str) -> List[Tuple[str, os.stat_result]]:
    """Return the regular files below a folder by their path in it, sorted.

    Raises:
        OSError: the folder, or one below it, cannot be listed, or it holds too many files.
    """
    found = []

    def fail(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or error.filename == folder:
            raise error

    for root, _folders, names in os.walk(folder, onerror=fail):
        for name in names:
            path = os.path.join(root, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append((os.path.relpath(path, folder), status))
                if len(found) > MAX_FILES:
                    raise OSError(errno.E2BIG, "more than %d files" % MAX_FILES, folder)
    return sorted(found)


def blocks(handle: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield at most `size` bytes of a file."""
    left = size
    while left > 0:
        block = handle.read(min(BLOCK, left))
        if not block:
            return
        left -= len(block)
        yield block


def sha256_of(folder: str, path: str, size: int) -> Optional[str]:
    """Return the digest of a file's first `size` bytes; None where it cannot be read any more."""
    digest = hashlib.sha256()
    try:
        with open(os.open(os.path.join(folder, path), FLAGS), "rb", buffering=0) as handle:
            for block in blocks(handle, size):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


def mark(status: os.stat_result) -> Tuple[int, int]:
    """Return what changes with a file."""
    return status.st_size, status.st_mtime_ns


def send_file(folder: str, path: str, listed: os.stat_result, out: BinaryIO) -> None:
    """Send one file: as many bytes as it has when it is opened.

    `changed` says that it was another when it was listed, or became another while it was read. The
    digest is of the bytes that are sent, whatever happens to the file.
    """
    try:
        descriptor = os.open(os.path.join(folder, path), FLAGS)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return
        raise
    with open(descriptor, "rb", buffering=0) as handle:
        before = os.fstat(handle.fileno())
        if not stat.S_ISREG(before.st_mode):
            return
        line(out, {"path": path, "size": before.st_size, "mtime_ns": before.st_mtime_ns})
        digest = hashlib.sha256()
        sent = 0
        try:
            for block in blocks(handle, before.st_size):
                out.write(b"%d\n" % len(block))
                out.write(block)
                digest.update(block)
                sent += len(block)
            end = {
                "sha256": digest.hexdigest(),
                "size": sent,
                "changed": mark(listed) != mark(before)
                or mark(os.fstat(handle.fileno())) != mark(before),
            }
        except BrokenPipeError:
            raise
        except OSError as error:
            end = {"error": error.strerror}
        out.write(b"0\n")
        line(out, end)


def line(out: BinaryIO, value: Dict[str, Any]) -> None:
    """Send a line of JSON."""
    out.write(json.dumps(value).encode("ascii") + b"\n")


def pack(request: Dict[str, Any], out: BinaryIO) -> None:
    """Send a folder; OSError where it cannot be listed or a file in it cannot be opened."""
    folder, have = request["folder"], request["have"]
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, "there is no such folder", folder)
    files = listing(folder)
    total = sum(status.st_size for _, status in files)
    line(out, {"files": len(files), "bytes": total})
    if request["max_bytes"] is not None and total > request["max_bytes"]:
        return
    for path, status in files:
        size, mtime_ns, sha256 = have.get(path, (None, None, None))
        if mark(status) == (size, mtime_ns) and sha256_of(folder, path, size) == sha256:
            about = {"path": path, "size": size, "mtime_ns": mtime_ns, "sha256": sha256}
            line(out, dict(about, same=True))
        else:
            send_file(folder, path, status, out)
        out.flush()
    line(out, {"end": True})


def main(argv: List[str]) -> int:
    """Serve one request; 1 where the folder cannot be sent, 2 on a bad request."""
    if argv:
        print("usage: pack < REQUEST", file=sys.stderr)
        return 2
    try:
        request = json.load(sys.stdin)
        request["folder"], request["have"], request["max_bytes"]
    except (ValueError, KeyError, TypeError) as error:
        print("pack: bad request: %r" % error, file=sys.stderr)
        return 2
    out = sys.stdout.buffer
    try:
        pack(request, out)
    except BrokenPipeError:
        return 1
    except OSError as error:
        where = error.filename or request["folder"]
        line(out, {"error": "%s: %s" % (error.strerror or error, where)})
        out.flush()
        return 1
    out.flush()
    return 0
