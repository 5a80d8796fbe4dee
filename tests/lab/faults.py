"""What goes wrong on a machine: full disk, new host key, talkative shell, clock that steps."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tests.lab.lab import SKEW_FILE, Lab, LabError, User

BALLAST = "/var/ballast"
PIECE_BYTES = 1 << 18
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"


def fill_disk(lab: Lab, node: str, leave_bytes: int) -> None:
    """Fill a node's disk up to so many bytes; its /tmp and /run are file systems of their own."""
    ballast = lab.path(node, BALLAST)
    with ballast.open("wb") as file:
        if _free_bytes(file.fileno()) < leave_bytes:
            raise LabError(f"less than {leave_bytes} bytes are free on {node}")
        # What runs there writes meanwhile, and then less is free than was just seen: that piece is
        # given back, and the disk may not look full before it stays so.
        while (free := _free_bytes(file.fileno()) - leave_bytes) > 0:
            with suppress(OSError):
                end = os.fstat(file.fileno()).st_size
                os.posix_fallocate(file.fileno(), end, min(free, PIECE_BYTES))


def _free_bytes(descriptor: int) -> int:
    stat = os.fstatvfs(descriptor)
    return stat.f_bavail * stat.f_frsize


def free_disk(lab: Lab, node: str) -> None:
    """Undo `fill_disk`."""
    lab.path(node, BALLAST).unlink()


def set_home(lab: Lab, node: str, user: User, home: str) -> None:
    """Move a user's home folder to another name."""
    accounts = lab.path(node, "/etc/passwd")
    before = accounts.read_text()
    after = before.replace(f":{user.home}:/bin/", f":{home}:/bin/")
    if before == after:
        raise LabError(f"{user.name} has no home {user.home} on {node}")
    target = lab.path(node, home)
    target.parent.mkdir(parents=True, exist_ok=True)
    lab.path(node, user.home).rename(target)
    accounts.write_text(after)


def bashrc(lab: Lab, node: str, user: User, text: str) -> None:
    """Give a user a ~/.bashrc, which bash also reads for commands that come over ssh."""
    path = lab.path(node, f"{user.home}/.bashrc")
    path.write_text(text)
    os.chown(path, user.uid, user.uid)


def tmp_readonly(lab: Lab, node: str) -> None:
    """Let nobody write to a node's /tmp."""
    lab.exec_in(node, ["mount", "-o", "remount,ro", "/tmp"], check=True)


def tmp_writable(lab: Lab, node: str) -> None:
    """Undo `tmp_readonly`."""
    lab.exec_in(node, ["mount", "-o", "remount,rw", "/tmp"], check=True)


def stop_sshd(lab: Lab, node: str) -> None:
    """End a node's sshd: new connections are refused, those that stand go on."""
    pid = lab.path(node, "/run/sshd.pid").read_text().strip()
    lab.exec_in(node, ["kill", pid], check=True)
    script = f"while kill -0 {pid} 2>/dev/null; do sleep 0.02; done; rm -f /run/sshd.pid"
    lab.exec_in(node, ["sh", "-c", script], timeout=60, check=True)


def start_sshd(lab: Lab, node: str) -> None:
    """Start a node's sshd; returns when it listens."""
    lab.exec_in(node, ["/usr/sbin/sshd", "-E", "/var/log/sshd.log"], check=True)
    script = "until bash -c ': </dev/tcp/127.0.0.1/22' 2>/dev/null; do sleep 0.02; done"
    lab.exec_in(node, ["sh", "-c", script], timeout=60, check=True)


def new_host_key(lab: Lab, node: str) -> None:
    """Give a node another host key, as after a new installation; the lab's known_hosts stays."""
    stop_sshd(lab, node)
    lab.path(node, HOST_KEY).unlink()
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", HOST_KEY]
    lab.exec_in(node, argv, check=True)
    start_sshd(lab, node)


def known_hosts_without(lab: Lab, node: str, path: Path) -> Path:
    """Write a known_hosts file that lacks a node; return it."""
    address = lab.machines[node].address
    lines = lab.known_hosts.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line.split()[0] != address))
    return path


def step_clock(lab: Lab, node: str, ahead_ns: int) -> None:
    """Let a node's agent see a clock that is so far ahead; all nodes share the kernel's clock."""
    path = lab.path(node, SKEW_FILE)
    new = path.with_name(f"{path.name}.new")
    new.write_text(f"{ahead_ns}\n")
    shutil.copystat(path, new)
    new.replace(path)
