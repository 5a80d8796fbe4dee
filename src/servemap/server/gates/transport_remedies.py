"""What to do where NCCL took another path or was slow: the entries of transport.yaml."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from servemap.model.server_spec import Container
from servemap.server.gates.transport_paths import Connected


@cache
def remedy_table() -> list[dict[str, Any]]:
    """Return the entries of transport.yaml, in their order."""
    text = files("servemap.server.gates").joinpath("transport.yaml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = yaml.safe_load(text)
    return entries


def remedies(
    kinds: Sequence[str],
    seen: Connected,
    envs: Sequence[Mapping[str, str]],
    container: Container | None,
) -> list[str]:
    """Return what to do about problems, each thing once.

    Args:
        kinds: keys `problem` of transport.yaml.
        seen: what the logs show.
        envs: the environment of the ranks.
        container: that they ran in.
    """
    values = {name: ", ".join(said) for name, said in seen.environment.items()}
    for env in envs:
        values |= env
    found: dict[str, None] = {}
    for kind in dict.fromkeys(kinds):
        entries = [entry for entry in remedy_table() if entry["problem"] == kind]
        counting = [entry for entry in entries if _counts(entry, values, seen, container)]
        if all(entry.get("hint") for entry in counting):
            counting += [entry for entry in entries if _is_general(entry)]
        for entry in counting:
            name = str(entry.get("variable"))
            found[str(entry["remedy"]).format(value=values.get(name))] = None
    return list(found)


def _is_general(entry: Mapping[str, Any]) -> bool:
    return not {"variable", "finding", "container"} & {*entry}


def _counts(
    entry: Mapping[str, Any],
    values: Mapping[str, str],
    seen: Connected,
    container: Container | None,
) -> bool:
    if name := entry.get("variable"):
        value = values.get(name)
        return value is not None and bool(
            re.fullmatch(entry.get("value", ".*"), value, re.IGNORECASE)
        )
    if finding := entry.get("finding"):
        return finding in seen.findings
    if path := entry.get("container"):
        return container is not None and not _is_given(container, path)
    return False


def _is_given(container: Container, path: str) -> bool:
    """Return whether a container is given a path of the host, or all its devices."""
    words = [*container.devices, *container.mounts, *container.args]
    return any(path in word or word.startswith("--privileged") for word in words)
