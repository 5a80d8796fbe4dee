"""Who keeps a node from being clean (simulated: what the tools would say is made up)."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode.view import Process
from servemap.server.gates.holders import (
    BootContainer,
    Card,
    CardProcess,
    Holders,
    parse_holders,
)
from servemap.server.gates.judge import MAX_NAMED, Judgement, boot_pids, judge
from servemap.server.gates.ports import NodeView

GB = 1_000_000_000
IDLE = GB
PORT = (18080, "127.0.0.1")
EMPTY = NodeView("", "", {}, {})


def process(pid: int, ppid: int = 1, command: str = "python3 -m srv", state: str = "S") -> Process:
    return Process(pid, ppid, 100 + pid, state, command, "bob")


def view(*processes: Process, listens: dict[int, tuple[int, ...]] | None = None) -> NodeView:
    """Processes of a node; `listens` says who holds the socket of port 18080, by its inode."""
    lines = [f"0: 0100007F:46A0 00000000:0000 0A 0:0 0:0 0 1000 0 {i} 1\n" for i in listens or {}]
    sockets = {inode: pids for inode, pids in (listens or {}).items() if pids}
    return NodeView("".join(lines), "", sockets, {one.pid: one for one in processes})


def nvidia(*used: int | None) -> list[Card]:
    return [Card("nvidia", str(index), one, 80 * GB) for index, one in enumerate(used)]


def app(pid: int, used: int | None = 30 * GB, card: str | None = "0") -> CardProcess:
    return CardProcess("nvidia", card, pid, used, "python3")


def verdict(
    holders: Holders, *, expected: str | None = None, accelerators: int = 1, **keys: Any
) -> Judgement:
    found = judge(
        holders,
        expected_boot=expected,
        ports=[PORT],
        idle_memory_bytes=IDLE,
        accelerators=accelerators,
    )
    assert found.check.name == "clean_node"
    assert found.check.ok is not False or found.check.remedy
    return found


def test_a_machine_with_nothing_says_so() -> None:
    check = verdict(Holders(EMPTY), accelerators=0).check
    assert check.ok is True
    assert check.evidence == (
        "nothing of ours is left; there are no accelerators that could be held"
    )


def test_no_card_is_not_said_where_the_tool_that_lists_them_failed() -> None:
    said = "did not end within 15 s"
    check = verdict(Holders(EMPTY, failed={"nvidia-smi": said}), accelerators=0).check
    assert check.ok is True
    assert "there are no accelerators" not in check.evidence
    assert "not known" in check.evidence and said in check.evidence


def test_idle_cards_are_clean_at_the_limit_and_dirty_above() -> None:
    at_limit = verdict(Holders(EMPTY, nvidia(IDLE, 0)), accelerators=2).check
    assert at_limit.ok is True
    assert "nvidia card 0 1.00 GB, nvidia card 1 0.00 GB" in at_limit.evidence
    above = verdict(Holders(EMPTY, nvidia(IDLE + 1_000_000, 0)), accelerators=2)
    assert above.check.ok is False
    assert "nvidia card 0 holds 1.00 GB; an idle card holds at most" in above.check.evidence
    assert "nvidia card 1" not in above.check.evidence
    assert above.may_clear, "a driver gives memory back some time after a process ended"


def test_a_foreign_process_on_a_card_is_named_with_its_memory() -> None:
    holders = Holders(view(process(7, command="./gpu_burn")), nvidia(31 * GB), [app(7)])
    found = verdict(holders)
    assert found.check.evidence == (
        "not ours: pid 7 of user bob (./gpu_burn): nvidia card 0 (30.00 GB)"
    )
    assert [holder.boot_id for holder in found.foreign] == [None]
    assert (found.ours, found.may_clear) == ([], False)


def test_even_little_memory_of_a_foreign_process_counts() -> None:
    assert verdict(Holders(view(process(7)), nvidia(1000), [app(7, 1000)])).check.ok is False


def test_memory_beyond_what_a_foreign_process_holds_has_no_owner() -> None:
    evidence = verdict(Holders(view(process(7)), nvidia(50 * GB), [app(7)])).check.evidence
    assert "holds 50.00 GB, 30.00 GB of them by processes that are seen" in evidence


def test_who_has_a_device_file_open_is_named_beside_memory_without_owner() -> None:
    watcher = process(9, command="nvidia-persistenced")
    devices = {9: {"/dev/nvidia0": False}}
    clean = verdict(Holders(view(watcher), nvidia(0), devices=devices))
    assert clean.check.ok is True, "monitors have cards open, too"
    dirty = verdict(Holders(view(watcher), nvidia(5 * GB), devices=devices, hidden=3))
    assert "pid 9 of user bob (nvidia-persistenced) has /dev/nvidia0 open" in dirty.check.evidence
    assert "3 processes of other users could not be looked into" in dirty.check.evidence


def test_a_device_file_that_only_computing_opens() -> None:
    holders = Holders(view(process(9)), nvidia(0), devices={9: {"/dev/kfd": True}})
    found = verdict(holders)
    assert "not ours: pid 9 of user bob (python3 -m srv): /dev/kfd" in found.check.evidence
    assert verdict(holders, accelerators=0).check.ok is True, "those cards are not ours to judge"


def test_what_is_left_of_ours() -> None:
    """A worker whose mark cannot be read is known by its parent."""
    holders = Holders(
        view(process(5), process(6, 5), process(7, 6), process(8)),
        nvidia(31 * GB),
        [app(7)],
        boots={5: "b1"},
        known=frozenset({"b1"}),
    )
    found = verdict(holders)
    assert found.boots == {"b1"}
    assert [holder.what.split()[1] for holder in found.ours] == ["5", "6", "7"]
    assert found.ours[2].holds == ("nvidia card 0 (30.00 GB)",)
    assert found.ours[0].holds == ("left of start b1",)
    assert (found.foreign, found.may_clear) == ([], True)
    assert boot_pids(holders, "b1") == {5, 6, 7}


def test_the_server_that_should_run_is_no_dirt() -> None:
    holders = Holders(
        view(process(5), process(6, 5), listens={11: (6,)}),
        nvidia(31 * GB),
        [app(6)],
        boots={5: "b1"},
        known=frozenset({"b1", "b0"}),
        containers=[BootContainer("c" * 64, "srv", "podman", "b1")],
    )
    assert verdict(holders, expected="b1").check.ok is True
    assert verdict(holders, expected="b0").boots == {"b1"}
    assert verdict(holders).boots == {"b1"}


@pytest.mark.parametrize("tells", [True, False])
def test_memory_of_the_server_that_should_run(tells: bool) -> None:
    """Where a tool lists no processes, an open device file shows who computes."""
    holders = Holders(
        view(process(5)),
        nvidia(31 * GB),
        [app(5, None)] if tells else [],
        devices={} if tells else {5: {"/dev/nvidia-uvm": True, "/dev/nvidia0": False}},
        boots={5: "b1"},
        known=frozenset({"b1"}),
    )
    assert verdict(holders, expected="b1").check.ok is True
    idle = dataclasses.replace(holders, processes=[], devices={})
    assert verdict(idle, expected="b1").check.ok is False


def test_somebody_beside_the_server_that_should_run() -> None:
    holders = Holders(
        view(process(5), process(9, command="jupyter")),
        nvidia(40 * GB),
        [app(5), app(9, 1000)],
        boots={5: "b1"},
        known=frozenset({"b1"}),
    )
    found = verdict(holders, expected="b1")
    assert found.check.evidence.startswith("not ours: pid 9 of user bob (jupyter)")


def test_a_server_of_another_run() -> None:
    """It is not ours to stop; it matters only when it holds what we need."""
    holders = Holders(view(process(5)), nvidia(0), boots={5: "other"}, known=frozenset({"b1"}))
    assert verdict(holders).check.ok is True
    on_card = dataclasses.replace(holders, processes=[app(5)], cards=nvidia(31 * GB))
    found = verdict(on_card)
    assert (found.check.ok, found.boots, found.may_clear) == (False, set(), False)
    assert verdict(on_card, accelerators=0).check.ok is True


def test_ports_of_ours() -> None:
    known = frozenset({"b1"})
    taken = Holders(view(process(5), listens={11: (5,)}))
    found = verdict(taken, accelerators=0)
    assert found.check.evidence.endswith("(python3 -m srv): 127.0.0.1 port 18080")
    assert found.check.ok is False
    ours = dataclasses.replace(taken, boots={5: "b1"}, known=known)
    assert verdict(ours, accelerators=0).boots == {"b1"}
    assert verdict(ours, accelerators=0, expected="b1").check.ok is True
    unseen = verdict(Holders(view(listens={11: ()})), accelerators=0)
    assert "a process of uid 1000, whose pid this user cannot see: 127.0.0.1 port 18080" in (
        unseen.check.evidence
    )
    assert "become" in unseen.check.remedy


@pytest.mark.parametrize("gone", [None, process(7, state="Z"), process(7, command="(python3)")])
@pytest.mark.parametrize("ours", [True, False])
def test_a_process_that_is_leaving_is_waited_for(gone: Process | None, ours: bool) -> None:
    holders = Holders(
        view(*[gone] if gone else []),
        nvidia(31 * GB),
        [app(7)],
        boots={7: "b1"} if ours else {},
        known=frozenset({"b1"}),
    )
    found = verdict(holders)
    assert (found.check.ok, found.may_clear) == (False, True)
    assert "nvidia card 0 (30.00 GB)" in found.check.evidence


def test_a_container_of_an_earlier_start() -> None:
    mine = BootContainer("c" * 64, "srv", "podman", "b1")
    other = BootContainer("d" * 64, "theirs", "docker", "bx")
    found = verdict(Holders(EMPTY, nvidia(0), known=frozenset({"b1"}), containers=[mine, other]))
    assert found.boots == {"b1"}
    assert found.check.evidence == ("ours: podman container srv (cccccccccccc): left of start b1")


def test_a_tool_that_fails_is_never_silently_clean() -> None:
    holders = Holders(EMPTY, failed={"nvidia-smi": "Driver/library version mismatch"})
    unused = verdict(holders, accelerators=0).check
    assert unused.ok is True, "cards are not ours to judge"
    assert "nvidia-smi failed: Driver/library version mismatch" in unused.evidence
    runtime = verdict(Holders(EMPTY, failed={"docker": "no permission"}), accelerators=0).check
    assert runtime.ok is None
    assert runtime.remedy
    used = verdict(holders, accelerators=8)
    assert used.check.ok is False
    assert used.check.evidence == (
        "0 of 8 cards are seen (nvidia-smi: Driver/library version mismatch)"
    )
    assert "nodes.accelerators" in used.check.remedy
    assert not used.may_clear


def test_fewer_cards_than_the_campaign_uses() -> None:
    found = verdict(Holders(EMPTY, nvidia(0, 0, 0)), accelerators=4)
    assert "3 of 4 cards are seen" in found.check.evidence
    assert found.check.ok is False


def test_memory_that_is_not_said_is_not_0() -> None:
    found = verdict(Holders(EMPTY, nvidia(None)))
    assert found.check.ok is False
    assert "nvidia card 0 does not say how much memory it holds" in found.check.evidence


def test_the_evidence_is_bounded() -> None:
    crowd = [process(pid) for pid in range(100, 400)]
    found = verdict(Holders(view(*crowd), nvidia(0), [app(one.pid, 1) for one in crowd]))
    assert found.check.evidence.endswith(f"and {300 - MAX_NAMED} more")
    assert len(found.foreign) == 300


pids = st.integers(2, 12)


@given(
    parents=st.dictionaries(pids, pids),
    boots=st.dictionaries(pids, st.sampled_from(["b1", "b2", "other"])),
    apps=st.lists(st.tuples(pids, st.none() | st.integers(0, 50 * GB))),
    used=st.lists(st.none() | st.integers(0, 80 * GB), max_size=3),
    expected=st.none() | st.sampled_from(["b1", "b2"]),
)
def test_nobody_on_a_card_goes_unnamed(
    parents: dict[int, int],
    boots: dict[int, str],
    apps: list[tuple[int, int | None]],
    used: list[int | None],
    expected: str | None,
) -> None:
    """Loops among parents included: every process on a card is expected, ours or foreign."""
    holders = Holders(
        view(*[process(pid, ppid) for pid, ppid in parents.items()]),
        nvidia(*used),
        [app(pid, size) for pid, size in apps],
        boots=boots,
        known=frozenset({"b1", "b2"}),
    )
    found = verdict(holders, expected=expected)
    named = {int(one.what.split()[1].rstrip(",")) for one in [*found.ours, *found.foreign]}
    running = boot_pids(holders, expected) if expected else frozenset()
    assert {pid for pid, _ in apps} - running <= named
    assert not named & running
    if named:
        assert found.check.ok is False
    assert expected not in found.boots


def test_the_form_of_holders() -> None:
    data: dict[str, Any] = {
        "view": {"tcp": "", "tcp6": "", "sockets": {}, "processes": [[7, 1, 9, "S", "c", "u"]]},
        "cards": [
            {"vendor": "amd", "card": "0", "uuid": None, "used_bytes": None, "total_bytes": 5}
        ],
        "processes": [{"vendor": "amd", "card": None, "pid": 7, "used_bytes": 3, "name": "x"}],
        "failed": {"ixsmi": "no driver"},
        "devices": {"7": {"/dev/kfd": True}},
        "hidden": 2,
        "boots": {"7": "b1"},
        "known": ["b1"],
        "containers": [{"id": "i", "name": "n", "runtime": "docker", "boot_id": "b1", "pid": 1}],
        "containers_failed": {"podman": "no"},
    }
    holders = parse_holders(data)
    assert holders.cards == [Card("amd", "0", None, 5)]
    assert holders.processes == [CardProcess("amd", None, 7, 3, "x")]
    assert holders.failed == {"ixsmi": "no driver", "podman": "no"}
    assert (holders.devices, holders.boots) == ({7: {"/dev/kfd": True}}, {7: "b1"})
    for key in data:
        for wrong in (None, 3.5, "x", [[]]):
            if (key, wrong) == ("hidden", 3.5):
                continue
            try:
                parse_holders({**data, key: wrong})
            except ValueError as error:
                assert "not a" in str(error)
            else:
                assert key == "known", (key, wrong)
