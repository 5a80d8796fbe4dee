"""The hook is there for patched servers alone, and its notes end in the gate."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Placement
from servemap.model.server_spec import Container, ServerSpec
from servemap.server.container.image import Image
from servemap.server.context import Context
from servemap.server.gates.checks import Started
from servemap.server.gates.ports import NodeView
from servemap.server.launch.commands import RankCommand, boxed
from servemap.server.launch.patch_hook import check_imports, hooked
from tests.fakes import FakeNode, campaign, fake_context

PATCH = {"id": "p", "source": "new.py", "target": "old.py", "root": "."}
CHANGED = {"p": {"files": [{"path": "/x/old.py", "sha256_after": "1" * 64}]}}
RECORD: dict[str, Any] = {"others": [], "order": ["p"], "patches": CHANGED}
COMMAND = RankCommand(Placement("n1"), ["python"], {}, {}, None)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: FakeNode) -> Context:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config = campaign(
        variables=[{"id": "code", "keys": ["patches"]}],
        variants=[
            {"id": "baseline"},
            {"id": "patched", "variable": "code", "set": {"patches": [PATCH]}},
        ],
    )
    return fake_context(node, config)


def started(node: FakeNode) -> Started:
    """The gates' view of a node with no process at all."""
    return Started(1, 1, "127.0.0.1", 1, None, "", NodeView("", "", {}, {}))


def test_the_hook_is_put_in_place_for_patches_alone(context: Context) -> None:
    server = context.server("patched")
    assert hooked(context, server, "b", COMMAND, {"patches": {}}, {}) is COMMAND
    assert not list(Path(context.workdir("n1")).glob("server/*.hook"))
    data = {"p": {"files": [{"path": "/x/table.json", "sha256_after": "1" * 64}]}}
    assert hooked(context, server, "b", COMMAND, {"patches": data}, {}) is COMMAND
    command = hooked(context, server, "b", COMMAND, RECORD, {})
    assert command.hook is not None
    assert command.record()["hook"] == command.hook
    assert "hook" not in COMMAND.record()
    assert Path(command.hook, "watched").read_text() == "/x/old.py\n"
    assert Path(command.hook, "notes").read_text() == ""
    assert Path(command.hook, "sitecustomize.py").read_text().startswith('"""Notes which source')


def test_a_variant_without_patches_says_so_where_others_have_some(
    context: Context, node: FakeNode
) -> None:
    checks, imports = check_imports(
        context, "baseline", "b", {"n1": {"others": []}}, {"n1": started(node)}
    )
    assert [(check.name, check.ok) for check in checks] == [("patches", True)]
    assert "unpatched" in checks[0].evidence
    assert imports == {}


def test_a_campaign_without_patches_has_no_such_check(
    node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = fake_context(node, campaign())
    assert check_imports(plain, "baseline", "b", {"n1": {"others": []}}, {"n1": started(node)}) == (
        [],
        {},
    )


@pytest.mark.parametrize("variant", ["baseline", "patched"])
def test_another_campaigns_patch_elsewhere_is_no_pass(
    context: Context, node: FakeNode, variant: str
) -> None:
    row = {"path": "/other/x.py", "work": "/s/demo-0123abcd-n1", "used": False}
    record = {**RECORD, "others": [row]}
    node.on_run["patch-notes"] = lambda argv: json.dumps({"processes": []})
    checks, _ = check_imports(context, variant, "b", {"n1": record}, {"n1": started(node)})
    (check,) = [check for check in checks if check.name == "patches" and check.ok is None]
    assert "/other/x.py of n1 (by /s/demo-0123abcd-n1)" in check.evidence
    assert not [check for check in checks if check.name == "patches" and check.ok]


def test_what_the_node_tells_is_judged_and_stored(context: Context, node: FakeNode) -> None:
    item = {"module": "old", "file": "/x/old.py", "sha256": "1" * 64, "inherited": False}
    told = {"pid": 7, "program": "/p/python3", "began": True, "imports": [item]}
    node.on_run["patch-notes"] = lambda argv: json.dumps({"processes": [told]})
    checks, imports = check_imports(context, "patched", "b", {"n1": RECORD}, {"n1": started(node)})
    assert [(check.name, check.ok) for check in checks] == [("patches.p", True)]
    assert imports["n1"][0]["sha256"] == "1" * 64


def test_a_process_that_was_only_starting_is_asked_once_more(
    context: Context, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    item = {"module": "old", "file": "/x/old.py", "sha256": "1" * 64, "inherited": False}
    told = {"pid": 7, "program": "/p/python3", "began": True, "imports": [item]}
    starting = {"pid": 8, "program": "/p/python3", "began": False, "imports": []}
    for last, ok in (({**starting, "began": True}, True), (starting, None)):
        answers = [[told, starting], [told, last]]
        node.on_run["patch-notes"] = lambda argv, left=answers: json.dumps(
            {"processes": left.pop(0)}
        )
        checks, _ = check_imports(context, "patched", "b", {"n1": RECORD}, {"n1": started(node)})
        assert [check.ok for check in checks] == [ok]
    assert len(waited) == 2


@pytest.mark.parametrize("answer", ["", "{}"])
def test_no_answer_is_no_proof(context: Context, node: FakeNode, answer: str) -> None:
    node.on_run["patch-notes"] = lambda argv: answer
    checks, _ = check_imports(context, "patched", "b", {"n1": RECORD}, {"n1": started(node)})
    assert [(check.name, check.ok) for check in checks] == [("patches", False)]
    assert checks[0].remedy


BOXED = Container(image="x", mounts=["/y:/z:ro", "/x:/inside", "/x/old.py:/only.py"])


def in_box(context: Context, node: FakeNode) -> ServerSpec:
    """The patched server in a container; on the node `/link` is `/x`."""
    node.on_run["-m"] = lambda argv: "\n".join(argv[3:]).replace("/link", "/x")
    node.on_run["0666"] = lambda argv: ""
    return context.server("patched").model_copy(update={"container": BOXED})


@pytest.mark.parametrize(
    ("env", "image", "path"),
    [({}, None, ""), ({}, "/of/image", ":/of/image"), ({"PYTHONPATH": "/a"}, "/of/image", ":/a")],
)
def test_in_a_container_the_hook_is_mounted_and_keeps_what_is_on_the_path(
    context: Context, node: FakeNode, env: dict[str, str], image: str | None, path: str
) -> None:
    command = replace(COMMAND, env=env)
    images = {"n1": Image("x", "sha256:1", python_path=image)}
    found = hooked(context, in_box(context, node), "b", command, RECORD, images)
    assert found.env["PYTHONPATH"] == f"{found.hook}{path}"
    assert Path(str(found.hook), "watched").read_text() == "/only.py\n"
    words = boxed(context, "patched", "b", found, BOXED, "x").argv
    assert f"--volume={found.hook}:{found.hook}" in words
    assert f"--env=PYTHONPATH={found.hook}{path}" in words


def test_a_secret_path_in_a_container_leaves_no_room_for_the_hook(
    context: Context, node: FakeNode
) -> None:
    command = replace(COMMAND, secrets={"PYTHONPATH": "/hidden"})
    found = hooked(context, in_box(context, node), "b", command, RECORD, {})
    assert found is command


def test_what_a_container_imports_is_compared_by_its_own_paths(
    context: Context, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = BOXED.model_copy(update={"mounts": ["/link:/inside"]})
    server = in_box(context, node).model_copy(update={"container": mounts})
    monkeypatch.setattr(Context, "server", lambda *args: server)
    item = {"module": "old", "file": "/inside/old.py", "sha256": "1" * 64, "inherited": False}
    told = {"pid": 7, "program": None, "began": True, "imports": [item]}
    node.on_run["patch-notes"] = lambda argv: json.dumps({"processes": [told]})
    checks, _ = check_imports(context, "patched", "b", {"n1": RECORD}, {"n1": started(node)})
    assert [(check.name, check.ok) for check in checks] == [("patches.p", True)]
