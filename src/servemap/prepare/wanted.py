"""What a campaign wants of each of its nodes, and the survey's request for it."""

import posixpath
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servemap.engines.base import interpreter, program
from servemap.measure.clients.start import ADAPTERS
from servemap.measure.collect import chosen_collectors
from servemap.model.campaign import Campaign
from servemap.model.cases import FixedCase
from servemap.model.clients import ClientSpec
from servemap.model.plan import Plan
from servemap.model.resolve import variant_server
from servemap.model.server_spec import Container, NodeSpec, Secret, ServerSpec
from servemap.nodes.base import Node
from servemap.prepare.needs import needs
from servemap.server.context import REMOTE_PYTHON


@dataclass(frozen=True)
class Wanted:
    """What a campaign wants of one node.

    Attributes:
        spec: the node.
        servers: the servers of all variants that run on it and that we start.
        model_path: the model as the campaign names it; None where no server of ours runs.
        clients: load clients of others that planned cases run on it, by name.
        ports: {port: key of the campaign} that have to be free.
        tools: {tool: what needs it}.
        required: tools without which a campaign cannot be measured as planned.
    """

    spec: NodeSpec
    servers: tuple[ServerSpec, ...]
    model_path: str | None
    clients: Mapping[str, ClientSpec]
    ports: Mapping[int, str]
    tools: Mapping[str, tuple[str, ...]]
    required: frozenset[str]

    @property
    def containers(self) -> list[Container]:
        """The containers of its servers."""
        return [server.container for server in self.servers if server.container]

    @property
    def hcas(self) -> list[str]:
        """The RDMA devices of its rails."""
        return [rail.hca for rail in self.spec.rails if rail.hca]

    @property
    def bare(self) -> bool:
        """Whether some server runs without a container, under the limits of the user."""
        return any(server.container is None for server in self.servers)

    def env(self, name: str) -> set[str]:
        """Return the values that a variable has in the servers on this node."""
        found: set[str] = set()
        for server in self.servers:
            value: str | Secret | None = self.spec.env.get(name, server.env.get(name))
            if isinstance(value, str):
                found.add(value)
        return found

    @property
    def meets_others(self) -> bool:
        """Whether ranks of a server on other nodes reach this one by its address."""
        return any(len(server.nodes) > 1 for server in self.servers)

    def engines(self, default_python: str, workdir: str) -> list[dict[str, Any]]:
        """Return what the survey is asked of each interpreter that runs a server here.

        Args:
            default_python: interpreter where the spec names none.
            workdir: absolute folder that relative paths of the spec mean on the node.
        """
        found: dict[tuple[str | None, ...], dict[str, Any]] = {}
        for server in self.servers:
            if server.container is not None:
                continue
            modules = [*needs().engines[server.engine].modules]
            if server.package is not None and server.package.name not in modules:
                modules.append(server.package.name)
            root = server.package.root if server.package else None
            one = {
                "python": interpreter(server, default_python, workdir),
                "modules": modules,
                "root": root,
            }
            # By the spec's words, so that all nodes have the same ones in the same order.
            found[server.python, root, *modules] = one
        return list(found.values())

    def client_requests(self, workdir: str) -> list[dict[str, Any]]:
        """Return what the survey is asked of the environment of each load client of others."""
        return [
            {
                "python": program(client.python, workdir),
                "modules": [ADAPTERS[name].package],
                "root": None,
            }
            for name, client in self.clients.items()
        ]

    def model_on(self, node: Node) -> str | None:
        """Return the absolute path of the model on the node."""
        if self.model_path is None:
            return None
        base = str(Path.cwd()) if node.here else "/"
        return posixpath.normpath(posixpath.join(base, self.model_path))

    def request(self, node: Node) -> dict[str, Any]:
        """Return the survey's request for this node."""
        model = self.model_on(node)
        runtimes = {container.runtime for container in self.containers}
        images = sorted({container.image for container in self.containers})
        become = ["sudo", "-n"] if self.spec.become else []
        return {
            "workdir": self.spec.workdir or node.state_dir(),
            "paths": [model] if model else [],
            "ports": sorted(self.ports),
            "tools": sorted(self.tools),
            "netdevs": [rail.netdev for rail in self.spec.rails],
            "sudo": self.spec.become,
            "cards": self.spec.accelerators > 0,
            "address": self.spec.address if self.servers else None,
            "engines": self.engines(
                sys.executable if node.here else REMOTE_PYTHON,
                str(Path.cwd()) if node.here else "/",
            ),
            "clients": self.client_requests(str(Path.cwd()) if node.here else "/"),
            "runtime": {"argv": [*become, min(runtimes)], "images": images} if runtimes else None,
        }


def wanted(plan: Plan) -> list[Wanted]:
    """Return what a campaign wants of each node, in its order."""
    return [_of_node(plan, node) for node in plan.campaign.nodes]


def _of_node(plan: Plan, node: NodeSpec) -> Wanted:
    campaign = plan.campaign
    servers = tuple(
        server
        for name, variant in plan.variants.items()
        if node.id in plan.nodes_of(name)
        and not (server := variant_server(campaign, variant)).attach
    )
    ports: dict[int, str] = {}
    if node.id == plan.head:
        for server in servers:
            ports[server.port] = "server.port"
            if len(server.nodes) > 1:
                ports[server.master_port] = "server.master_port"
    tools, required = _tools(campaign)
    load_node = campaign.load_node or plan.head
    return Wanted(
        spec=node,
        servers=servers,
        model_path=campaign.model.path if servers else None,
        clients=_clients(plan) if node.id == load_node else {},
        ports=ports,
        tools=tools,
        required=required,
    )


def _clients(plan: Plan) -> dict[str, ClientSpec]:
    """Return the load clients of others that planned cases name."""
    cases = [plan.cases[case] for _, case, _ in plan.items().repeats]
    named = {case.client for case in cases if isinstance(case, FixedCase)}
    return {name: spec for name, spec in plan.campaign.clients.items() if name in named}


def _tools(campaign: Campaign) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
    table = needs()
    users: dict[str, list[str]] = {}
    required: set[str] = set()
    for collector in chosen_collectors(campaign):
        known = table.collectors.get(collector.name)
        # What the campaign neither names nor requires may be absent without a word.
        asked = collector.required or collector.name in campaign.collectors
        own = [collector.tool.choices[0][0]] if collector.tool else []
        for tool in (known.tools if known else own) if asked else []:
            users.setdefault(tool, []).append(collector.name)
            if collector.required:
                required.add(tool)
    planned = {name for phase in campaign.phases for name in phase.baselines}
    for baseline in campaign.baselines:
        for tool in table.baselines[baseline.kind].tools:
            if baseline.id in planned:
                users.setdefault(tool, []).append(f"baseline {baseline.id}")
                required.add(tool)
    for name, need in table.facts.items():
        for tool in need.tools:
            users.setdefault(tool, []).append(f"the facts of {name}")
    return {tool: tuple(names) for tool, names in users.items()}, frozenset(required)
