"""Two machines and a controller on one kernel, with real sshd between them. Needs root and Linux.

Each node has its own network, host name, IPC, mounts and processes, its own root on a disk of
limited size that outlives a power cut, its own host key and users. The controller is a network
namespace without a default route: nothing that is sent there can leave the lab.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.lab.traces import TOKEN, in_namespace, leaks, new_folder

ROOT = Path(__file__).resolve().parents[2]
CONTROLLER = "10.77.0.1"
FILES = "/srv/servemap"
"""Folder of the first user on each node, filled with a copy of the lab's seed."""
SKEW_FILE = f"{FILES}/clock_skew_ns"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_TIMEOUT_S = 120.0


class LabError(RuntimeError):
    """The lab does not come up or does not do what it was asked."""


@dataclass(frozen=True)
class User:
    """An account on the nodes."""

    name: str
    uid: int
    home: str
    key: bool = True
    sudo: bool = False


BENCH = User("bench", 7701, "/home/bench", sudo=True)
SECOND = User("second", 7702, "/home/second")
SPACED = User("spaced", 7703, "/home/with a space")
NOKEY = User("nokey", 7704, "/home/nokey", key=False)
USERS = (BENCH, SECOND, SPACED, NOKEY)


@dataclass(frozen=True)
class Machine:
    """A node's name, address and link address; the latter stays, or neighbours would miss it."""

    name: str
    address: str
    mac: str


MACHINES = (
    Machine("head", "10.77.0.11", "02:4d:53:00:00:0b"),
    Machine("worker", "10.77.0.12", "02:4d:53:00:00:0c"),
)


class Lab:
    """A running lab; a context manager. Operations raise LabError.

    Args:
        seed: a folder that each node gets a copy of, at FILES.
        disk_bytes: size of each node's disk, and of its /tmp.
    """

    def __init__(self, seed: Path | None = None, disk_bytes: int = 1 << 30) -> None:
        self.seed = seed
        self.disk_bytes = disk_bytes
        self.machines = {machine.name: machine for machine in MACHINES}
        self.inits: dict[str, int] = {}

    def __enter__(self) -> "Lab":
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> None:
        """Boot all; what dead labs left is removed first."""
        self.folder, lock = new_folder()
        try:
            self._write_config()
            self.keeper = subprocess.Popen(
                [
                    "unshare", "--net", "--mount", "--",
                    sys.executable, "-m", "tests.lab.keeper", str(self.folder), str(os.getpid()),
                ],
                cwd=ROOT, env={**os.environ, TOKEN: str(self.folder)}, pass_fds=[lock],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=(self.folder / "keeper.log").open("w"), start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(lock)
        try:
            self.inits = self._answer(BOOT_TIMEOUT_S)
        except LabError:
            self.down()
            raise

    def down(self) -> None:
        """End all of it; LabError if anything is left."""
        assert self.keeper.stdin is not None
        assert self.keeper.stdout is not None
        self.keeper.stdin.close()
        self.keeper.wait(60)
        self.keeper.stdout.close()
        self.inits = {}
        if left := leaks(self.folder):
            raise LabError(f"the lab left {left}")

    @property
    def key_file(self) -> Path:
        """The controller's ssh key, which all users but NOKEY take."""
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The nodes' host keys as they were made: nothing is learned over the network."""
        return self.folder / "known_hosts"

    def _write_config(self) -> None:
        self.key_file.with_suffix(".pub").write_text(make_key(self.key_file))
        public = self.key_file.with_suffix(".pub").read_text()
        known = []
        nodes = {}
        for machine in self.machines.values():
            host_key = self.folder / f"{machine.name}_host_key"
            kind, key = make_key(host_key).split()[:2]
            known.append(f"{machine.address} {kind} {key}\n")
            nodes[machine.name] = {
                **asdict(machine),
                "hosts": {item.name: item.address for item in MACHINES},
                "host_key": host_key.read_text(),
                "disk": str(self.folder / "disks" / machine.name),
                "disk_bytes": self.disk_bytes,
                "files": FILES,
                "skew_file": SKEW_FILE,
                # The engine's interpreter is this one, seen through the node's root.
                "visible": [sys.prefix, sys.base_prefix],
                "users": [
                    {**asdict(user), "public_key": public if user.key else None} for user in USERS
                ],
            }
        self.known_hosts.write_text("".join(known))
        seed = None if self.seed is None else str(self.seed)
        config = {"controller": CONTROLLER, "seed": seed, "nodes": nodes}
        (self.folder / "lab.json").write_text(json.dumps(config))

    def _answer(self, timeout_s: float) -> Any:
        assert self.keeper.stdout is not None
        ready, _, _ = select.select([self.keeper.stdout], [], [], timeout_s)
        line = self.keeper.stdout.readline() if ready else b""
        if not line:
            log = self.folder / "keeper.log"
            raise LabError(f"no answer: {log.read_text()[-2000:] if log.exists() else 'it ended'}")
        answer = json.loads(line)
        if "error" in answer:
            raise LabError(answer["error"])
        return answer["ok"]

    def _ask(self, operation: str, node: str) -> Any:
        assert self.keeper.stdin is not None
        self.keeper.stdin.write(json.dumps({"do": operation, "node": node}).encode() + b"\n")
        self.keeper.stdin.flush()
        return self._answer(BOOT_TIMEOUT_S)

    # Power and cables.

    def power_off(self, node: str) -> None:
        """Cut a node's power: silence on the network, all its processes gone, its disk kept."""
        self._ask("power_off", node)
        del self.inits[node]

    def power_on(self, node: str) -> None:
        """Boot a node that is off; returns when its sshd listens."""
        self.inits[node] = self._ask("power_on", node)

    def cut(self, node: str) -> None:
        """Pull a node's cable: connections go silent, with no FIN and no RST."""
        self.controller_exec(["ip", "link", "set", f"to-{node}", "down"], check=True)

    def heal(self, node: str) -> None:
        """Put a node's cable back."""
        self.controller_exec(["ip", "link", "set", f"to-{node}", "up"], check=True)

    def shape(self, rate: str, *nodes: str) -> None:
        """Limit what nodes (all if none is named) receive to a rate such as 1gbit.

        The bucket is smaller than one millisecond of 1 Gbit/s; `tc` counts whole Ethernet frames.
        """
        for node in nodes or self.machines:
            argv = ["tc", "qdisc", "replace", "dev", f"to-{node}", "root", "tbf"]
            self.controller_exec(
                [*argv, "rate", rate, "burst", "96kb", "latency", "20ms"], check=True
            )

    # Running things.

    def controller_argv(self, argv: Sequence[str]) -> list[str]:
        """Return the argv that runs a command in the controller's network, with its own pid."""
        return [
            "nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", "--",
            "env", f"{TOKEN}={self.folder}", *argv,
        ]  # fmt: skip

    def controller_exec(
        self, argv: Sequence[str], *, timeout: float = 240, check: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the controller's network to its end."""
        return _run(self.controller_argv(argv), timeout, check, **options)

    def controller_processes(self) -> list[psutil.Process]:
        """Return what runs in the controller's network; not the keeper, not the nodes."""
        found = in_namespace(self.keeper.pid, "net")
        return [process for process in found if process.pid != self.keeper.pid]

    def exec_in(
        self,
        node: str,
        argv: Sequence[str],
        *,
        user: User | None = None,
        timeout: float = 240,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node past ssh, as root or as one of its users."""
        home = "/root" if user is None else user.home
        switch = [] if user is None else [
            "setpriv", f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups", "--",
        ]  # fmt: skip
        pid = str(self._init(node))
        return _run(
            ["nsenter", "-t", pid, "-n", "-u", "-i", "-m", "-p", "-r", "-w", "--", *switch, *argv],
            timeout,
            check,
            env={"PATH": PATH, "HOME": home, "LC_ALL": "C"},
        )

    def path(self, node: str, path: str) -> Path:
        """Return the path here of a file on a running node."""
        return Path(f"/proc/{self._init(node)}/root") / path.lstrip("/")

    def processes(self, node: str) -> list[psutil.Process]:
        """Return what runs on a node, as processes of this machine that can be killed from here."""
        return in_namespace(self._init(node), "pid")

    def processes_with(self, node: str, *words: str) -> list[psutil.Process]:
        """Return those of a node's processes that have all these words among their arguments."""
        found = []
        for process in self.processes(node):
            try:
                if set(words) <= set(process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def _init(self, node: str) -> int:
        if node not in self.inits:
            raise LabError(f"node {node} is off")
        return self.inits[node]


def make_key(path: Path) -> str:
    """Write a new key pair; return the public one."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return path.with_name(f"{path.name}.pub").read_text()


def _run(
    argv: Sequence[str], timeout: float, check: bool, **options: Any
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, **options
    )
    if check and done.returncode:
        raise LabError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done
