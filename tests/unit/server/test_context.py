"""What every stage is given: nodes, folders, secrets."""

from pathlib import Path

import pytest

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.server_spec import Secret
from servemap.server.context import resolve_secrets
from tests.fakes import campaign


def test_two_checkouts_with_one_run_name_have_work_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(load_context(campaign()).workdir("n1"))
    assert found[0] != found[1]
    assert all(path.startswith("/state/servemap/r-") and path.endswith("-n1") for path in found)
    own = load_context(campaign(nodes=[{"id": "n1", "workdir": "/scratch"}]))
    assert own.workdir("n1").startswith("/scratch/r-")


def test_the_head_is_not_the_first_node_but_the_one_with_that_role() -> None:
    nodes = [{"id": "w", "role": "worker"}, {"id": "h", "env": {"A": "1"}}]
    context = load_context(campaign(nodes=nodes))
    assert context.head.name == "h"
    assert context.head_spec.env == {"A": "1"}
    assert context.workdir("h").endswith("-h")


def test_another_machine_is_not_connected_to_before_something_is_asked_of_it() -> None:
    key = {"address": "192.0.2.1", "known_hosts": "/no/such/file", "python": "python3.9"}
    nodes = [{"id": "n1", "transport": "ssh", **key}]
    changes = {"nodes": nodes, "model": {**campaign()["model"], "path": "/model.gguf"}}
    node = load_context(campaign(**changes)).nodes["n1"]
    assert (node.name, node.here, node.python) == ("n1", False, "python3.9")
    node.close()


def test_secrets_are_resolved_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k")
    plain, secrets = resolve_secrets({"A": "1", "B": Secret(secret="MY_KEY")})
    assert (plain, secrets) == ({"A": "1"}, {"B": "k"})
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(ConfigError, match="'MY_KEY' is not set") as caught:
        resolve_secrets({"B": Secret(secret="MY_KEY")})
    assert caught.value.where == "server.env.B"
