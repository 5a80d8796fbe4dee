"""The gate `nodes_agree`: what should be the same on all nodes of a variant and is not."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from servemap.onnode.ask import shorten
from servemap.server.gates.checks import Check

MAX_NAMED = 20
MAX_VALUE_CHARS = 60
NAME = "nodes_agree"

FACTS = (
    ("kernel", "release"),
    ("kernel", "machine"),
    ("kernel", "libc"),
    ("cpu", "model"),
    ("cpu", "smt"),
)
"""Plain facts of `freeze/NODE.json`; what is a list or a table is taken apart below."""

CARD_LINES = (
    "Driver Version",
    "CUDA Version",
    "Product Name",
    "MARKET_NAME",
    "VBIOS Version",
    "Card Series",
    "Attached GPUs",
)
"""Lines `NAME : VALUE` that the vendors' tools print of the driver and of each card."""

_CARD_LINE = re.compile(
    r"^\s*(?:GPU\[\d+\]\s*:\s*)?(" + "|".join(CARD_LINES) + r")\s*:\s*(\S.*?)\s*$",
    re.IGNORECASE | re.MULTILINE,
)

Values = dict[str, str]


def nodes_agree(
    facts: Mapping[str, Mapping[str, Any] | None],
    patches: Mapping[str, Mapping[str, Any] | None],
) -> Check:
    """Compare the nodes of one variant.

    Host names, addresses, times, serial numbers and what a node has free do not count.

    Args:
        facts: the frozen facts by node, None where there are none; the key `engine` holds what the
            variant's server runs there (see `server/engine_facts.py`) where it has no container.
        patches: `server/VARIANT/patches/NODE.json` by node, None where there is none.

    Returns:
        a failed check that names each key and its values; `ok` is None where something could not
        be compared and nothing else differs.
    """
    if len(facts) < 2:
        return Check(NAME, True, "there is one node only")
    unknown: dict[str, dict[str, str]] = {}
    values: dict[str, Values] = {}
    for node_id, of_node in facts.items():
        if of_node is None:
            unknown[node_id] = {"all": "no frozen facts"}
            continue
        unknown[node_id] = dict(_unread(of_node))
        values[node_id] = dict(_comparable(of_node))
    told = [node_id for node_id, of_node in facts.items() if of_node is not None]
    unread = {section for reasons in unknown.values() for section in reasons}
    different = [
        line for line in _differences(values, told) if line.partition(".")[0] not in unread
    ]
    different += _differences({node: dict(_patched(patches.get(node))) for node in facts}, [*facts])
    reasons = [
        f"{section} of {node_id}: {why}"
        for node_id, found in unknown.items()
        for section, why in found.items()
    ]
    if different:
        more = len(different) - MAX_NAMED
        named = different[:MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
        return Check(
            NAME,
            False,
            "; ".join([*named, *reasons[:MAX_NAMED]]),
            "bring the nodes to the same versions and files, then freeze anew with -f on "
            "freeze/NODE.json",
        )
    if reasons:
        return Check(
            NAME,
            None,
            "not compared: " + "; ".join(reasons[:MAX_NAMED]),
            "mend what could not be read, then freeze anew with -f on freeze/NODE.json",
        )
    compared = sum(len(found) for found in values.values()) // len(values)
    return Check(NAME, True, f"{', '.join(facts)} agree in {compared} facts and their patches")


def one_machine(facts: Mapping[str, Mapping[str, Any] | None]) -> str | None:
    """Return in words which nodes are the same machine, None where all are different ones.

    One kernel may be several machines, each of a host name of its own, such as containers are.
    """
    known: dict[tuple[str, str], str] = {}
    for node_id, of_node in facts.items():
        kernel = _section(of_node or {}, "kernel")
        boot, host = kernel.get("boot_id"), kernel.get("hostname")
        if boot and host:
            first = known.setdefault((str(boot), str(host)), node_id)
            if first != node_id:
                return f"{first} and {node_id} are the same machine, {host}"
    return None


def _differences(values: Mapping[str, Values], nodes: list[str]) -> list[str]:
    """Return `KEY: VALUE (NODES), VALUE (NODES)` of every key in which nodes differ."""
    found = []
    for key in dict.fromkeys(key for of_node in values.values() for key in of_node):
        groups: dict[str, list[str]] = {}
        for node_id in nodes:
            value = values[node_id].get(key, "nothing")
            groups.setdefault(value, []).append(node_id)
        if len(groups) > 1:
            said = (f"{_cut(value)} ({', '.join(ids)})" for value, ids in groups.items())
            found.append(f"{key}: {', '.join(said)}")
    return found


def _cut(value: str) -> str:
    return shorten(value, MAX_VALUE_CHARS)


def _section(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = facts.get(name)
    return section if isinstance(section, dict) else {}


def _unread(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the sections that a node could not read as a whole, and why."""
    for name in ("kernel", "cpu", "accelerators", "models"):
        section = facts.get(name)
        if not isinstance(section, dict):
            yield name, "not recorded"
        elif "error" in section:
            yield name, _cut(str(section["error"]))
    for key, section in _section(facts, "engine").items():
        if not isinstance(section, dict):
            yield f"engine {key}", "not recorded"
        elif "error" in section:
            yield f"engine {key}", _cut(str(section["error"]))


def _comparable(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts that should be the same on all nodes, what matters most first."""
    for name, key in FACTS:
        value = _section(facts, name).get(key)
        if value is not None:
            yield f"{name}.{key}", _say(value)
    yield from _cards(_section(facts, "accelerators"))
    yield from _hcas(_section(facts, "nics"))
    yield from _models(_section(facts, "models"))
    yield from _engine(_section(facts, "engine"))


def _engine(engine: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the sources of the server's package, then version and packages of its interpreter."""
    files, python = _section(engine, "files"), _section(engine, "python")
    if files.get("errors"):
        yield "engine files.errors", _say_list(files["errors"])
    for name, digest in sorted(_section(files, "digests").items()):
        yield f"engine files.{name}", str(digest)
    if python.get("version") is not None:
        yield "engine python.version", str(python["version"])
    for package, version in sorted(_section(python, "packages").items()):
        yield f"engine python.packages.{package}", str(version)


def _say(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} x {name}" for name, count in sorted(value.items()))
    return str(value)


def _cards(accelerators: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the vendors' tools say of drivers and cards, equal values counted."""
    tools = accelerators.get("tools")
    for command, record in sorted(tools.items()) if isinstance(tools, dict) else ():
        if not isinstance(record, dict):
            continue
        worked = record.get("code") == 0
        yield f"accelerators.{command}", "answers" if worked else "fails"
        counts: dict[str, Counter[str]] = {}
        for name, value in _CARD_LINE.findall(str(record.get("stdout", ""))) if worked else ():
            counts.setdefault(name.lower(), Counter())[value] += 1
        for name, counted in counts.items():
            yield f"accelerators.{command}.{name}", _say(counted)


def _hcas(nics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rdma = nics.get("rdma")
    if isinstance(rdma, dict) and rdma:
        devices = [one for one in rdma.values() if isinstance(one, dict)]
        firmware = Counter(str(one.get("firmware") or "unknown") for one in devices)
        yield "nics.rdma.firmware", _say(firmware)


def _models(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the digest of each model file, its size where it has none, and what is wrong."""
    models = section.get("models")
    for model in models if isinstance(models, list) else ():
        if not isinstance(model, dict):
            continue
        path = model.get("path")
        if model.get("errors"):
            yield f"models.{path}", _say_list(model["errors"])
        files = model.get("files")
        for item in files if isinstance(files, list) else ():
            if isinstance(item, dict):
                digest = item.get("sha256")
                value = str(digest)[:12] if digest else _say_list(item.get("errors"))
                yield f"models.{path}:{item.get('name')}", value


def _say_list(errors: Any) -> str:
    return "; ".join(map(str, errors)) if isinstance(errors, list) else str(errors)


def _patched(record: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield what the patches of a node made of each file."""
    if record is None:
        yield "patches", "no record"
        return
    if record.get("status") != "ok":
        yield "patches", f"{record.get('status')}: {_say_list(record.get('reasons'))}"
    patches = record.get("patches")
    for patch_id, patch in sorted(patches.items()) if isinstance(patches, dict) else ():
        files = patch.get("files") if isinstance(patch, dict) else None
        for item in files if isinstance(files, list) else ():
            if isinstance(item, dict):
                digest, goal = item.get("sha256_after"), item.get("goal_after")
                made = str(digest)[:12] if digest else f"link to {goal}" if goal else "no file"
                mode = item.get("mode_after")
                yield f"patches.{patch_id}.{item.get('path')}", f"{made}, mode {mode}"
