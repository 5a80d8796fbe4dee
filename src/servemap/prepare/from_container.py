"""`servemap init --from-container`: a campaign that starts a running server's container anew."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from servemap.engines.base import longest_sequence, served_models
from servemap.model.errors import ConfigError, NodeError
from servemap.model.files import parse_json
from servemap.nodes.base import Completed, Node
from servemap.onnode.redact import redact_text
from servemap.prepare.command_line import Command, find_server, read_command, shell_words
from servemap.prepare.container_facts import ContainerFacts, hub_folder, on_host, read_container
from servemap.prepare.draft import render_draft, slug
from servemap.prepare.from_url import GUESSED_CONTEXT
from servemap.prepare.node_draft import NodeDraft, SshOptions, node_draft, node_specs
from servemap.prepare.small_cases import small_cases
from servemap.prepare.survey import Connector, ask_all, survey
from servemap.server.context import connect

Runtime = Literal["docker", "podman"]
RUNTIME_S = 30.0
UNKNOWN_PATH = "/CHANGE"


@dataclass(frozen=True)
class Seen:
    """A container as it runs: whether `sudo -n` was needed, what it is, what it serves."""

    become: bool
    facts: ContainerFacts
    command: Command
    notes: list[str]


def call_runtime(node: Node, runtime: str, *words: str) -> tuple[Completed, bool]:
    """Return what a runtime's command says, and whether that took `sudo -n`."""
    done = node.run([runtime, *words], timeout_s=RUNTIME_S)
    if done.code and "permission denied" in done.stderr.lower():
        again = node.run(["sudo", "-n", runtime, *words], timeout_s=RUNTIME_S)
        if not again.code:
            return again, True
    return done, False


def look(node: Node, runtime: Runtime, name: str) -> Seen:
    """Return what runs in a container.

    Raises:
        NodeError: the runtime does not answer or knows no such container.
        ConfigError: no vLLM and no SGLang server runs in it.
    """
    where = f"node {node.name}, container {name}"
    done, become = call_runtime(node, runtime, "inspect", "--type", "container", name)
    if done.code:
        raise NodeError(
            f"{runtime} inspect: {done.stderr.strip()[-300:] or f'exit code {done.code}'}",
            where,
            f"see `{runtime} ps` on the node for the name of the server's container",
        )
    try:
        found = parse_json(done.stdout)[0]
        facts = read_container(found, _image_env(node, runtime, str(found["Image"])))
    except (ValueError, LookupError, TypeError) as error:
        raise NodeError(
            f"the answer of {runtime} inspect cannot be read: {error}",
            where,
            f"see that `{runtime} inspect {name}` prints JSON",
        ) from error
    notes = list(facts.notes)
    server = find_server(facts.words)
    if server is None:
        server = _server_among(_processes(node, runtime, name))
        notes.append(
            "the server was started by hand in its container; its options were read from the list "
            "of processes, which loses quotes"
        )
    if server is None:
        raise ConfigError(
            f"no vLLM and no SGLang server runs in it: {redact_text(' '.join(facts.words))[:200]}",
            where,
            "name the container of the server, or measure it as it runs: --from-url",
        )
    return Seen(become, facts, read_command(*server), notes)


def _image_env(node: Node, runtime: str, image: str) -> list[str]:
    layout = "{{json .Config.Env}}"
    done, _ = call_runtime(node, runtime, "image", "inspect", "--format", layout, image)
    found = parse_json(done.stdout) if not done.code else None
    return [str(pair) for pair in found] if isinstance(found, list) else []


def _processes(node: Node, runtime: str, name: str) -> list[str]:
    """Return the command lines in a container, the oldest first."""
    columns = ("pid", "args") if runtime == "podman" else ("-eo", "pid,args")
    done, _ = call_runtime(node, runtime, "top", name, *columns)
    rows = [line.split(None, 1) for line in done.stdout.splitlines()[1:]]
    return [row[1] for row in rows if len(row) > 1] if not done.code else []


def _server_among(lines: Sequence[str]) -> Any:
    found = (find_server(shell_words(line)) for line in lines)
    return next((server for server in found if server is not None), None)


def draft_from_container(
    name: str, hosts: str, ssh: SshOptions, runtime: Runtime, connector: Connector = connect
) -> str:
    """Return a campaign's text for the server in a container of the first of some nodes.

    Raises:
        ConfigError: the nodes are not named well, or no server runs in the container.
        NodeError: the first node or its runtime does not answer.
    """
    specs = node_specs(hosts, ssh)
    head = connector(specs[0])
    try:
        seen = look(head, runtime, name)
        models = _served(head, seen)
    finally:
        head.close()
    answers = ask_all(specs, lambda _spec, _node: {"cards": True}, connector)
    env = seen.facts.env
    nodes = [node_draft(spec, answers[spec.id], env) for spec in specs]
    nodes[0] = replace(nodes[0], env=seen.facts.env_of_node)
    return render_draft("container.yaml.j2", **draft_values(name, runtime, seen, nodes, models))


def _served(node: Node, seen: Seen) -> Any:
    """Return the answer of the running server's /v1/models, asked on its own node; None if none."""
    port = seen.facts.published.get(seen.command.port, seen.command.port)
    bind = seen.command.bind
    host = bind if bind and bind not in ("0.0.0.0", "::", "localhost") else "127.0.0.1"
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1/models"
    try:
        found = survey(node, {"urls": [url]})
    except NodeError:
        return None
    return ((found.get("urls") or {}).get(url) or {}).get("json")


def draft_values(
    container: str, runtime: str, seen: Seen, nodes: list[NodeDraft], models_json: Any
) -> dict[str, Any]:
    """Return what the template `container.yaml.j2` needs."""
    command, facts = seen.command, seen.facts
    models = served_models(models_json)
    context = command.context or longest_sequence(models, None)
    model = command.model or ""
    name = command.name or (models[0]["id"] if models else None) or model or "model"
    short = posixpath.basename(name.rstrip("/"))
    path, inside = _model_path(model, facts)
    return {
        "container": container,
        "runtime": runtime,
        "become": seen.become,
        "nodes": nodes,
        "env_of_node": list(facts.env_of_node),
        "run": slug(short),
        "title": f"{short}, {command.engine} as in the container {container}",
        "name": name,
        "name_known": bool(command.name or models or model),
        "path": path or f"{UNKNOWN_PATH}/{posixpath.basename(model.rstrip('/')) or 'model'}",
        "path_known": path is not None,
        "model_inside": inside,
        "context": context or GUESSED_CONTEXT,
        "context_known": context is not None,
        "command": command,
        "facts": facts,
        "notes": [*seen.notes, *_missing_nodes(command, nodes)],
        "cases": small_cases(context or GUESSED_CONTEXT, _max_active(command)),
    }


def _missing_nodes(command: Command, nodes: list[NodeDraft]) -> list[str]:
    if command.nodes == len(nodes):
        return []
    return [f"the server runs on {command.nodes} nodes, and {len(nodes)} are named here"]


def _model_path(model: str, facts: ContainerFacts) -> tuple[str | None, str | None]:
    """Return the model's path on the node (None if unknown) and, where it differs, inside."""
    if not model:
        return None, None
    folder = hub_folder(model, facts.env, _user(facts)) or model
    path = on_host(folder, facts.mounts) if folder.startswith("/") else None
    return path, None if path == model else model


def _user(facts: ContainerFacts) -> str | None:
    given = [word.partition("=")[2] for word in facts.args if word.startswith("--user=")]
    return given[-1].partition(":")[0] if given else None


def _max_active(command: Command) -> int | None:
    for key in ("max-num-seqs", "max-running-requests"):
        value = command.args.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
