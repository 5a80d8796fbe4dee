import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import NodeError
from servemap.nodes.base import Node
from servemap.nodes.local import LocalNode
from servemap.onnode.view import MAX_COMMAND_CHARS, Process, listening, read_process, shortened
from servemap.server.gates.holders import look
from servemap.server.gates.ports import (
    Listener,
    NodeView,
    is_running,
    overlaps,
    parse_listeners,
    parse_view,
    port_owners,
    process_tree,
)
from tests.fakes import FakeNode, FarNode

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:46A0 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 5001 1
   1: 0100007F:46A0 0100007F:CB0B 01 00000000:00000000 00:00000000 00000000  1000        0 5002 1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5003 1
   3: cut
   4: XX:46A0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 5004 1
"""
TCP6 = """\
  sl  local_address                         remote_address                        st ...
   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 33 0 6001 1
   1: 0000000000000000FFFF00000100007F:1F91 00000000000000000000000000000000:0000 0A 0:0 0:0 0 33 0 6002 1
"""  # noqa: E501


def process(pid: int, ppid: int, command: str = "cmd", state: str = "S") -> Process:
    return Process(pid, ppid, 100 + pid, state, command, "alice")


def test_listening_sockets_only() -> None:
    assert parse_listeners(TCP) == [
        Listener("127.0.0.1", 18080, 5001, 1000),
        Listener("0.0.0.0", 22, 5003, 0),
    ]
    assert [item.address for item in parse_listeners(TCP6)] == ["::1", "127.0.0.1"]


@given(st.text())
def test_any_text_is_parsed(text: str) -> None:
    parse_listeners(text)
    assert parse_listeners(listening(text)[0]) == parse_listeners(text)


@pytest.mark.parametrize(
    ("address", "bind", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("10.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("10.0.0.1", "0.0.0.0", True),
        ("::", "127.0.0.1", True),
        ("::1", "127.0.0.1", False),
        ("0.0.0.0", "::1", False),
        ("10.0.0.1", "localhost", True),
    ],
)
def test_overlaps(address: str, bind: str, same: bool) -> None:
    assert overlaps(address, bind) is same


def test_owners_are_named() -> None:
    view = NodeView(TCP, TCP6, {5001: (7, 8, 99)}, {7: process(7, 1), 8: process(8, 7, "worker")})
    owners = port_owners(view, 18080, "127.0.0.1")
    assert [owner.process.pid for owner in owners if owner.process] == [7, 8]
    assert owners[1].text == "127.0.0.1 port 18080: pid 8 (worker) of user alice"
    assert port_owners(view, 18080, "10.0.0.1") == []
    assert port_owners(view, 18081, "127.0.0.1") == []


def test_an_owner_that_may_not_be_inspected_is_not_lost() -> None:
    (owner,) = port_owners(NodeView(TCP, "", {}, {}), 18080, "127.0.0.1")
    assert owner.process is None
    assert "uid 1000" in owner.text


def test_process_tree() -> None:
    processes = {pid: process(pid, ppid) for pid, ppid in [(1, 0), (2, 1), (3, 2), (4, 1), (5, 5)]}
    assert process_tree(processes, 2) == {2, 3}
    assert process_tree(processes, 1) == {1, 2, 3, 4}
    assert process_tree(processes, 5) == {5}
    assert process_tree(processes, 9) == frozenset()


def test_is_running_means_this_very_process() -> None:
    processes = {7: process(7, 1), 8: process(8, 1, state="Z")}
    assert is_running(processes, 7, 107)
    assert not is_running(processes, 7, 106)
    assert not is_running(processes, 8, 108)
    assert not is_running(processes, 9, 109)


def test_only_listening_sockets_leave_the_node() -> None:
    lines, inodes = listening(TCP)
    assert parse_listeners(lines) == parse_listeners(TCP)
    assert inodes == {5001, 5003, 5004}


@pytest.fixture(params=["here", "far"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return LocalNode("n1") if request.param == "here" else FarNode("w1", tmp_path)


def test_what_is_on_a_node(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (owner,) = port_owners(look(node, []).view, port, "127.0.0.1")
    assert owner.process is not None
    assert (owner.process.pid, owner.process.ppid) == (os.getpid(), os.getppid())
    assert port_owners(look(node, []).view, port, "127.0.0.1") == []


VIEW = {"tcp": TCP, "tcp6": "", "sockets": {"5001": [7]}, "processes": [[7, 1, 9, "S", "c", "u"]]}


def test_the_form_of_a_view() -> None:
    view = parse_view(json.loads(json.dumps(VIEW)))
    assert view.processes == {7: Process(7, 1, 9, "S", "c", "u")}
    (owner,) = port_owners(view, 18080, "127.0.0.1")
    assert owner.text == "127.0.0.1 port 18080: pid 7 (c) of user u"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["tcp", "tcp6", "sockets", "processes"]), JSON) | JSON)
def test_a_view_of_any_other_form_is_refused_in_words(data: object) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_view(data), NodeView)


@pytest.mark.parametrize(
    "said", ["Welcome to w1!", "[]", "{}", json.dumps({**VIEW, "processes": [[7]]})]
)
def test_an_agent_that_says_something_else(said: str) -> None:
    class Chatty(FakeNode):
        here = False

    chatty = Chatty("w1")
    chatty.on_run["holders"] = lambda argv: said
    with pytest.raises(NodeError, match="w1: "):
        look(chatty, [])


def test_secrets_of_a_command_line_are_masked() -> None:
    code = "print(1, flush=True); input()"
    argv = [sys.executable, "-c", code, "--api-key=abc123", "--hf-token", "def456", "--seed=1"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = read_process(child.pid)
        child.communicate(b"\n")
    assert seen is not None
    assert seen.command.endswith("--api-key=<redacted> --hf-token <redacted> --seed=1")
    assert read_process(child.pid) is None


def test_a_zombie_has_its_short_name() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        seen = read_process(child.pid)
    assert seen is not None
    assert (seen.state, seen.command) == ("Z", "(true)")


def test_a_long_command_is_cut_after_a_word_and_says_so() -> None:
    assert shortened("a b") == "a b"
    command = "serve " + " ".join(f"--master 10.77.0.11:{29500 + k}" for k in range(60))
    cut = shortened(command)
    assert cut.endswith(" ...")
    assert set(cut.removesuffix(" ...").split()) <= set(command.split())
    assert MAX_COMMAND_CHARS - 30 < len(cut) <= MAX_COMMAND_CHARS + len(" ...")
    assert shortened("x" * 9999) == "x" * MAX_COMMAND_CHARS + " ..."
