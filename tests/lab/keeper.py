"""The process that owns a lab: the controller's network, the nodes' disks, the nodes themselves.

Started as `unshare --net --mount -- python keeper.py FOLDER PARENT`. No namespace of a lab has a
name, so nothing of it outlives this process and its children. It takes requests as lines of JSON on
stdin and answers each with one line; when stdin ends or the parent dies it tears down by itself.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.lab.traces import in_namespace, kill_all, with_token

BRIDGE = "lab0"
BOOT_TIMEOUT_S = 90.0
INIT = Path(__file__).with_name("node_init.py")


class Keeper:
    """The lab's kernel objects."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.running: dict[str, tuple[subprocess.Popen[str], int]] = {}

    def set_up(self) -> dict[str, int]:
        """Make the controller's network and boot all nodes; return the pids of their inits."""
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{self.config['controller']}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name, node in self.config["nodes"].items():
            disk = Path(node["disk"])
            disk.mkdir(parents=True)
            size = f"size={node['disk_bytes']},mode=755"
            run("mount", "-t", "tmpfs", "-o", size, f"lab-{name}", str(disk))
            files = disk / "upper" / node["files"].lstrip("/")
            if self.config["seed"] is None:
                files.mkdir(parents=True)
            else:
                shutil.copytree(self.config["seed"], files)
        for name in self.config["nodes"]:
            self.begin(name)
        return {name: self.await_ready(name) for name in self.config["nodes"]}

    def power_on(self, name: str) -> int:
        """Boot a node on the disk that it left; return the pid of its init."""
        self.begin(name)
        return self.await_ready(name)

    def begin(self, name: str) -> None:
        node = self.config["nodes"][name]
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--ipc",
                    "--mount", "--pid", "--fork", "--kill-child", sys.executable, "-I", "-S",
                    str(INIT),
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        init = only_child(process.pid)
        self.running[name] = (process, init)
        port = port_of(name)
        ip(
            "link", "add", port, "type", "veth",
            "peer", "name", "eth0", "address", node["mac"], "netns", str(init),
        )  # fmt: skip
        ip("link", "set", port, "master", BRIDGE, "up")
        assert process.stdin is not None
        process.stdin.write(json.dumps(node) + "\n")
        process.stdin.close()

    def await_ready(self, name: str) -> int:
        process, init = self.running[name]
        assert process.stdout is not None
        select.select([process.stdout], [], [], BOOT_TIMEOUT_S)
        os.set_blocking(process.stdout.fileno(), False)
        if (os.read(process.stdout.fileno(), 100) or b"") != b"ready\n":
            log = (self.folder / f"{name}.log").read_text()
            raise RuntimeError(f"node {name} does not boot: {log[-2000:]}")
        return init

    def power_off(self, name: str) -> None:
        """Take the cable out, then end everything on the node: no peer hears a FIN or RST."""
        process, init = self.running.pop(name)
        subprocess.run(["ip", "link", "delete", port_of(name)], capture_output=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)
        process.wait()

    def tear_down(self) -> None:
        """End all, in an order in which nothing can start anew; safe to call half set up."""
        for name in list(self.running):
            self.power_off(name)
        kill_all(self.controller_processes)
        for node in self.config["nodes"].values():
            subprocess.run(["umount", "-l", node["disk"]], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def controller_processes(self) -> list[psutil.Process]:
        """Processes in the controller's network, and those that it started elsewhere."""
        found = with_token(self.folder) + in_namespace(os.getpid(), "net")
        return [process for process in found if process.pid != os.getpid()]


def only_child(pid: int) -> int:
    """Return the pid of the child of `unshare`, which is the node's first process."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if children := psutil.Process(pid).children():
            return int(children[0].pid)
        time.sleep(0.005)
    raise RuntimeError("unshare made no child")


def port_of(node: str) -> str:
    """Return the controller's end of a node's link."""
    return f"to-{node}"


def ip(*args: str) -> None:
    run("ip", *args)


def run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")


def requests(parent: int) -> Iterator[dict[str, str]]:
    """Yield requests until stdin ends or the parent dies, whichever the kernel tells first."""
    watched = os.pidfd_open(parent)
    left = b""
    while True:
        ready, _, _ = select.select([0, watched], [], [])
        if watched in ready:
            return
        data = os.read(0, 65536)
        if not data:
            return
        *lines, left = (left + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


def serve(keeper: Keeper, parent: int) -> None:
    operations: dict[str, Callable[[str], Any]] = {
        "power_on": keeper.power_on,
        "power_off": keeper.power_off,
    }
    for request in requests(parent):
        try:
            answer: dict[str, Any] = {"ok": operations[request["do"]](request["node"])}
        except (RuntimeError, KeyError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


def main(folder: Path, parent: int) -> None:
    # A Ctrl-C is for the tests; this process ends after them, however they end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    keeper = Keeper(folder, json.loads((folder / "lab.json").read_text()))
    try:
        print(json.dumps({"ok": keeper.set_up()}), flush=True)
        serve(keeper, parent)
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    except BrokenPipeError:
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keeper.tear_down()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
