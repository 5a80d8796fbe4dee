"""Parts of a machine that some tests need: missing ones skip with one line, or fail if required.

`SERVEMAP_REQUIRE=corpus,python38,...` names the parts whose absence is a failure.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


def _corpus() -> str | None:
    folder = os.environ.get("SERVEMAP_CORPUS")
    return folder if folder and (Path(folder) / "INDEX.tsv").is_file() else None


def _python38() -> str | None:
    named = os.environ.get("SERVEMAP_PYTHON38")
    candidates = [
        named,
        shutil.which("python3.8"),
        *map(str, (Path.home() / ".pyenv" / "versions").glob("3.8.*/bin/python")),
    ]
    for candidate in candidates:
        # What is on PATH may be a version manager's shim for a version that is not there.
        if candidate and not subprocess.run([candidate, "-c", ""], capture_output=True).returncode:
            return candidate
    return None


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _gpu() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool and not subprocess.run([tool, "-L"], capture_output=True).returncode:
        return tool
    return None


def _mount() -> str | None:
    """Where a tmpfs may be mounted: as root, in a container that allows it."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        if os.geteuid() or subprocess.run(argv, capture_output=True).returncode:
            return None
        subprocess.run(["umount", folder], check=True)
    return "tmpfs"


LAB_TOOLS = (
    "unshare", "nsenter", "setpriv", "ip", "mount", "pivot_root", "ssh", "ssh-keygen", "sudo",
    "/usr/sbin/sshd",
)  # fmt: skip
# One of everything that a lab is made of: namespaces, an overlay of the root, a bridge, a link.
LAB_TRIAL = """
mount -t tmpfs tmpfs "$0" && mkdir "$0/upper" "$0/work" "$0/root" &&
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" overlay "$0/root" &&
ip link add trial0 type bridge && ip link add trial1 type veth peer name trial2
"""


@cache
def _lab() -> str | None:
    """Whether `tests.lab` can make its machines here."""
    if os.geteuid() or not all(map(shutil.which, LAB_TOOLS)):
        return None
    with tempfile.TemporaryDirectory() as folder:
        spaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child"]
        argv = ["unshare", *spaces, "sh", "-c", LAB_TRIAL, folder]
        return None if subprocess.run(argv, capture_output=True).returncode else "namespaces"


PODMAN_CONF = Path(__file__).with_name("containers.conf")


@cache
def _podman() -> str | None:
    """The settings, for CONTAINERS_CONF, with which podman runs containers as root here."""
    if os.geteuid() or not all(map(shutil.which, ("podman", "runc"))):
        return None
    # No image is needed: the machine's own root, below a layer that is thrown away.
    argv = ["podman", "--runtime", "runc", "run", "--rm", "--net=host", "--ulimit", "host"]
    done = subprocess.run(
        [*argv, "--rootfs", "/:O", "true"],
        env={**os.environ, "CONTAINERS_CONF": str(PODMAN_CONF)},
        capture_output=True,
        timeout=60,
    )
    return None if done.returncode else str(PODMAN_CONF)


@cache
def _engine(package: str) -> str | None:
    """The interpreter that has an engine or a client: `make vllm` and its like put it there."""
    installed = Path(__file__).parents[1] / f".{package}" / "venv" / "bin" / "python"
    python = os.environ.get(f"SERVEMAP_{package.upper()}") or str(installed)
    found = f"import importlib.util as i, sys; sys.exit(i.find_spec({package!r}) is None)"
    if not Path(python).is_file() or subprocess.run([python, "-c", found]).returncode:
        return None
    return python


SHELLS = ("dash", "bash", "csh", "tcsh", "fish", "zsh", "ksh", "busybox")


def _shells() -> str | None:
    """Whether all login shells are here that a node's user may have."""
    return "all" if all(map(shutil.which, SHELLS)) else None


@cache
def _nsys() -> str | None:
    """Nsight Systems; it traces what the host does also where there is no card."""
    program = os.environ.get("SERVEMAP_NSYS") or shutil.which("nsys")
    if not program or subprocess.run([program, "--version"], capture_output=True).returncode:
        return None
    return program


TOOLS = ("mpstat", "pidstat", "sar", "numastat", "ethtool", "rdma")


def _sysstat() -> str | None:
    """Whether the tools are here that collectors run on any node."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return "all" if all(shutil.which(tool, path=path) for tool in TOOLS) else None


def _perf() -> str | None:
    """Where a perf is that may count what another process does."""
    tool = shutil.which("perf")
    argv = ["perf", "stat", "-e", "task-clock", "-p", str(os.getpid()), "--timeout", "10"]
    return tool if tool and not subprocess.run(argv, capture_output=True).returncode else None


PARTS: dict[str, tuple[Callable[[], str | None], str]] = {
    "corpus": (_corpus, "SERVEMAP_CORPUS names no folder of recorded tool output"),
    "python38": (_python38, "no Python 3.8 here; SERVEMAP_PYTHON38 may name one"),
    "mount": (_mount, "a small file system can be mounted by root only"),
    "lab": (_lab, "two machines in namespaces need root, iproute2, sudo and openssh-server"),
    "podman": (_podman, "podman with runc, as root, runs no container here"),
    "sshd": (_sshd, "there is no sshd (package openssh-server)"),
    "shells": (_shells, "not all login shells are here (tcsh, fish, zsh, ksh, busybox)"),
    "sysstat": (
        _sysstat,
        "not all of " + ", ".join(TOOLS) + " are here (sysstat, numactl, ethtool)",
    ),
    "perf": (_perf, "there is no perf that may count what a process does"),
    "vllm": (
        lambda: _engine("vllm"),
        "no vLLM here: make vllm, or SERVEMAP_VLLM names the Python that has it",
    ),
    "sglang": (
        lambda: _engine("sglang"),
        "no SGLang here: make sglang, or SERVEMAP_SGLANG names the Python that has it",
    ),
    "aiperf": (
        lambda: _engine("aiperf"),
        "no aiperf here: make aiperf, or SERVEMAP_AIPERF names the Python that has it",
    ),
    "nsys": (
        _nsys,
        "no Nsight Systems here (package nsight-systems); SERVEMAP_NSYS may name its nsys",
    ),
    "gpu": (_gpu, "no NVIDIA GPU here"),
}


def need(part: str) -> str:
    """Return where a part is; skip the test, or fail it where the part is required."""
    find, missing = PARTS[part]
    found = find()
    if found is not None:
        return found
    if part in os.environ.get("SERVEMAP_REQUIRE", "").split(","):
        pytest.fail(f"required part {part!r} is missing: {missing}")
    pytest.skip(f"part {part!r} is missing: {missing}")


def check_required() -> None:
    """Refuse a name in SERVEMAP_REQUIRE that no test knows, so that a typo proves nothing."""
    names = [name for name in os.environ.get("SERVEMAP_REQUIRE", "").split(",") if name]
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise pytest.UsageError(f"SERVEMAP_REQUIRE names unknown parts: {', '.join(unknown)}")
