"""Commands that run on several nodes at once, seen through to their end; nothing is left behind.

Each runs under the agent's supervisor, as a rank of a server does: all that it starts is ended with
it, and it ends by itself where its controller is gone for `policy.lease_ttl_s`.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servemap.measure.baselines.tool import Ended, NodeCommand
from servemap.model.errors import ConnectionLostError, NodeError, OrphanedError, ServemapError
from servemap.model.server_spec import Container
from servemap.nodes.parallel import each
from servemap.server.container.command import in_container, runtime_argv
from servemap.server.container.image import ensure_image
from servemap.server.context import Context
from servemap.server.launch import process
from servemap.server.locks import controller_alive
from servemap.server.not_run import NotRunError
from servemap.server.patience import Patience
from servemap.server.stop import stop_request

POLL_S = 0.2
FAR_POLL_S = 0.5
LINGER_S = 10.0
"""How long the others are waited for when one node failed: they may yet say why."""
FOLDER = "baseline"
MAX_LOG_BYTES = 64 << 20


def folder_on(context: Context, node_id: str) -> str:
    """Return the folder on a node for a baseline's files; one baseline at a time uses it."""
    return f"{context.workdir(node_id)}/{FOLDER}"


def clear(context: Context, node_id: str) -> None:
    """End what an earlier baseline left on a node, whoever started it, and remove its files.

    Raises:
        LaunchError: it does not end.
        NodeError: the node cannot be asked.
    """
    node, folder = context.nodes[node_id], folder_on(context, node_id)
    running = process.read_running(node, folder)
    if running is not None:
        process.stop(node, folder, running, context.policy.stop_grace_s)
    node.run(["rm", "-rf", "--", folder], timeout_s=process.TOUCH_S)


@dataclass
class _Attended:
    """The commands of a part while they run."""

    context: Context
    patience: Patience
    running: dict[str, process.Running] = field(default_factory=dict)
    exits: dict[str, dict[str, Any]] = field(default_factory=dict)

    def look(self, node_id: str) -> None:
        """See whether the command of a node has ended, and say that it is still wanted."""
        node, folder = self.context.nodes[node_id], folder_on(self.context, node_id)
        running = self.running[node_id]

        def ask() -> dict[str, Any]:
            process.renew(node, folder)
            # Asked first: what has ended by now has written how.
            lives = node.alive(running.supervisor)
            state = process.supervisor_state(node, folder, running.boot_id)
            return {"lives": lives, "exit": state.get("exit")}

        found = self.patience.ask(node, ask)
        if found is not None and found["exit"] is not None:
            self.exits[node_id] = found["exit"]
        elif found is not None and not found["lives"]:
            self.exits[node_id] = {"code": None, "signal": None, "reason": "supervisor_lost"}

    def pending(self) -> list[str]:
        """Return the nodes whose command still runs."""
        return [node_id for node_id in self.running if node_id not in self.exits]


def attend(
    context: Context,
    name: str,
    commands: Sequence[NodeCommand],
    env: Mapping[str, Mapping[str, str]],
    limit_s: float,
    logs: Mapping[str, Path],
    container: Container | None = None,
) -> dict[str, Ended]:
    """Run the commands of some nodes side by side to their end; return how each ended.

    Where one fails, the others are ended too, after a moment.

    Args:
        context: the campaign.
        name: of the baseline.
        commands: one a node; they are started in this order.
        env: {node: variables that come after those of its command}.
        limit_s: after which all are ended.
        logs: {node: file here that its output is brought to}.
        container: that the commands run in; None for the nodes' own software.

    Raises:
        ServemapError: a command cannot be started.
        UnreachableError: a node was away for too long.
        NotRunError: the campaign was asked to stop.
        OrphanedError: the controller is gone.
    """
    patience = Patience(context.run_dir, context.policy.lost_node_s)
    attended = _Attended(context, patience)
    boot_id = str(uuid.uuid4())
    try:
        for command in commands:
            attended.running[command.node] = _start(
                context, name, boot_id, command, env.get(command.node, {}), container
            )
        why = _wait(attended, limit_s)
    finally:
        left = _end(attended, logs)
    why.update(left)
    return {
        node_id: Ended(
            None if node_id in why else _code(attended.exits.get(node_id, {})),
            why.get(node_id) or _lost(attended.exits.get(node_id, {})),
            _text(logs[node_id]),
        )
        for node_id in attended.running
    }


def _start(
    context: Context,
    name: str,
    boot_id: str,
    command: NodeCommand,
    env: Mapping[str, str],
    container: Container | None,
) -> process.Running:
    node, folder = context.nodes[command.node], folder_on(context, command.node)
    clear(context, command.node)
    process.own_folder(node, folder)
    for path, content in command.files.items():
        node.write_text(path, content)
    argv, whole, inside = command.argv, {**command.env, **env}, None
    if container is not None:
        become = context.node_spec(command.node).become
        image = ensure_image(
            node,
            container,
            runtime_argv(container, become=become),
            workdir=context.workdir(command.node),
        )
        mounts = [*container.mounts, f"{folder}:{folder}"]
        boxed = in_container(
            container.model_copy(update={"mounts": mounts}),
            become=become,
            variant=f"baseline-{name}",
            boot_id=boot_id,
            image=image.id,
            argv=argv,
            env=whole,
            secret_names=(),
            cwd=None,
        )
        argv, whole, inside = boxed.argv, {}, boxed.container
    return process.start(
        node,
        folder,
        boot_id=boot_id,
        variant=f"baseline {name}",
        fingerprint="",
        port=0,
        argv=argv,
        env=whole,
        secrets={},
        cwd=None,
        ttl_s=context.policy.lease_ttl_s,
        grace_s=context.policy.stop_grace_s,
        container=inside,
    )


def _wait(attended: _Attended, limit_s: float) -> dict[str, str]:
    """Wait until all have ended or must; return {node: why it has to be ended}."""
    context = attended.context
    begun = time.monotonic()
    failed_s: float | None = None
    far = any(not context.nodes[node_id].here for node_id in attended.running)
    while pending := attended.pending():
        if not controller_alive(context.run_dir):
            raise OrphanedError
        request = stop_request(context.run_dir, context.session)
        if request is not None:
            raise NotRunError(
                request.cause, request.reason, "the baseline", "start the campaign again"
            )
        each(pending, attended.look)
        now = time.monotonic()
        pending = attended.pending()
        if failed_s is None and any(_code(one) != 0 for one in attended.exits.values()):
            failed_s = now
        if now - begun > limit_s:
            return dict.fromkeys(pending, f"not done within {limit_s:g} s, and was ended")
        if failed_s is not None and now - failed_s > LINGER_S:
            return dict.fromkeys(pending, "was ended, since another node failed")
        if pending:
            time.sleep(FAR_POLL_S if far else POLL_S)
    return {}


def _end(attended: _Attended, logs: Mapping[str, Path]) -> dict[str, str]:
    """End all commands, bring their logs, remove their files.

    Returns:
        {node: what may still run there, in words}; it ends with its lease, which nobody renews.
    """
    context = attended.context

    def end(node_id: str) -> str | None:
        node, folder = context.nodes[node_id], folder_on(context, node_id)
        running = attended.running[node_id]
        try:
            process.stop(node, folder, running, context.policy.stop_grace_s)
        except ConnectionLostError as error:
            return f"is away ({error.what}); what runs there ends within policy.lease_ttl_s"
        except ServemapError as error:
            return error.what
        with suppress(NodeError):
            node.get(process.log_path(folder, running.boot_id), logs[node_id])
            node.run(["rm", "-rf", "--", folder], timeout_s=process.TOUCH_S)
        return None

    said = each(list(attended.running), end)
    return {node_id: what for node_id, what in said.items() if what is not None}


def _lost(exit_record: Mapping[str, Any]) -> str | None:
    """Return in words that a command ended for want of its supervisor or of its controller."""
    words = {
        "supervisor_lost": "the supervisor of the ranks was killed",
        "lease_expired": "nobody renewed the lease of the ranks, and they ended",
    }
    return words.get(str(exit_record.get("reason")))


def _code(exit_record: Mapping[str, Any]) -> int | None:
    """Return an exit status, negative for a signal; None where the command ended otherwise."""
    if exit_record.get("signal") is not None:
        return -int(exit_record["signal"])
    code = exit_record.get("code")
    return code if isinstance(code, int) else None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            return handle.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
