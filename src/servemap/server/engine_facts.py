"""What servers without a container run on a node: their interpreters and their package's files.

What is in a container is the image's, which is compared by its id.
"""

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servemap.engines.base import interpreter, on_node
from servemap.model.baselines import CollectiveBaseline
from servemap.model.server_spec import PatchSpec, ServerSpec
from servemap.server.context import Context

MAX_FILES_NAMED = 10
PYTHON, FILES = "engine_python", "engine_files"


def is_bare(server: ServerSpec) -> bool:
    """Whether a server of ours runs under the node's own software."""
    return server.container is None and not server.attach


def engine_request(context: Context, node_id: str) -> dict[str, list[str]]:
    """Return what the agent of a node is asked (see `onnode/facts.py`), for all variants there."""
    base = _base(context, node_id)
    servers = [
        server
        for variant in context.plan.variants
        if node_id in context.plan.nodes_of(variant) and is_bare(server := context.server(variant))
    ]
    pythons = {interpreter(server, context.python_on(node_id), base) for server in servers}
    pythons |= {
        baseline_python(context, one, node_id, base)
        for one in context.plan.baselines.values()
        if isinstance(one, CollectiveBaseline) and is_bare(_with_python(context, one))
    }
    folders = {package_folder(server, base) for server in servers}
    apart = {
        path for server in servers for patch in server.patches for path in _changes(patch, base)
    }
    return {
        "pythons": sorted(pythons),
        "packages": sorted(folder for folder in folders if folder),
        "apart": sorted(apart),
    }


def baseline_python(context: Context, baseline: CollectiveBaseline, node_id: str, base: str) -> str:
    """Return the interpreter of a baseline's ranks on a node, the server's own by default.

    `base` is what relative paths begin with.
    """
    return interpreter(_with_python(context, baseline), context.python_on(node_id), base)


def _with_python(context: Context, baseline: CollectiveBaseline) -> ServerSpec:
    """Return the server spec with the interpreter that a baseline names, which is a bare one."""
    server = context.plan.campaign.server
    if baseline.python is None:
        return server
    return server.model_copy(update={"python": baseline.python, "container": None, "attach": None})


def _base(context: Context, node_id: str) -> str:
    """Return what relative paths begin with: nothing here, so that a moved checkout has the same.

    The agent on this machine runs in the working directory.
    """
    return "" if context.nodes[node_id].here else context.paths_from(node_id)


def package_folder(server: ServerSpec, base: str) -> str | None:
    """Return the folder of the server's package; None where the spec names none."""
    if server.package is None:
        return None
    return posixpath.join(on_node(server.package.root, base), server.package.name)


def _changes(patch: PatchSpec, base: str) -> list[str]:
    """Return what a patch changes on a node; of a folder that is laid over, its files."""
    target = on_node(patch.target, base)
    if patch.kind != "folder":
        return [target]
    source = Path(patch.source)
    return [
        posixpath.join(target, path.relative_to(source).as_posix())
        for path in source.rglob("*")
        if not path.is_dir() or path.is_symlink()
    ]


def engine_of(
    context: Context, variant: str, node_id: str, facts: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return `{"python", "files"}` that a variant's server runs on a node, of its frozen facts.

    Returns:
        sections as in `onnode/facts_engine.py`, None for what was not recorded; `files` is left
        out where the spec names no package. None for a server that is not bare.
    """
    server = context.server(variant)
    if not is_bare(server):
        return None
    python = interpreter(server, context.python_on(node_id), _base(context, node_id))
    found = {"python": _section(facts, PYTHON).get(python)}
    folder = package_folder(server, _base(context, node_id))
    if folder:
        files = _section(facts, FILES)
        found["files"] = files if "error" in files else files.get(folder)
    return found


def engine_drift(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return in words what is no longer as it was frozen.

    What was not frozen, or is of no server any more, is not compared.
    """
    found = []
    for python, then in _section(before, PYTHON).items():
        now = _section(after, PYTHON).get(python)
        if "error" in then or now is None:
            continue
        if "error" in now:
            found.append(f"{python} does not answer any more: {now['error']}")
        else:
            changes = differences(flat_python(then), flat_python(now))
            found += [f"{python}: {text}" for text in changes]
    for folder, then in _section(before, FILES).items():
        now = _section(after, FILES).get(folder)
        if isinstance(then, dict) and then.get("files") and now is not None:
            found += [f"files of {text}" for text in _file_drift(folder, then, now)]
    return found


def _file_drift(folder: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the files that changed; not those that a patch changes, in either state."""
    apart = [str(name) for record in (then, now) for name in record.get("apart") or []]

    def counted(record: Mapping[str, Any]) -> dict[str, str]:
        return {
            f"{folder}/{name}": str(digest)
            for name, digest in _section(record, "digests").items()
            if not any(name == one or name.startswith(f"{one}/") for one in apart)
        }

    found = differences(counted(then), counted(now))
    more = len(found) - MAX_FILES_NAMED
    return found[:MAX_FILES_NAMED] + ([f"{folder}: {more} more"] if more > 0 else [])


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return `KEY was A, is B` of every key that was there before and changed, and of new ones."""
    return [
        f"{key} was {before.get(key, 'not there')}, is {after.get(key, 'gone')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def flat_python(record: Mapping[str, Any]) -> dict[str, str]:
    """Return an interpreter's version and packages as {key: text}."""
    version = record.get("version")
    found = {} if version is None else {"version": str(version)}
    for name, one in sorted(_section(record, "packages").items()):
        found[f"package {name}"] = str(one)
    return found


def _section(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = facts.get(name)
    return section if isinstance(section, dict) else {}
