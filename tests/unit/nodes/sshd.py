"""A real sshd on loopback with keys, trust and a home folder of its own."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from servemap.model.server_spec import NodeSpec
from servemap.nodes.ssh import SshNode
from tests.waiting import WAIT_S

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as handle:
        handle.bind((HOST, 0))
        return int(handle.getsockname()[1])


def keygen(path: Path, *options: str) -> Path:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path), *options]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


class Sshd:
    """sshd for the current user; `home` has a space in its name.

    Args:
        extra: lines of sshd_config.
    """

    def __init__(self, folder: Path, *extra: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.home = folder / "the home"
        self.home.mkdir()
        self.key = keygen(folder / "key")
        self.host_key = keygen(folder / "host_key")
        self.known_hosts = folder / "known_hosts"
        self.port = free_port()
        self.trust(self.host_key)
        self.nodes: list[SshNode] = []
        shutil.copy(f"{self.key}.pub", folder / "authorized_keys")
        # sshd takes the first value it meets
        lines = [
            *extra,
            f"Port {self.port}",
            f"ListenAddress {HOST}",
            f"HostKey {self.host_key}",
            f"PidFile {folder / 'pid'}",
            f"AuthorizedKeysFile {folder / 'authorized_keys'}",
            f'SetEnv HOME="{self.home}" PATH={Path(sys.executable).parent}:/usr/bin:/bin',
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "LogLevel VERBOSE",
        ]
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def trust(self, key: Path, host: str | None = None) -> None:
        """Make this the only trusted host key, of this sshd."""
        kind, data = Path(f"{key}.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"{host or f'[{HOST}]:{self.port}'} {kind} {data}\n")

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert program is not None, "there is no sshd"
        argv = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + WAIT_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        for node in self.nodes:
            node.close()
        if self._process is not None:
            for process in [*self.children(), psutil.Process(self._process.pid)]:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            self._process.wait()
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def left(self) -> list[psutil.Process]:
        """What was started through this sshd and outlived its connection: its home tells."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home):
                    found.append(process)
        return found

    def children(self) -> list[psutil.Process]:
        """The processes that sshd has for its connections, and what runs in them."""
        assert self._process is not None
        return psutil.Process(self._process.pid).children(recursive=True)

    def connections(self) -> list[psutil.Process]:
        """The sshd processes of the connections."""
        return [child for child in self.children() if child.name() == "sshd"]

    def logins(self) -> int:
        """How often somebody was let in."""
        return (self.folder / "log").read_text().count("Accepted publickey")

    def spec(self, **keys: Any) -> NodeSpec:
        values: dict[str, Any] = {
            "id": "far",
            "transport": "ssh",
            "address": HOST,
            "port": self.port,
            "user": getpass.getuser(),
            "key_file": str(self.key),
            "known_hosts": str(self.known_hosts),
            **keys,
        }
        return NodeSpec.model_validate(values)

    def node(self, **keys: Any) -> SshNode:
        node = SshNode(self.spec(**keys))
        self.nodes.append(node)
        return node
