"""podman with a store of its own, and an image that is nearly empty: the host's files are mounted.

The store, its locks and its helper files lie in one folder; `close` removes them all.
"""

import contextlib
import os
import shutil
import site
import subprocess
import sys
import tarfile
import time
from pathlib import Path

IMAGE = "localhost/near-empty:1"
MADE_FOLDERS = ("usr", "lib", "lib64", "etc", "tmp", "proc", "sys", "dev", "run", "root")


class Podman:
    """A store in a folder; `env` makes every podman in that environment use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        engine = folder / "containers.conf"
        engine.write_text(
            "[containers]\ndefault_ulimits = []\n"
            '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "file"\n'
            f'lock_type = "file"\ntmp_dir = "{folder / "tmp"}"\n'
        )
        storage = folder / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "overlay"\nrunroot = "{folder / "run"}"\n'
            f'graphroot = "{folder / "graph"}"\n'
            '[storage.options.overlay]\nmount_program = "/usr/bin/fuse-overlayfs"\n'
        )
        self.env = {"CONTAINERS_CONF": str(engine), "CONTAINERS_STORAGE_CONF": str(storage)}

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["podman", *words], env={**os.environ, **self.env}, capture_output=True, text=True
        )
        if done.returncode:
            raise AssertionError(f"podman {' '.join(words)}: {done.stderr}")
        return done.stdout

    def import_image(self, name: str = IMAGE) -> None:
        archive = self.folder / "image.tar"
        with tarfile.open(archive, "w") as tar:
            for made in MADE_FOLDERS:
                entry = tarfile.TarInfo(made)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
        self("import", str(archive), name)
        archive.unlink()

    def containers(self) -> list[str]:
        return self("ps", "-aq", "--no-trunc").split()

    def helpers(self) -> list[int]:
        """Processes that this store's containers are watched by."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (
                    entry.name.isdigit()
                    and str(self.folder / "run").encode() in (entry / "cmdline").read_bytes()
                ):
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """Remove everything, and say what is left of it."""
        with contextlib.suppress(AssertionError):
            self("rm", "-f", "-a", "-t", "0")
        with contextlib.suppress(AssertionError):
            self("rmi", "-f", "-a")
        deadline = time.monotonic() + 60
        while self.helpers() and time.monotonic() < deadline:
            time.sleep(0.05)
        for mount in reversed(self.mounts()):
            subprocess.run(["umount", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        assert not self.helpers()
        assert not self.mounts()
        assert not self.folder.exists()

    def mounts(self) -> list[str]:
        lines = Path("/proc/self/mounts").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[1].startswith(str(self.folder))]


def host_mounts(*more: Path) -> list[str]:
    """Return mounts of what this Python needs, and of some more folders, all read-only."""
    folders = [
        Path("/usr"),
        Path(sys.prefix),
        Path(sys.base_prefix).resolve(),
        *(Path(one) for one in site.getsitepackages()),
        *more,
    ]
    outer: list[Path] = []
    for folder in folders:
        if folder.exists() and not any(folder.is_relative_to(one) for one in outer):
            outer.append(folder)
    words = [f"{one}:{one}:ro" for one in outer]
    for link in ("/lib", "/lib64"):
        if Path(link).exists():
            words.append(f"{Path(link).resolve()}:{link}:ro")
    return words
