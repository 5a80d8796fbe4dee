"""Gates over all nodes of a variant: clean, and alike."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from servemap.server.context import Context
from servemap.server.launch.node_gates import (
    agreement,
    marks,
    own_ports,
    require_clean,
    wait_memory_back,
)
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
            **{name: {} for name in ("cpu", "accelerators", "models")},
            **engine(),
        }
        (folder / f"{node_id}.json").write_text(json.dumps({"schema": 1, "facts": facts}))


def engine(version: str = "0.2", digest: str = "a") -> dict[str, Any]:
    python = {"version": "3.11", "packages": {"xllamacpp": version}}
    files = {"/e/llamaserve": {"files": 1, "sha256": digest, "digests": {"ranks.py": digest}}}
    return {"engine_python": {sys.executable: python}, "engine_files": files}


def freeze_engines(context: Context, *engines: dict[str, Any]) -> None:
    freeze(context, n1="6.1", n2="6.1")
    for node_id, one in zip(("n1", "n2"), engines, strict=True):
        path = context.run_dir / "freeze" / f"{node_id}.json"
        record = json.loads(path.read_text())
        record["facts"].update(one)
        path.write_text(json.dumps(record))


PACKAGE = {"package": {"name": "llamaserve", "root": "/e"}}
NO_PATCHES = {node: {"patches": {}} for node in ("n1", "n2")}


def context_with(server: dict[str, Any], **policy: Any) -> Context:
    config = {**two_nodes(**server), "policy": {"stop_grace_s": 0.1, **policy}}
    return fake_context(FakeNode("n1"), config, others=[FakeNode("n2")])


def test_engine_code_that_differs_between_nodes_is_refused() -> None:
    context = context_with(PACKAGE)
    freeze_engines(context, engine(), engine())
    (check,) = agreement(context, "baseline", NO_PATCHES)
    assert check.ok, check.evidence
    freeze_engines(context, engine(), engine(digest="b"))
    with pytest.raises(NotRunError, match=r"engine files\.ranks\.py: a \(n1\), b \(n2\)"):
        agreement(context, "baseline", NO_PATCHES)
    freeze_engines(context, engine(), engine(version="0.3"))
    with pytest.raises(NotRunError, match=r"engine python\.packages\.xllamacpp: 0\.2 \(n1\)"):
        agreement(context, "baseline", NO_PATCHES)


def test_what_is_in_a_container_is_not_compared_by_the_nodes_own_packages() -> None:
    context = context_with({**PACKAGE, "container": {"image": "i"}})
    freeze_engines(context, engine(), engine(version="0.3"))
    (check,) = agreement(context, "baseline", NO_PATCHES)
    assert check.ok, check.evidence


def test_an_interpreter_that_was_not_frozen_is_looked_at_now() -> None:
    context = context_with({"python": "/new/python"})
    broken = {"engine_python": {"/new/python": {"error": "it was not there"}}}
    freeze_engines(context, engine(), broken)
    for node, version in (("n1", "1"), ("n2", "2")):
        found = {"/new/python": {"version": version, "packages": {}}}
        context.nodes[node].facts = {"engine_python": found}
    with pytest.raises(NotRunError, match=r"engine python\.version: 1 \(n1\), 2 \(n2\)"):
        agreement(context, "baseline", NO_PATCHES)


def test_one_machine_as_two_nodes_is_refused_also_where_drift_is_marked() -> None:
    context = context_with({}, on_drift="mark")
    kernel = {"kernel": {"release": "6.1", "boot_id": "b", "hostname": "h"}}
    freeze_engines(context, {**engine(), **kernel}, {**engine(), **kernel})
    with pytest.raises(NotRunError, match="n1 and n2 are the same machine, h") as caught:
        agreement(context, "baseline", NO_PATCHES)
    assert caught.value.cause == "drift"


def test_a_rail_that_is_not_there_is_refused_or_marked() -> None:
    config = two_nodes()
    config["nodes"][1]["rails"] = [{"netdev": "eth9"}]
    nics = {"nics": {"interfaces": {"eth0": {"operstate": "up"}}, "rdma": {}}}
    context = fake_context(FakeNode("n1"), config, others=[FakeNode("n2")])
    freeze_engines(context, {**engine(), **nics}, {**engine(), **nics})
    with pytest.raises(NotRunError, match="rails: n2: there is no interface eth9"):
        agreement(context, "baseline", NO_PATCHES)
    config["policy"] = {"on_drift": "mark"}
    context = fake_context(FakeNode("n1"), config, others=[FakeNode("n2")])
    agree, rails = agreement(context, "baseline", NO_PATCHES)
    assert (agree.ok, rails.ok) == (True, None)
    assert marks([agree, rails]) == ["rails: n2: there is no interface eth9 (there: eth0)"]


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
