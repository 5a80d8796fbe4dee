"""`servemap doctor`: is every node ready, one line for each node and check."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from servemap.measure.status import planned_repeats
from servemap.model.server_spec import Container
from servemap.prepare import judge_fabric, judge_machine, judge_software
from servemap.prepare.here import patch_lines, results_line
from servemap.prepare.lines import Line, judged, unknown
from servemap.prepare.planned_bytes import node_bytes, results_bytes
from servemap.prepare.survey import Answer, Connector, ask_all
from servemap.prepare.wanted import Wanted, wanted
from servemap.server.context import Context, connect
from servemap.server.launch.boots import read_boots

Check = tuple[str, Callable[[], Line]]

DEFAULT_PYTHON = "the default python"


@dataclass
class References:
    """What the first node that has a thing says of it; the others are compared with it.

    `machines` are all nodes' own, `boots` the starts of servers that the run tells of.
    """

    files: tuple[str, Mapping[str, int]] | None = None
    mtus: tuple[str, Mapping[int, int]] | None = None
    images: dict[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    machines: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    engines: dict[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)
    boots: frozenset[str] = frozenset()

    def learn(self, one: Wanted, found: Mapping[str, Any]) -> None:
        """Keep what this node is the first to have."""
        node = one.spec.id
        if kernel := mapping(found.get("kernel")):
            self.machines[node] = kernel
        for name, _, engine in engines_of(one, found):
            if one.meets_others and "packages" in engine:
                self.engines.setdefault(name, (node, engine["packages"]))
        model = model_listing(found)
        if self.files is None and model and model["files"] and not model["errors"]:
            self.files = (node, model["files"])
        mtus = judge_fabric.rail_mtus(one, mapping(found.get("netdevs")))
        if self.mtus is None and mtus:
            self.mtus = (node, mtus)
        for name, image in mapping(mapping(found.get("runtime")).get("images")).items():
            if image:
                self.images.setdefault(name, (node, image))


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a section of a survey; empty where there is none."""
    return value if isinstance(value, Mapping) else {}


def model_listing(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the listing of the model's files in a survey; None where it holds none."""
    listings = list(mapping(found.get("paths")).values())
    return listings[0] if listings and "files" in mapping(listings[0]) else None


def examine(context: Context, connector: Connector = connect) -> list[Line]:
    """Ask all nodes of a campaign and return what each check of each node found.

    Nothing is changed on a node beside the copy of the on-node program.
    """
    plan = context.plan
    wants = {one.spec.id: one for one in wanted(plan)}
    answers = ask_all(
        plan.campaign.nodes, lambda spec, node: wants[spec.id].request(node), connector
    )
    written = node_bytes(plan, planned_repeats(context))
    heads_first = sorted(wants.values(), key=lambda one: one.spec.role != "head")
    started = (boot for name in plan.variants for boot in read_boots(context.run_dir, name))
    references = References(boots=frozenset(boot.boot_id for boot in started))
    for one in heads_first:
        references.learn(one, answers[one.spec.id].found)
    lines = [
        line
        for one in heads_first
        for line in node_lines(one, answers[one.spec.id], references, written[one.spec.id])
    ]
    return [*lines, *patch_lines(context), results_line(results_bytes(written))]


def node_lines(one: Wanted, answer: Answer, references: References, planned: int) -> Iterator[Line]:
    """Yield the lines of one node; what follows a failed connection is not known."""
    node = one.spec.id
    yield judge_machine.ssh_line(node, answer)
    checks = list(node_checks(one, answer, references, planned))
    if answer.unreachable is not None:
        yield from (judge_software.no_answer(node, name) for name in ("python", *dict(checks)))
        return
    yield judge_machine.python_line(node, answer)
    if answer.broken is not None:
        yield from (judge_software.no_answer(node, name) for name in dict(checks))
        return
    for _, check in checks:
        yield check()


def node_checks(
    one: Wanted, answer: Answer, references: References, planned: int
) -> Iterator[Check]:
    """Yield the checks that the campaign asks for on this node, each with its name."""
    node, found = one.spec.id, answer.found

    def of(name: str, key: str, judge: Callable[[Mapping[str, Any]], Line]) -> Check:
        return name, lambda: judged(node, name, found.get(key), judge)

    yield of("work folder", "disk", lambda disk: judge_machine.work_folder_line(node, disk))
    yield of(
        "disk space",
        "disk",
        lambda disk: judge_machine.room_line(
            node,
            "disk space",
            int(disk["free_bytes"]),
            planned,
            "name a folder on another disk as nodes.workdir",
        ),
    )
    yield "clock", lambda: clock_line(node, answer)
    yield of(
        "machine",
        "kernel",
        lambda kernel: judge_machine.kernel_line(one, kernel, references.machines),
    )
    yield of("tools", "tools", lambda tools: judge_machine.tools_line(one, tools))
    if one.spec.become:
        yield of("sudo", "sudo", lambda sudo: judge_machine.sudo_line(node, sudo))
    yield of(
        "perf events",
        "perf_event_paranoid",
        lambda perf: judge_machine.perf_line(node, perf, mapping(found.get("user"))),
    )
    yield from server_checks(one, found, references, of)
    yield from client_checks(one, found)
    yield from rail_checks(one, found, references, of)


def clock_line(node: str, answer: Answer) -> Line:
    """Return the line of the node's clock."""
    if answer.clock is None:
        return unknown(node, "clock", answer.clock_error, "compare `date +%s.%N` by hand")
    return judge_machine.clock_line(node, answer.clock.offset_ns, answer.clock.error_ns)


Of = Callable[[str, str, Callable[[Mapping[str, Any]], Line]], Check]


def server_checks(
    one: Wanted, found: Mapping[str, Any], references: References, of: Of
) -> Iterator[Check]:
    """Yield the checks of a node that a server of ours runs on."""
    node = one.spec.id
    if one.servers:
        yield of("address", "address", lambda found: judge_machine.address_line(one, found))
    for name, asked, engine in engines_of(one, found):
        reference = other(references.engines.get(name), node)
        yield name, partial(_engine_line, node, name, asked, engine, reference)
    if one.spec.accelerators:
        yield of("accelerators", "cards", lambda cards: judge_software.cards_line(one, cards))
    containers = {container.image: container for container in one.containers}
    if containers:
        yield of(
            "container runtime",
            "runtime",
            lambda runtime: judge_software.runtime_line(one, runtime),
        )
    images = mapping(mapping(found.get("runtime")).get("images"))
    for name, container in containers.items():
        check = f"image {name}" if len(containers) > 1 else "image"
        yield check, partial(image_line, node, check, container, images, references)
    if one.model_path is not None:
        path = one.model_path
        yield (
            "model",
            lambda: judged(
                node,
                "model",
                model_listing(found),
                lambda model: judge_software.model_line(
                    node, path, model, other(references.files, node)
                ),
            ),
        )
    if one.ports:
        rows = found.get("ports")
        yield (
            "ports",
            lambda: (
                judge_machine.ports_line(one, rows, references.boots)
                if isinstance(rows, list)
                else judge_software.no_answer(node, "ports")
            ),
        )


def engines_of(
    one: Wanted, found: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield each interpreter of a node's servers: name of its line, what was asked, the answer.

    The name is the same on all nodes; the answer is empty where there is none.
    """
    wanted = one.engines(DEFAULT_PYTHON, folder_of(one))
    answers = found.get("engines")
    for number, asked in enumerate(wanted):
        places = [word for word in (asked["python"], asked["root"]) if word]
        name = f"engine {' '.join(places)}" if len(wanted) > 1 else "engine"
        said = isinstance(answers, list) and len(answers) == len(wanted)
        yield name, asked, mapping(answers[number]) if said and answers else {}


def folder_of(one: Wanted) -> str:
    """Return the folder that relative paths of the campaign mean on a node."""
    return str(Path.cwd()) if one.spec.transport == "local" else "/"


def client_checks(one: Wanted, found: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the check of each load client of others that runs on a node."""
    node, asked = one.spec.id, one.client_requests(folder_of(one))
    answers = found.get("clients")
    said = isinstance(answers, list) and len(answers) == len(asked)
    for number, (name, request) in enumerate(zip(one.clients, asked, strict=True)):
        yield (
            f"client {name}",
            partial(
                judged,
                node,
                f"client {name}",
                {"asked": request, "answer": answers[number]} if said and answers else None,
                partial(judge_software.client_line, node, name),
            ),
        )


def _engine_line(
    node: str,
    name: str,
    asked: Mapping[str, Any],
    answer: Mapping[str, Any],
    reference: tuple[str, Mapping[str, str]] | None,
) -> Line:
    if not answer:
        return judge_software.no_answer(node, name)
    return judge_software.engine_line(node, name, asked, answer, reference)


def image_line(
    node: str,
    check: str,
    container: Container,
    images: Mapping[str, Any],
    references: References,
) -> Line:
    """Return the line of one image."""
    name = container.image
    if name not in images:
        return judge_software.no_answer(node, check)
    reference = other(references.images.get(name), node)
    return judge_software.image_line(node, check, container, images[name], reference)


def rail_checks(
    one: Wanted, found: Mapping[str, Any], references: References, of: Of
) -> Iterator[Check]:
    """Yield the checks of a node's rails."""
    node = one.spec.id
    if one.spec.rails:
        yield of(
            "rails and MTU",
            "netdevs",
            lambda links: judge_fabric.mtu_line(one, links, other(references.mtus, node)),
        )
    if one.hcas:
        yield of("RDMA and GID", "rdma", lambda devices: judge_fabric.gid_line(one, devices))
        if one.servers:
            yield of("memlock", "memlock", lambda limits: judge_machine.memlock_line(one, limits))
        if one.spec.accelerators:
            yield of(
                "peer memory",
                "peer_memory",
                lambda peer: judge_fabric.peer_memory_line(
                    node, peer, mapping(found.get("kernel"))
                ),
            )


def other(reference: tuple[str, Any] | None, node: str) -> Any:
    """Return a reference, unless it is the node's own."""
    return None if reference is None or reference[0] == node else reference
