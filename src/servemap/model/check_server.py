"""Rules for the values of a server spec that would fail, or tell a secret, long after planning."""

import posixpath
import re
from collections.abc import Mapping
from itertools import pairwise
from urllib.parse import urlsplit

from servemap.model.container_args import check_container
from servemap.model.errors import ConfigError
from servemap.model.secret_names import is_secret_option, is_secret_variable
from servemap.model.server_spec import NodeSpec, PatchSpec, Secret, ServerSpec

RESERVED_FIELDS = frozenset(
    {
        "model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "n",
        "stream_options",
    }
)  # fmt: skip
"""Fields of a request that the load client sets itself."""

_BIND = re.compile(r"[A-Za-z0-9.:-]{1,253}")
_SECRET_REMEDY = "take it from your environment: server.env: {{ {name}: {{ secret: {name} }} }}"


def check_server(server: ServerSpec, prefix: str = "server") -> None:
    """Refuse a server spec with a secret in it, or with values that no process could be given.

    Raises:
        ConfigError: names the key; a value that may be a secret is never shown.
    """
    _check_env(server.env, f"{prefix}.env")
    _check_options(server, prefix)
    if server.container is not None:
        check_container(server.container, f"{prefix}.container")
    for name, value in server.request.items():
        if name in RESERVED_FIELDS:
            raise ConfigError(
                f"request field {name!r} (value: {value!r}) is set by the load client itself",
                f"{prefix}.request.{name}",
                "remove it; the case gives lengths, and the model's name is model.name",
            )
    if server.attach is not None:
        check_attach(server.attach, f"{prefix}.attach")
    if server.transport is not None:
        _check_transport(server, f"{prefix}.transport")
    if not _BIND.fullmatch(server.bind):
        raise ConfigError(
            f"{server.bind!r} is no address that a server can listen on",
            f"{prefix}.bind",
            "give an IP address or a host name, such as 127.0.0.1, 0.0.0.0 or ::",
        )
    for patch in server.patches:
        _check_target(patch, f"{prefix}.patches.{patch.id}.target")


def check_node_env(node: NodeSpec) -> None:
    """Refuse a node whose environment holds a secret."""
    _check_env(node.env, f"nodes.{node.id}.env")


def _check_env(env: Mapping[str, str | Secret], where: str) -> None:
    for name, value in env.items():
        if isinstance(value, str) and is_secret_variable(name, value):
            raise ConfigError(
                f"{name} looks like a secret, and its value stands in the campaign file",
                f"{where}.{name}",
                _SECRET_REMEDY.format(name=name),
            )


def _check_options(server: ServerSpec, prefix: str) -> None:
    container = server.container.args if server.container else []
    for name, value, where in (
        *((name, value, f"{prefix}.args.{name}") for name, value in server.args.items()),
        *((name, value, f"{prefix}.request.{name}") for name, value in server.request.items()),
        *((name, value, f"{prefix}.container.args") for name, value in _assignments(container)),
    ):
        if name not in RESERVED_FIELDS and is_secret_option(name, value):
            raise ConfigError(
                f"{name} looks like a secret, and its value stands in the campaign file",
                where,
                "engines read keys from the environment: remove it here and give the engine's "
                "variable as server.env: { NAME: { secret: NAME } }",
            )


def _assignments(words: list[str]) -> list[tuple[str, str]]:
    """Return the NAME, VALUE of every NAME=VALUE (also --option=NAME=VALUE) and --NAME VALUE."""
    found = []
    for word, following in pairwise([*words, ""]):
        parts = word.lstrip("-").split("=")
        found += list(pairwise(parts))
        if len(parts) == 1 and word.startswith("--") and not following.startswith("-"):
            found.append((parts[0], following))
    return found


def check_attach(url: str, where: str) -> None:
    """Refuse a URL that the load client cannot measure, or with a secret in it.

    Raises:
        ConfigError: names the key that `where` is.
    """
    remedy = "give http://HOST:PORT, with a path only where the server has one"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"not a URL: {error}", where, remedy) from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL holds a user name or password", where, remedy)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ConfigError("the URL has a query or a fragment", where, remedy)
    if parts.scheme == "https":
        raise ConfigError(
            f"{url!r} needs TLS, which the load client does not speak",
            where,
            "give the server's plain http address on a trusted network",
        )
    host = parts.hostname
    if (
        parts.scheme != "http"
        or not host
        or port == 0
        or not url.isascii()
        or any(letter <= " " or letter == "\x7f" for letter in url)
    ):
        raise ConfigError(f"{url!r} is no http:// address", where, remedy)


def _check_transport(server: ServerSpec, where: str) -> None:
    """Refuse to require paths of a server that gives no log of NCCL."""
    if server.attach is not None:
        raise ConfigError(
            "the gate reads the server's log, and this server is only attached to",
            where,
            "remove it, or remove `server.attach` and let servemap start the server",
        )
    if server.engine == "llamacpp" and server.transport and server.transport.asks_paths:
        raise ConfigError(
            "the gate reads NCCL's log, and llamacpp does not use NCCL", where, "remove it"
        )


def _check_target(patch: PatchSpec, where: str) -> None:
    """Refuse a target that lies outside its root as written; the node looks again at its links."""
    if posixpath.isabs(patch.target) != posixpath.isabs(patch.root):
        return  # where a relative path starts is known on the node only
    if not patch.target or not patch.root:
        raise ConfigError("the target or the root is empty", where, "give both as paths")
    way = posixpath.relpath(patch.target, patch.root)
    if way == ".." or way.startswith("../") or (way == "." and patch.kind != "folder"):
        raise ConfigError(
            f"the target {patch.target!r} is outside its root {patch.root!r}",
            where,
            "mend the target, or give as root the folder that it may lie in",
        )
