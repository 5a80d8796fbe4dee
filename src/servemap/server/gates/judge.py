"""Whether a node is clean: pure functions over what is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servemap.onnode.ask import shorten
from servemap.onnode.facts_software import CONTAINER_TOOLS
from servemap.onnode.view import Process
from servemap.server.gates.checks import Check
from servemap.server.gates.holders import Card, Holders
from servemap.server.gates.ports import port_owners

MAX_NAMED = 20

Port = tuple[int, str]
"""A port and the address that it is bound to."""


@dataclass(frozen=True)
class Holder:
    """Somebody who keeps the node from being clean.

    Attributes:
        what: pid, user and command, or the container.
        holds: what it holds, or what it is left of.
        boot_id: the start of a server of this run that it belongs to.
        leaving: it has ended or is about to; its memory and files are not back yet.
    """

    what: str
    holds: tuple[str, ...]
    boot_id: str | None = None
    leaving: bool = False

    @property
    def text(self) -> str:
        """The holder in words."""
        return f"{self.what}: {', '.join(self.holds)}"


@dataclass(frozen=True)
class Judgement:
    """What was found on a node.

    Attributes:
        check: the gate's check.
        ours: what is left of servers of this run, to be stopped and waited for.
        foreign: what is not ours to stop.
        may_clear: whether waiting can make the node clean, once what is ours was stopped.
    """

    check: Check
    ours: list[Holder]
    foreign: list[Holder]
    may_clear: bool

    @property
    def boots(self) -> set[str]:
        """The starts of servers that something is left of."""
        return {holder.boot_id for holder in self.ours if holder.boot_id is not None}


def judge(
    holders: Holders,
    *,
    expected_boot: str | None,
    ports: Sequence[Port],
    idle_memory_bytes: int,
    accelerators: int,
) -> Judgement:
    """Judge what is on a node.

    Args:
        holders: what is there.
        expected_boot: the start of the server that should run; None where none should.
        ports: ports that are ours.
        idle_memory_bytes: memory that a card may show as used when nothing runs on it.
        accelerators: number of cards that the campaign uses on the node; where it is 0, cards are
            not ours to judge.
    """
    boots = _boots(holders)
    cards_count = accelerators > 0
    known = {pid for pid, boot in boots.items() if boot in holders.known}
    holds = _held(holders, ports, known, cards=cards_count)
    ours: list[Holder] = []
    foreign: list[Holder] = []
    for pid in sorted(holds.keys() | boots.keys()):
        boot = boots.get(pid)
        if boot is not None and boot == expected_boot:
            continue
        process = holders.view.processes.get(pid)
        ended = process is None or process.state in "ZX"
        what = _say(pid, process, holders)
        if pid in known:
            if pid in holds or not ended:
                ours.append(Holder(what, holds.get(pid) or (f"left of start {boot}",), boot))
        elif pid in holds:
            # One that is about to end has no command line any more.
            leaving = process is None or ended or process.command.startswith("(")
            foreign.append(Holder(what, holds[pid], leaving=leaving))
    for container in holders.containers:
        if container.boot_id in holders.known and container.boot_id != expected_boot:
            what = f"{container.runtime} container {container.name} ({container.id[:12]})"
            ours.append(Holder(what, (f"left of start {container.boot_id}",), container.boot_id))
    unseen = _unseen_owners(holders, ports)
    foreign += unseen
    memory = _unexplained(holders, boots, expected_boot, idle_memory_bytes) if cards_count else []
    unknown = _unknown_cards(holders, accelerators)
    problems = [f"ours: {holder.text}" for holder in ours]
    problems += [f"not ours: {holder.text}" for holder in foreign]
    problems += [*memory, *(_suspects(holders, boots) if memory else []), *unknown]
    remedy = _remedy(foreign, unseen, memory, unknown)
    check = _check(holders, problems, remedy, cards=cards_count)
    visible = [holder for holder in foreign if not holder.leaving]
    return Judgement(check, ours, foreign, not visible and not unknown)


def boot_pids(holders: Holders, boot_id: str) -> frozenset[int]:
    """Return the processes of a start of a server, those inside its container included."""
    return frozenset(pid for pid, boot in _boots(holders).items() if boot == boot_id)


def _boots(holders: Holders) -> dict[int, str]:
    """Return the start that each process belongs to: its own, or that of its nearest ancestor."""
    found = dict(holders.boots)
    processes = holders.view.processes
    for pid in processes:
        chain: list[int] = []
        walk = pid
        while walk in processes and walk not in found and walk not in chain:
            chain.append(walk)
            walk = processes[walk].ppid
        if walk in found:
            found.update(dict.fromkeys(chain, found[walk]))
    return found


def _held(
    holders: Holders, ports: Sequence[Port], known: set[int], *, cards: bool
) -> dict[int, tuple[str, ...]]:
    """Return what each process holds that is ours to use; all of it for the `known` ones."""
    found: dict[int, list[str]] = {}
    for one in holders.processes:
        if cards or one.pid in known:
            card = f"{one.vendor} card" if one.card is None else f"{one.vendor} card {one.card}"
            size = "" if one.used_bytes is None else f" ({_gb(one.used_bytes)})"
            found.setdefault(one.pid, []).append(card + size)
    for pid, files in holders.devices.items():
        if pid in known or (cards and any(files.values())):
            found.setdefault(pid, []).extend(sorted(files))
    for port, bind in ports:
        for owner in port_owners(holders.view, port, bind):
            if owner.process is not None:
                text = f"{owner.listener.address} port {port}"
                found.setdefault(owner.process.pid, []).append(text)
    return {pid: tuple(texts) for pid, texts in found.items()}


def _unseen_owners(holders: Holders, ports: Sequence[Port]) -> list[Holder]:
    return [
        Holder(
            f"a process of uid {owner.listener.uid}, whose pid this user cannot see",
            (f"{owner.listener.address} port {port}",),
        )
        for port, bind in ports
        for owner in port_owners(holders.view, port, bind)
        if owner.process is None
    ]


def _say(pid: int, process: Process | None, holders: Holders) -> str:
    if process is not None:
        return f"pid {pid} of user {process.user} ({process.command})"
    name = next((one.name for one in holders.processes if one.pid == pid), "")
    return f"pid {pid}, which is not seen on the node{f' ({shorten(name, 80)})' if name else ''}"


def _unexplained(
    holders: Holders, boots: Mapping[int, str], expected: str | None, idle_memory_bytes: int
) -> list[str]:
    """Return the cards that hold more than an idle one for nobody that can be seen."""
    found = []
    computes = any(
        boot == expected and any(holders.devices.get(pid, {}).values())
        for pid, boot in boots.items()
    )
    for card in holders.cards:
        on_it = [
            one
            for one in holders.processes
            if one.vendor == card.vendor and one.card in (card.card, None)
        ]
        if card.used_bytes is None or card.used_bytes <= idle_memory_bytes:
            continue
        if expected is not None:
            if computes or any(boots.get(one.pid) == expected for one in on_it):
                continue
        elif any(one.used_bytes is None for one in on_it):
            continue  # its holder is named as such
        seen = sum(one.used_bytes or 0 for one in on_it)
        if card.used_bytes - seen > idle_memory_bytes:
            known = f", {_gb(seen)} of them by processes that are seen" if seen else ""
            limit = f"an idle card holds at most {_gb(idle_memory_bytes)}"
            found.append(f"{card.name} holds {_gb(card.used_bytes)}{known}; {limit}")
    return found


def _unknown_cards(holders: Holders, accelerators: int) -> list[str]:
    """Return why it is not known what the campaign's cards hold."""
    silent = [card.name for card in holders.cards if card.used_bytes is None]
    found = [f"{name} does not say how much memory it holds" for name in silent]
    if len(holders.cards) < accelerators:
        seen = f"{len(holders.cards)} of {accelerators} cards are seen"
        reasons = "; ".join(f"{tool}: {shorten(why)}" for tool, why in holders.failed.items())
        found.append(f"{seen} ({reasons or 'no tool that lists more is there'})")
    return found if accelerators else []


def _check(holders: Holders, problems: list[str], remedy: str, *, cards: bool) -> Check:
    hidden = holders.hidden
    seen = [f"{hidden} processes of other users could not be looked into"] if hidden else []
    if problems:
        more = len(problems) - MAX_NAMED
        named = problems[:MAX_NAMED] + ([f"and {more} more"] if more > 0 else [])
        return Check("clean_node", False, "; ".join(named + seen), remedy)
    failed = [f"{tool} failed: {shorten(why)}" for tool, why in holders.failed.items()]
    evidence = "; ".join([_say_cards(holders.cards, bool(failed)), *failed, *seen])
    if any(cards or tool in CONTAINER_TOOLS for tool in holders.failed):
        return Check("clean_node", None, evidence, "make that tool work for this user on the node")
    return Check("clean_node", True, evidence)


def _remedy(
    foreign: list[Holder], unseen: list[Holder], memory: list[str], unknown: list[str]
) -> str:
    if unseen:
        return (
            "set nodes.become: true to see processes of other users (a server in a container may "
            "be one); end them if they are yours, or give another server.port"
        )
    if foreign:
        return "end those processes if they are yours, or take another node or server.port"
    if memory:
        return (
            "find out who holds the memory (nodes.become: true shows processes of other users), "
            "or raise nodes.idle_memory_bytes if the card is like this when nothing runs"
        )
    if unknown:
        return (
            "make nvidia-smi, rocm-smi or ixsmi work for this user on the node, or set "
            "nodes.accelerators to what is there"
        )
    return "end what is left by hand, then start again"


def _suspects(holders: Holders, boots: Mapping[int, str]) -> list[str]:
    """Return who has a card's device file open without being listed on a card."""
    listed = {one.pid for one in holders.processes}
    return [
        f"{_say(pid, holders.view.processes.get(pid), holders)} has {', '.join(sorted(files))} open"
        for pid, files in sorted(holders.devices.items())
        if pid not in listed and pid not in boots and not any(files.values())
    ]


def _say_cards(cards: list[Card], failed: bool) -> str:
    if not cards and failed:
        return "nothing of ours is left; whether there are accelerators is not known"
    if not cards:
        return "nothing of ours is left; there are no accelerators that could be held"
    held = ", ".join(
        f"{card.name} {'?' if card.used_bytes is None else _gb(card.used_bytes)}" for card in cards
    )
    return f"nothing of ours is left; memory held: {held}"


def _gb(number: int) -> str:
    return f"{number / 1e9:.2f} GB"
