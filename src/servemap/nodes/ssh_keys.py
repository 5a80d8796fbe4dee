"""Strict host keys: one file says whom to trust, and nobody else is let in."""

from pathlib import Path
from typing import Any

import paramiko

from servemap.model.errors import NodeError

HOST_KEY = "ssh-keygen -lf /etc/ssh/ssh_host_TYPE_key.pub"


def known_hosts_file(given: str | None, host: str, port: int) -> Path:
    """Return the file of trusted host keys; `host` and `port` are whose key is looked for.

    Raises:
        NodeError: it is not there or cannot be read.
    """
    path = Path(given or "~/.ssh/known_hosts").expanduser()
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise NodeError(
            f"the file of trusted host keys cannot be read: {error.strerror}",
            str(path),
            f"`ssh-keyscan -p {port} {host} >> {path}` writes the keys that the machine shows; "
            f"compare each with `{HOST_KEY}` on that machine; or name another file as known_hosts",
        ) from error


class RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Refuses a machine whose key is not known, and says what key it showed."""

    def __init__(self, where: str, path: Path) -> None:
        self._where = where
        self._path = path

    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        """Raise NodeError; called by paramiko for a host without an entry."""
        del client
        raise NodeError(
            f"the host key of {hostname} is not known: {key.get_name()} {key.fingerprint}",
            f"{self._where}, known_hosts {self._path}",
            f"compare with `{HOST_KEY}` on that machine; if it is the same, add the line "
            f"`{hostname} {key.get_name()} {key.get_base64()}`",
        )


def changed(where: str, path: Path, error: paramiko.BadHostKeyException) -> NodeError:
    """Return the error for a machine that shows another key than the one that is trusted."""
    return NodeError(
        f"the host key of {error.hostname} has changed: it shows {error.key.get_name()} "
        f"{error.key.fingerprint}, trusted is {error.expected_key.get_name()} "
        f"{error.expected_key.fingerprint}",
        f"{where}, known_hosts {path}",
        "find out why before anything else, it may be another machine; if it was set up anew, "
        f"compare with `{HOST_KEY}` there and replace its line",
    )
