"""Process 1 of a lab node: makes the node's own root, its users and its sshd, then reaps.

Standard library only. One line of JSON comes on stdin once the network link is there; `ready` goes
to stdout when sshd answers. What a first boot wrote stays on the node's disk over reboots.
"""

import json
import os
import pwd
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

BOOTED = Path("/etc/servemap-lab-node")
SSHD = "/usr/sbin/sshd"
SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
UseDNS no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
SetEnv SERVEMAP_CLOCK_SKEW_FILE={skew}
"""


def call(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def enter_own_root(disk: Path, visible: list[str], disk_bytes: int) -> None:
    """Mount an overlay of the machine's root on the node's disk and make it the root."""
    root = disk / "root"
    for name in ("upper", "work", "root"):
        (disk / name).mkdir(exist_ok=True)
    layers = f"lowerdir=/,upperdir={disk}/upper,workdir={disk}/work"
    call("mount", "-t", "overlay", "-o", layers, "overlay", str(root))
    call("mount", "-t", "proc", "proc", f"{root}/proc")
    call("mount", "-t", "sysfs", "sysfs", f"{root}/sys")
    call("mount", "--rbind", "/dev", f"{root}/dev")
    pts = "newinstance,ptmxmode=0666,mode=0620"
    call("mount", "-t", "devpts", "-o", pts, "devpts", f"{root}/dev/pts")
    for folder, options in (
        ("dev/shm", "size=256m,mode=1777"),
        ("run", "size=64m,mode=755"),
        ("tmp", f"size={disk_bytes},mode=1777"),
    ):
        call("mount", "-t", "tmpfs", "-o", options, "tmpfs", f"{root}/{folder}")
    bound = [path for path in map(Path, visible) if _hidden(path)]
    for path in bound:
        place = root / path.relative_to("/")
        place.mkdir(parents=True, exist_ok=True)
        call("mount", "--bind", str(path), str(place))
        call("mount", "-o", "remount,bind,ro", str(place))
    os.chdir(root)
    Path(".old").mkdir(exist_ok=True)
    call("pivot_root", ".", ".old")
    os.chdir("/")
    call("umount", "-l", "/.old")
    Path("/.old").rmdir()
    for path in map(Path, visible):
        for parent in path.parents:
            if not any(parent.is_relative_to(item) for item in bound):
                parent.chmod(parent.stat().st_mode | 0o011)


def _hidden(path: Path) -> bool:
    """Say whether an overlay of the root with a fresh /tmp would not show this folder."""
    return path.is_relative_to("/tmp") or path.stat().st_dev != Path("/").stat().st_dev


def new_boot_id() -> None:
    """Let the kernel's boot id, which all nodes share, look like that of a machine just booted."""
    own = Path("/run/boot_id")
    own.write_text(f"{uuid.uuid4()}\n")
    call("mount", "--bind", str(own), "/proc/sys/kernel/random/boot_id")


def first_boot(config: dict[str, Any]) -> None:
    """Write what differs between machines: names, host key, sshd's settings, users, files."""
    name, hosts = config["name"], config["hosts"]
    Path("/etc/hostname").write_text(f"{name}\n")
    lines = ["127.0.0.1 localhost", *(f"{address} {host}" for host, address in hosts.items())]
    Path("/etc/hosts").write_text("\n".join(lines) + "\n")
    resolver = Path("/etc/resolv.conf")
    resolver.unlink(missing_ok=True)
    resolver.write_text("")
    Path("/etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    for old in Path("/etc/ssh").glob("ssh_host_*"):
        old.unlink()
    _write(Path("/etc/ssh/ssh_host_ed25519_key"), config["host_key"], 0o600)
    _write(Path("/etc/ssh/sshd_config"), SSHD_CONFIG.format(skew=config["skew_file"]), 0o644)
    for user in config["users"]:
        add_user(user)
    owner = pwd.getpwnam(config["users"][0]["name"])
    place = Path(config["files"])
    Path(config["skew_file"]).write_text("0\n")
    for path in (place, *place.rglob("*")):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    BOOTED.write_text(f"{name}\n")


def add_user(user: dict[str, Any]) -> None:
    """Add an account that logs in by key only; useradd would refuse some homes and take longer."""
    name, number, home = user["name"], user["uid"], Path(user["home"])
    for table, line in (
        ("/etc/passwd", f"{name}:x:{number}:{number}::{home}:/bin/bash"),
        ("/etc/shadow", f"{name}:*:19000:0:99999:7:::"),
        ("/etc/group", f"{name}:x:{number}:"),
    ):
        with Path(table).open("a") as file:
            file.write(line + "\n")
    keys = home / ".ssh" / "authorized_keys"
    keys.parent.mkdir(parents=True)
    if user["public_key"] is not None:
        _write(keys, user["public_key"], 0o600)
    for path in (home, *home.rglob("*")):
        os.chown(path, number, number)
    home.chmod(0o750)
    keys.parent.chmod(0o700)
    if user["sudo"]:
        _write(Path(f"/etc/sudoers.d/{name}"), f"{name} ALL=(ALL) NOPASSWD: ALL\n", 0o440)


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
    path.chmod(mode)


def start_network(address: str) -> None:
    call("ip", "link", "set", "lo", "up")
    call("ip", "address", "add", f"{address}/24", "dev", "eth0")
    call("ip", "link", "set", "eth0", "up")


def start_sshd() -> None:
    Path("/run/sshd").mkdir(mode=0o755)
    call(SSHD, "-E", "/var/log/sshd.log")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", 22)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit("sshd does not listen: " + Path("/var/log/sshd.log").read_text()[-1000:])


def reap_for_ever() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.1)


def main() -> None:
    config = json.loads(sys.stdin.readline())
    socket.sethostname(config["name"])
    enter_own_root(Path(config["disk"]), config["visible"], config["disk_bytes"])
    new_boot_id()
    if not BOOTED.exists():
        first_boot(config)
    start_network(config["address"])
    start_sshd()
    print("ready", flush=True)
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    reap_for_ever()


if __name__ == "__main__":
    main()
