"""Frozen facts of the nodes: taken once, compared before every start of a server."""

import json
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import servemap
from servemap.model import results
from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.model.canon import write_json_atomic
from servemap.model.errors import NodeError
from servemap.model.grids import variants_of
from servemap.model.protocol import SCHEMA
from servemap.model.resolve import variant_server
from servemap.model.server_spec import Secret
from servemap.nodes.agent_json import agent_json
from servemap.nodes.base import Node
from servemap.onnode.redact import REDACTED, redact_value
from servemap.server.container.images import images_there
from servemap.server.context import Context
from servemap.server.engine_facts import engine_drift, engine_request
from servemap.server.launch.search_path import used_paths
from servemap.server.patches import refuse_others

FACTS_TIMEOUT_S = 600.0
"""Checksums of a large model are read once; later calls take them from the cache."""

DRIFT_KEYS = (("kernel", "release"), ("cpu", "model"), ("python", "version"))
"""Facts beside model files and packages whose change makes results incomparable."""


def take_facts(context: Context, node_id: str) -> dict[str, Any]:
    """Return the facts of a node, from the agent there, and those of the controller.

    Raises:
        NodeError: the agent did not answer with facts.
    """
    campaign = context.plan.campaign
    node = context.nodes[node_id]
    argv = ["--cache", f"{context.workdir(node_id)}/checksums.json"]
    for path in (campaign.model.path, *campaign.freeze.files):
        argv += ["--model", path]
    argv += ["--env-prefix", ",".join(campaign.freeze.env_prefixes)]
    engine = engine_request(context, node_id)
    facts = _facts(node, *argv, "--engine", text=json.dumps(engine))
    environment = facts.get("env")
    if isinstance(environment, dict):
        hidden = secret_names(campaign)
        facts["env"] = {k: REDACTED if k in hidden else v for k, v in environment.items()}
    return {**facts, "workflow": workflow_facts()}


def secret_names(campaign: Campaign) -> set[str]:
    """Return the variables that a campaign declares as secrets, here and at the server."""
    servers = [variant_server(campaign, variant) for variant in variants_of(campaign)]
    found = set()
    for server in [campaign.server, *servers]:
        for name, value in server.env.items():
            if isinstance(value, Secret):
                found |= {name, value.secret}
    return found


def take_state(context: Context, node_id: str) -> dict[str, Any]:
    """Return the volatile part: cards, containers, network.

    Raises:
        NodeError: the agent did not answer.
    """
    return _facts(context.nodes[node_id], "--state")


def _facts(node: Node, *args: str, text: str | None = None) -> dict[str, Any]:
    facts = agent_json(node, "facts", *args, timeout_s=FACTS_TIMEOUT_S, text=text)
    if not isinstance(facts, dict) or not facts:
        raise NodeError(
            f"the agent gave no facts: {str(facts)[:100]}",
            f"node {node.name}",
            "see what the login shell of that user prints; nothing else may write to stdout",
        )
    return dict(redact_value(facts))


def workflow_facts() -> dict[str, Any]:
    """Return the workflow's version, commit, whether its tree is clean, and its packages."""
    root = Path(__file__).parent

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *args], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {
        "servemap": servemap.__version__,
        "commit": git("rev-parse", "HEAD"),
        "tree_clean": None if status is None else status == "",
        "changed_files": (status or "").splitlines()[:50],
        "python": sys.version.split()[0],
        "packages": {item.metadata["Name"]: item.version for item in distributions()},
    }


def freeze_node(context: Context, node_id: str, output: Path, before: Path) -> None:
    """Write the frozen facts of a node and its state before the run.

    Raises:
        NodeError: the agent did not answer with facts.
        PatchError: another campaign has patched what a server of this one uses.
    """
    now = time.time_ns()
    here = [name for name in context.plan.variants if node_id in context.plan.nodes_of(name)]
    uses = used_paths(context, here, node_id)
    refuse_others(context.nodes[node_id], context.workdir(node_id), uses)
    facts = take_facts(context, node_id)
    head = {"schema": SCHEMA, "node": node_id, "taken_ns": now}
    write_json_atomic(before, {**head, "state": take_state(context, node_id)})
    write_json_atomic(output, {**head, "facts": facts, "images": images_there(context, node_id)})


def snapshot_node(context: Context, node_id: str, output: Path) -> None:
    """Write the state of a node after the run."""
    head = {"schema": SCHEMA, "node": node_id, "taken_ns": time.time_ns()}
    write_json_atomic(output, {**head, "state": take_state(context, node_id)})


def frozen(context: Context, node_id: str) -> dict[str, Any] | None:
    """Return the frozen facts of a node, or None where there are none yet."""
    data = read_json(results.freeze_file(context.run, node_id))
    return data.get("facts") if data else None


def drift(frozen_facts: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return in words what is no longer as it was frozen; empty where nothing changed."""
    found = []
    for section, key in DRIFT_KEYS:
        before, after = (facts.get(section, {}).get(key) for facts in (frozen_facts, now))
        if before != after:
            found.append(f"{section}.{key} was {before!r}, is {after!r}")
    for name, version in _packages(frozen_facts).items():
        if (current := _packages(now).get(name)) != version:
            found.append(f"package {name} was {version}, is {current or 'gone'}")
    found += engine_drift(frozen_facts, now)
    models_before, models_after = _models(frozen_facts), _models(now)
    for path, error in _model_errors(now).items() - _model_errors(frozen_facts).items():
        if not any(name.startswith(f"{path}:") for name in models_before):  # else they are gone
            found.append(f"{path}: {error}")
    missing_then = tuple(f"{path}:" for path in _model_errors(frozen_facts))
    for path in models_before.keys() | models_after.keys():
        if path not in models_before and missing_then and path.startswith(missing_then):
            continue  # it was not there to be frozen: its first appearance is no drift
        if models_before.get(path) != models_after.get(path):
            found.append(_say_file(path, models_before.get(path), models_after.get(path)))
    return sorted(found)


def _say_file(name: str, before: str | None, after: str | None) -> str:
    folder, _, file = name.rpartition(":")
    path = folder if Path(folder).name == file else name  # the model is this one file
    if after is None:
        return f"file {path} is gone"
    return f"file {path} is new" if before is None else f"file {path} changed: {before} -> {after}"


def _packages(facts: dict[str, Any]) -> dict[str, str]:
    packages = facts.get("python", {}).get("packages")
    return packages if isinstance(packages, dict) else {}


def _models(facts: dict[str, Any]) -> dict[str, str]:
    found = {}
    for model in facts.get("models", {}).get("models", []):
        for item in model.get("files", []):
            name = f"{model.get('path')}:{item.get('name')}"
            found[name] = str(item.get("sha256") or item.get("errors"))
    return found


def _model_errors(facts: dict[str, Any]) -> dict[str, str]:
    """Return why a whole model could not be read, by its path."""
    models = facts.get("models", {}).get("models", [])
    return {str(m.get("path")): "; ".join(map(str, m["errors"])) for m in models if m.get("errors")}
