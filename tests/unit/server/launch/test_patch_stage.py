"""The patch stage: whose patches stand, what `unpatch` means for the next start."""

import json
from pathlib import Path

import pytest

from servemap.model.errors import PatchError
from servemap.server import freeze
from servemap.server.context import Context
from servemap.server.events import read_events
from servemap.server.launch import patch_stage, start
from servemap.server.launch.patch_stage import patch_variant, swap_patches, unpatch
from servemap.server.not_run import NotRunError
from tests.fakes import FakeNode, campaign, fake_context


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "new.py").write_text("x = 1\n")
    patch = {"id": "p", "source": "new.py", "target": "old.py", "root": "."}
    config = campaign(
        variables=[{"id": "code", "keys": ["patches"]}],
        variants=[
            {"id": "baseline"},
            {"id": "patched", "variable": "code", "set": {"patches": [patch]}},
        ],
        policy={"on_unpatched": "refuse"},
    )
    node = FakeNode()
    node.on_run["patch"] = lambda argv: json.dumps(
        {"ok": True, "changed": True, "files": [], "others": []}
    )
    return fake_context(node, config)


def test_after_unpatch_a_patched_variant_is_refused_until_it_is_patched_again(
    context: Context,
) -> None:
    output = Path("record.json")
    assert unpatch(context)["n1"]["status"] == "ok"
    swap_patches(context, "baseline", "n1")
    with pytest.raises(NotRunError, match="taken back by `unpatch`") as caught:
        swap_patches(context, "patched", "n1")
    assert caught.value.cause == "patch"
    patch_variant(context, "patched", "n1", output)
    assert json.loads(output.read_text())["status"] == "ok"
    swap_patches(context, "patched", "n1")
    assert [e["event"] for e in read_events(context.run_dir)].count("unpatch") == 1


def test_a_patch_that_does_not_apply_is_recorded_and_fails_the_launch(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise PatchError("the hunk does not fit", "old.py", "mend the diff")

    monkeypatch.setattr(patch_stage.patches, "apply_patches", refuse)
    patch_variant(context, "patched", "n1", Path("record.json"))
    record = json.loads(Path("record.json").read_text())
    assert record["status"] == "failed"
    assert "the hunk does not fit" in record["reasons"][0]
    with pytest.raises(NotRunError, match="the hunk does not fit") as caught:
        start.start_server(context, "patched", context.server("patched"), [])
    assert caught.value.cause == "launch"


def test_another_variants_server_is_stopped_before_its_files_change(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(patch_stage, "stop_server", lambda *args: order.append("stop"))
    monkeypatch.setattr(
        patch_stage, "swap_patches", lambda *args: order.append("swap") or {"patches": {}}
    )

    class Running:
        variant = "baseline"

    monkeypatch.setattr(patch_stage, "standing", lambda *args: {"n1": Running()})
    patch_variant(context, "patched", "n1", Path("record.json"))
    patch_variant(context, "baseline", "n1", Path("record.json"))
    assert order == ["stop", "swap", "swap"]


def test_each_start_says_what_its_server_uses_and_so_does_the_freeze(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(
        patch_stage.patches,
        "apply_patches",
        lambda node, wanted, work, search, uses: asked.append(uses) or {"changed": False},
    )
    swap_patches(context, "baseline", "n1")

    def refuse(node: object, work: str, uses: list[str]) -> None:
        asked.append(uses)
        raise PatchError("old.py is patched by another campaign, run demo", work, "unpatch")

    monkeypatch.setattr(freeze, "refuse_others", refuse)
    with pytest.raises(PatchError, match="run demo"):
        freeze.freeze_node(context, "n1", Path("facts.json"), Path("before.json"))
    target = str(Path(context.paths_from("n1"), "old.py"))
    assert asked == [[target], [target]]
    assert not Path("facts.json").exists()
