"""What every stage that drives a server needs: the plan, the nodes, the run's folders."""

import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from servemap.model import results
from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.model.canon import digest
from servemap.model.errors import ConfigError
from servemap.model.plan import Plan
from servemap.model.policy import Policy
from servemap.model.resolve import variant_server
from servemap.model.server_spec import NodeSpec, Secret, ServerSpec
from servemap.nodes.base import Node
from servemap.nodes.local import LocalNode
from servemap.onnode.redact import hide

REMOTE_PYTHON = "python3"
"""Interpreter of a server on another machine where the spec names none."""


@dataclass(frozen=True)
class Context:
    """A campaign that is being driven: paths are relative to the working directory.

    `profiled` is the variant whose server is started for captures; None where there is none.
    """

    plan: Plan
    profiled: str | None = None

    def __post_init__(self) -> None:
        """From here on, no secret of the campaign is in a text that is recorded."""
        hide(secret_values(self.plan.campaign))

    @property
    def run(self) -> str:
        """The run's name."""
        return self.plan.campaign.run

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return results.run_dir(self.run)

    @property
    def policy(self) -> Policy:
        """The campaign's policy."""
        return self.plan.campaign.policy

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """All nodes by id."""
        return {spec.id: connect(spec) for spec in self.plan.campaign.nodes}

    @property
    def head(self) -> Node:
        """The head node, which the server and the load run on."""
        return self.nodes[self.plan.head]

    @property
    def head_spec(self) -> NodeSpec:
        """The head node as the campaign describes it."""
        return next(node for node in self.plan.campaign.nodes if node.role == "head")

    def workdir(self, node_id: str) -> str:
        """Return the run's folder on a node: the node's own work folder and one per results tree.

        The digest keeps two checkouts with a run of the same name apart. A node is asked once, so
        that what lies on one that is away can still be named.
        """
        if node_id not in self._workdirs:
            base = self.node_spec(node_id).workdir or self.nodes[node_id].state_dir()
            name = f"{self.run}-{digest(str(self.run_dir.resolve()))[:8]}-{node_id}"
            self._workdirs[node_id] = f"{base}/{name}"
        return self._workdirs[node_id]

    @cached_property
    def _workdirs(self) -> dict[str, str]:
        return {}

    def node_spec(self, node_id: str) -> NodeSpec:
        """Return a node as the campaign describes it."""
        return next(node for node in self.plan.campaign.nodes if node.id == node_id)

    def on_node(self, node_id: str, folder: Path) -> str:
        """Return the folder on a node that stands for a folder of the run's results.

        It is the folder itself where the node is this machine; `Node.fetch` brings the files of
        another one over.
        """
        if self.nodes[node_id].here:
            return str(folder.resolve())
        return f"{self.workdir(node_id)}/{folder.resolve().relative_to(self.run_dir.resolve())}"

    def paths_from(self, node_id: str) -> str:
        """Return the absolute folder that relative paths of the campaign mean on a node.

        That is the working directory on this machine. Paths of other machines are absolute, which
        `model.checks` sees to.
        """
        return str(Path.cwd()) if self._is_here(node_id) else "/"

    def python_on(self, node_id: str) -> str:
        """Return the interpreter of a server on a node where the spec names none."""
        return sys.executable if self._is_here(node_id) else REMOTE_PYTHON

    def _is_here(self, node_id: str) -> bool:
        """Return whether a node is this machine, for which no transport to it is needed."""
        return self.node_spec(node_id).transport == "local"

    def server(self, variant: str) -> ServerSpec:
        """Return a variant's server spec."""
        return variant_server(self.plan.campaign, self.plan.variants[variant])

    @property
    def session(self) -> str:
        """The id of the running session; empty where no controller has begun one."""
        data = read_json(self.run_dir / ".session.json") or {}
        return str(data.get("session", ""))


def connect(spec: NodeSpec) -> Node:
    """Return the transport to a node; another machine is connected to by the first call."""
    if spec.transport == "local":
        return LocalNode(spec.id)
    # The ssh libraries take a quarter of a second to import, which a plan does without.
    from servemap.nodes.ssh import SshNode

    return SshNode(spec)


def secret_values(campaign: Campaign) -> list[str]:
    """Return the values of the campaign's secrets, as far as they are set."""
    servers = [campaign.server, *(variant_server(campaign, one) for one in campaign.variants)]
    names = {
        value.secret
        for server in servers
        for value in server.env.values()
        if isinstance(value, Secret)
    }
    return [os.environ[name] for name in sorted(names) if name in os.environ]


def resolve_secrets(env: dict[str, str | Secret]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the plain variables, and the secret ones with their values.

    Raises:
        ConfigError: the controller's environment lacks a secret.
    """
    plain = {name: value for name, value in env.items() if isinstance(value, str)}
    secrets = {}
    for name, value in env.items():
        if isinstance(value, Secret):
            if value.secret not in os.environ:
                raise ConfigError(
                    f"the secret {value.secret!r} is not set",
                    f"server.env.{name}",
                    f"export {value.secret} before the campaign is started",
                )
            secrets[name] = os.environ[value.secret]
    return plain, secrets
