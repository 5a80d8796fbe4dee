"""The ssh transport against OpenSSH's own client, with the same sshd on loopback."""

import os
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from servemap.model.errors import ConnectionLostError
from servemap.nodes.ssh import SshNode
from tests.unit.nodes.sshd import HOST, Sshd

COMMAND_LIMIT_MS = 10.0
FETCH_LIMIT = 0.5
SILENT_LIMIT_S = 8.0
FILES, FILE_BLOCKS, BLOCK = 8, 128, 1 << 20
TURNS, CALLS = 3, 100


def seconds(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def median_ms(call: Callable[[], object], calls: int = CALLS) -> float:
    return round(statistics.median(seconds(call) for _ in range(calls)) * 1e3, 2)


def ssh_argv(server: Sshd, *command: str) -> list[str]:
    options = ["-F", "none", "-o", f"UserKnownHostsFile={server.known_hosts}"]
    return ["ssh", *options, "-i", str(server.key), "-p", str(server.port), HOST, *command]


def tar_over_ssh(server: Sshd, source: Path, target: Path) -> None:
    target.mkdir()
    command = ssh_argv(server, "tar", "-C", str(source), "-cf", "-", ".")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sender:
        subprocess.run(["tar", "-C", str(target), "-xf", "-"], stdin=sender.stdout, check=True)
    if sender.returncode:
        raise RuntimeError(f"ssh ended with {sender.returncode}")


def transfers(server: Sshd, node: SshNode, folder: Path) -> dict[str, Any]:
    source = folder / "source"
    source.mkdir()
    for number in range(FILES):
        with (source / f"file{number}").open("wb") as handle:
            for _ in range(FILE_BLOCKS):
                handle.write(os.urandom(BLOCK))
    times: dict[str, list[float]] = {"tar_ssh_s": [], "fetch_s": []}
    for _ in range(TURNS):
        tar, fetched = folder / "tar", folder / "fetched"
        times["tar_ssh_s"].append(seconds(lambda to=tar: tar_over_ssh(server, source, to)))
        shutil.rmtree(tar)
        times["fetch_s"].append(seconds(lambda to=fetched: node.fetch(str(source), to)))
        shutil.rmtree(fetched)
    best = min(times["tar_ssh_s"]) / min(times["fetch_s"])
    middle = statistics.median(times["tar_ssh_s"]) / statistics.median(times["fetch_s"])
    return {
        "bytes": FILES * FILE_BLOCKS * BLOCK,
        **{name: [round(one, 2) for one in found] for name, found in times.items()},
        "ratio_best": round(best, 2),
        "ratio_medians": round(middle, 2),
    }


def silence_s(server: Sshd, node: SshNode) -> float:
    """Return how long a call takes to notice that the node's sshd was stopped."""
    node.state_dir()
    stopped: list[float] = []

    def stop() -> None:
        for process in server.connections():
            process.send_signal(signal.SIGSTOP)
        stopped.append(time.monotonic())

    timer = threading.Timer(1.0, stop)
    timer.start()
    try:
        node.run(["sleep", "60"], timeout_s=60)
    except ConnectionLostError:
        return round(time.monotonic() - stopped[0], 2)
    finally:
        timer.join()
        for process in server.connections():
            process.kill()
    raise RuntimeError("the call ended as if nothing had happened")


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures; nothing of them leaves this machine."""
    server, between = Sshd(folder / "sshd"), Sshd(folder / "between")
    load = [os.getloadavg()[0]]
    try:
        server.start()
        between.start()
        shutil.copy(f"{server.key}.pub", between.folder / "authorized_keys")
        both = folder / "known"
        both.write_text(server.known_hosts.read_text() + between.known_hosts.read_text())
        node = server.node()

        def connect() -> None:
            node.close()
            node.state_dir()

        log = str(folder / "log")
        new_ssh = ssh_argv(server, "true")
        figures = {
            "connect_ms": median_ms(connect, 10),
            "new_ssh_ms": median_ms(lambda: subprocess.run(new_ssh, check=True), 10),
            "true_ms": median_ms(lambda: node.run(["true"], timeout_s=10)),
            "spawn_ms": median_ms(lambda: node.spawn(["true"], log=log), 20),
        }
        process = node.spawn(["sleep", "600"], log=log)
        figures["alive_ms"] = median_ms(lambda: node.alive(process))
        node.stop(process, 1.0)
        fetch = transfers(server, node, folder)
        jump = server.node(jump=f"{HOST}:{between.port}", known_hosts=str(both))
        silent = {"direct_s": silence_s(server, node), "jump_s": silence_s(server, jump)}
        load.append(os.getloadavg()[0])
        return {**figures, "fetch": fetch, "silent": silent, "load_average": load}
    finally:
        server.stop()
        between.stop()


def broken(figures: dict[str, Any]) -> list[str]:
    """Return the limits that the figures break."""
    found = []
    if figures["true_ms"] > COMMAND_LIMIT_MS:
        found.append(f"trivial command: {figures['true_ms']} ms, limit {COMMAND_LIMIT_MS}")
    ratio = figures["fetch"]["ratio_best"]
    if ratio < FETCH_LIMIT:
        found.append(f"fetch: {ratio} of the speed of tar through ssh, limit {FETCH_LIMIT}")
    found += [
        f"silent peer, {name}: {value} s, limit {SILENT_LIMIT_S}"
        for name, value in figures["silent"].items()
        if value > SILENT_LIMIT_S
    ]
    return found
