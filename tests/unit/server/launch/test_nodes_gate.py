"""Gates over all nodes of a variant: clean, and alike."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from servemap.server.launch.nodes import agreement, own_ports, require_clean, wait_memory_back
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, fake_context, two_nodes


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def context_of(**policy: Any) -> Any:
    config = {**two_nodes(), "policy": {"stop_grace_s": 0.1, **policy}}
    return fake_context(FakeNode("n1"), config, others=[FakeNode("n2")])


def freeze(context: Any, **kernels: str) -> None:
    folder = context.run_dir / "freeze"
    folder.mkdir(parents=True, exist_ok=True)
    for node_id, release in kernels.items():
        facts = {
            "kernel": {"release": release},
            **{name: {} for name in ("cpu", "accelerators", "python", "models")},
        }
        (folder / f"{node_id}.json").write_text(json.dumps({"schema": 1, "facts": facts}))


def test_only_the_head_listens() -> None:
    context = context_of()
    server = context.server("baseline")
    assert own_ports(context, server, "n1", 2) == [(18999, "127.0.0.1"), (29500, "192.0.2.1")]
    assert own_ports(context, server, "n1", 1) == [(18999, "127.0.0.1")]
    assert own_ports(context, server, "n2", 2) == []


def test_a_taken_port_names_node_and_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        config = two_nodes(port=foreign.getsockname()[1])
        context = fake_context(FakeNode("n1"), config, others=[FakeNode("n2")])
        with pytest.raises(NotRunError, match=r"pid \d+ of user") as caught:
            require_clean(context, "baseline", context.server("baseline"))
    assert (caught.value.cause, caught.value.where) == ("launch", "node n1")
    require_clean(context, "baseline", context.server("baseline"))


def test_nodes_that_differ_are_refused_or_marked() -> None:
    context = context_of()
    freeze(context, n1="6.1", n2="6.2")
    with pytest.raises(NotRunError, match=r"kernel\.release: 6\.1 \(n1\), 6\.2 \(n2\)") as caught:
        agreement(context, "baseline", {})
    assert caught.value.cause == "drift"
    context = context_of(on_drift="mark")
    (check,) = agreement(context, "baseline", {})
    assert (check.name, check.ok) == ("nodes_agree", None)
    assert "kernel.release" in check.evidence
    freeze(context, n1="6.1", n2="6.1")
    records = {node: {"patches": {}} for node in ("n1", "n2")}
    (check,) = agreement(context, "baseline", records)
    assert check.ok, check.evidence


def test_patches_that_differ_between_nodes_are_named() -> None:
    context = context_of()
    freeze(context, n1="6.1", n2="6.1")
    records = {
        node: {"patches": {"p": {"files": [{"path": "f", "sha256_after": sha, "mode_after": 420}]}}}
        for node, sha in (("n1", "a" * 64), ("n2", "b" * 64))
    }
    with pytest.raises(NotRunError, match=r"patches\.p\.f"):
        agreement(context, "baseline", records)


def test_nodes_without_cards_are_not_waited_for() -> None:
    assert wait_memory_back(context_of(), ["n1", "n2"]) == {}
