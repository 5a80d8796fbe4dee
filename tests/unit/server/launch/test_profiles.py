"""Where the traces of a start for captures go, and how they come out of a container: command lines.

That podman does so is seen in `tests/e2e/test_container.py`; docker is `simulated` by its options.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.profiling import FOLDER, INSIDE
from servemap.engines.registry import get_engine
from servemap.measure.profiled import profiled_context, profiled_name
from servemap.model.errors import NodeError
from servemap.nodes.base import Completed
from servemap.server.context import Context
from servemap.server.launch.commands import RankCommand, boxed, rank_commands
from servemap.server.launch.profiles import trace_folder, with_traces
from tests.fakes import FakeNode, campaign, fake_context

BOX = {"image": "vllm:1", "runtime": "docker", "mounts": ["/models:/models:ro"]}


class Node(FakeNode):
    """Folders are really made; where `full` is set, none can be."""

    full = False

    def run(self, argv: Any, **more: Any) -> Completed:
        if self.full:
            return Completed(tuple(argv), 1, "", "mkdir: No space left on device\n", 0.0)
        return super(FakeNode, self).run(argv, **more)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def context(**server: Any) -> Context:
    nodes = [{"id": f"n{n}", "role": role, "address": f"192.0.2.{n}"} for n, role in ROLES]
    spec = {"engine": "vllm", "port": 1, "nodes": ["n1", "n2"], "topology": {"tp": 2}, **server}
    made, other = Node("n1"), Node("n2")
    keys: dict[str, Any] = {"variables": [], "variants": [{"id": "baseline"}]}
    plain = fake_context(made, campaign(nodes=nodes, server=spec, **keys), others=[other])
    return profiled_context(plain, "baseline", 5)


ROLES = ((1, "head"), (2, "worker"))


def commands(made: Context) -> list[RankCommand]:
    name = profiled_name("baseline")
    server = made.server(name)
    return rank_commands(made, name, server, get_engine(server.engine))


def test_each_rank_in_a_container_has_its_nodes_own_folder_at_one_place() -> None:
    made = context(container=BOX)
    name = profiled_name("baseline")
    assert made.profiled == name
    server = made.server(name)
    assert server.container is not None
    assert server.container.mounts == BOX["mounts"], "what the campaign mounts stays"
    config = json.loads(server.args["profiler-config"])
    assert config["torch_profiler_dir"] == INSIDE
    for one in commands(made):
        folder = f"{made.workdir(one.placement.node)}/{FOLDER}"
        found = with_traces(made, server, one)
        assert Path(folder).stat().st_mode & 0o777 == 0o777, "whoever the container runs as"
        argv = boxed(made, name, "b", found, server.container, "id").argv
        assert f"--volume={folder}:{INSIDE}" in argv
        assert "--volume=/models:/models:ro" in argv
        assert not any(
            FOLDER in word
            for word in boxed(made, name, "b", one, server.container, "id").argv
            if word.startswith("--volume")
        )


def test_a_folder_that_cannot_be_made_is_said() -> None:
    made = context(container=BOX)
    (one, _) = commands(made)
    node = made.nodes[one.placement.node]
    assert isinstance(node, Node)
    node.full = True
    with pytest.raises(NodeError, match="No space left"):
        with_traces(made, made.server(profiled_name("baseline")), one)


@pytest.mark.parametrize(
    ("server", "below"),
    [({}, None), ({"cwd": "/srv"}, "/srv"), ({"cwd": "/srv", "container": BOX}, None)],
)
def test_the_folder_lies_below_the_one_that_the_ranks_start_in(
    server: dict[str, Any], below: str | None
) -> None:
    made = context(**server)
    spec = made.server(profiled_name("baseline"))
    assert trace_folder(made, spec, "n2") == f"{below or made.workdir('n2')}/{FOLDER}"
