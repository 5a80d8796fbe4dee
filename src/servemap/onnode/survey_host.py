"""Survey of the machine: Python, disk, files, ports, limits. Formats: proc(5), statvfs(3)."""

import os
import platform
import pwd
import resource
import socket
import sys
from typing import Any, Dict, List, Optional, Tuple

from .facts_state import parse_listening, socket_owners
from .holders_left import marks
from .ident import machine_boot_id, read_stat
from .probe import read_file, read_int

MAX_FILES = 20_000
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def python() -> Dict[str, Any]:
    """Return the interpreter that runs this."""
    return {"version": list(sys.version_info[:3]), "executable": sys.executable}


def user() -> Dict[str, Any]:
    """Return the user that this runs as."""
    uid = os.geteuid()
    try:
        name: Optional[str] = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = None
    return {"uid": uid, "name": name}


def kernel(root: str) -> Dict[str, Any]:
    """Return which machine this is, its kernel's release and that of the NVIDIA driver, if any."""
    release = read_file(root + "/proc/sys/kernel/osrelease") or platform.release()
    driver = read_file(root + "/proc/driver/nvidia/version")
    return {
        "hostname": socket.gethostname(),
        "boot_id": machine_boot_id(),
        "release": release,
        "nvidia_driver": driver.splitlines()[0] if driver else None,
    }


def address(name: str) -> Dict[str, Any]:
    """Return `{"ours", "reason"}`: whether a socket of this machine can have an address or name."""
    try:
        family, kind, _proto, _name, where = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(where)
    except OSError as error:
        return {"ours": False, "reason": error.strerror or str(error)}
    return {"ours": True, "reason": None}


def parse_mounts(text: str) -> List[Tuple[str, str]]:
    """Parse /proc/mounts into (mount point, type of file system), in its order."""
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 3:
            point = fields[1]
            for escape, letter in _ESCAPES.items():
                point = point.replace(escape, letter)
            found.append((point, fields[2]))
    return found


def file_system(path: str, mounts: List[Tuple[str, str]]) -> Optional[str]:
    """Return the type of the file system that an absolute path lies in; the last mount wins."""
    best = ""
    kind = None
    for point, name in mounts:
        below = point if point.endswith("/") else point + "/"
        if (path + "/").startswith(below) and len(below) >= len(best):
            best, kind = below, name
    return kind


def disk(path: str, root: str) -> Dict[str, Any]:
    """Return room and kind of the file system that a folder lies in or would be made in.

    Returns:
        `{"path", "folder", "free_bytes", "total_bytes", "writable", "type"}`: `folder` is the
        nearest one that exists, bytes are those that this user may fill.
    """
    folder = os.path.abspath(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    room = os.statvfs(folder)
    mounts = parse_mounts(read_file(root + "/proc/self/mounts") or "")
    return {
        "path": path,
        "folder": folder,
        "free_bytes": room.f_bavail * room.f_frsize,
        "total_bytes": room.f_blocks * room.f_frsize,
        "writable": os.access(folder, os.W_OK | os.X_OK),
        "type": file_system(os.path.realpath(folder), mounts),
    }


def listing(path: str) -> Dict[str, Any]:
    """Return the files of a model by name and size; nothing is hashed.

    Returns:
        `{"files": {name below the folder: bytes}, "errors": [REASON...]}`; hidden names are left
        out, links are followed.
    """
    files: Dict[str, int] = {}
    errors: List[str] = []

    def add(full: str, name: str) -> None:
        try:
            files[name] = os.stat(full).st_size
        except OSError as error:
            errors.append("%s: %s" % (name, error.strerror))
            return
        if not os.access(full, os.R_OK):
            errors.append("%s: this user may not read it" % name)

    if os.path.isfile(path):
        add(path, os.path.basename(path))
    elif os.path.isdir(path):
        walk = os.walk(path, followlinks=True, onerror=lambda error: errors.append(str(error)))
        for folder, folders, names in walk:
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                if not name.startswith("."):
                    full = os.path.join(folder, name)
                    add(full, os.path.relpath(full, path))
            if len(files) > MAX_FILES:
                errors.append("more than %d files; the rest is not listed" % MAX_FILES)
                break
    else:
        errors.append("no such file or folder")
    return {"files": files, "errors": errors}


def listeners(ports: List[int], root: str) -> List[Dict[str, Any]]:
    """Return who listens on some ports.

    `{"port", "address", "uid", "pid", "comm", "boot_id"}` each: `boot_id` is the start of a server
    of servemap that the process belongs to.
    """
    rows = [
        row
        for name in ("tcp", "tcp6")
        for row in parse_listening(read_file(root + "/proc/net/" + name) or "")
        if row["port"] in ports
    ]
    owners = {} if root else socket_owners([row["inode"] for row in rows])
    for row in rows:
        row["pid"] = owners.get(row.pop("inode"))
        stat = None if row["pid"] is None else read_stat(row["pid"])
        row["comm"] = stat.comm if stat else None
        row["boot_id"] = marks([row["pid"]]).get(row["pid"]) if stat else None
    return rows


def memlock() -> Dict[str, Optional[int]]:
    """Return the limits (bytes) of memory that may be locked; null where there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    infinity = resource.RLIM_INFINITY
    return {
        "soft_bytes": None if soft == infinity else soft,
        "hard_bytes": None if hard == infinity else hard,
    }


def perf_event_paranoid(root: str) -> Dict[str, Any]:
    """Return `{"level"}` of perf events; null with the reason where the kernel has none."""
    reasons: Dict[str, str] = {}
    level = read_int(root + "/proc/sys/kernel/perf_event_paranoid", reasons)
    return {"level": level, "reason": reasons.get("perf_event_paranoid")}
