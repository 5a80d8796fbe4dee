"""Frozen facts: what counts as drift, in which words, and what is kept out of the file."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import NodeError
from servemap.server import freeze
from servemap.server.freeze import drift, freeze_node, frozen, snapshot_node, workflow_facts
from tests.fakes import FakeNode, campaign, fake_context

FACTS: dict[str, Any] = {
    "kernel": {"release": "6.1"},
    "cpu": {"model": "c"},
    "python": {"version": "3.11", "packages": {"torch": "2.1", "numpy": "2.0"}},
    "models": {"models": [{"path": "m", "files": [{"name": "w.gguf", "sha256": "aa"}]}]},
    "memory": {"total": 1},
}


def changed(section: str, value: Any) -> dict[str, Any]:
    return {**FACTS, section: value}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (FACTS, []),
        (changed("memory", {"total": 2}), []),
        (changed("kernel", {"release": "6.2"}), ["kernel.release was '6.1', is '6.2'"]),
        (changed("cpu", {}), ["cpu.model was 'c', is None"]),
        (
            changed("python", {"version": "3.11", "packages": {"torch": "2.2"}}),
            ["package numpy was 2.0, is gone", "package torch was 2.1, is 2.2"],
        ),
        (
            changed("models", {"models": [{"path": "m", "files": [
                {"name": "w.gguf", "sha256": "bb"}]}]}),
            ["file m:w.gguf changed: aa -> bb"],
        ),
        (
            changed("models", {"models": [{"path": "m", "errors": ["no such file"]}]}),
            ["file m:w.gguf is gone"],
        ),
        (
            changed("models", {"models": [
                {"path": "m", "files": [{"name": "w.gguf", "sha256": "aa"},
                                        {"name": "x", "sha256": "bb"}]},
                {"path": "extra", "errors": ["no such file"]}]}),
            ["extra: no such file", "file m:x is new"],
        ),
    ],
)  # fmt: skip
def test_drift_is_named(now: dict[str, Any], said: list[str]) -> None:
    assert drift(FACTS, now) == said


def test_a_model_that_is_one_file_is_named_by_its_path() -> None:
    before = {"models": {"models": [
        {"path": "a/w.gguf", "files": [{"name": "w.gguf", "sha256": "aa"}]}]}}  # fmt: skip
    gone = {"models": {"models": [{"path": "a/w.gguf", "errors": ["no such file or folder"]}]}}
    assert drift(before, gone) == ["file a/w.gguf is gone"]


def test_a_section_that_could_not_be_taken_is_drift_and_no_crash() -> None:
    assert drift(FACTS, changed("python", {"error": "OSError"})) == [
        "package numpy was 2.0, is gone",
        "package torch was 2.1, is gone",
        "python.version was '3.11', is None",
    ]


def test_freeze_and_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    asked: list[list[str]] = []
    node.on_run["facts"] = lambda argv: asked.append(argv) or json.dumps(FACTS)
    context = fake_context(node, campaign(freeze={"files": ["extra.bin"]}))
    assert frozen(context, "n1") is None
    freeze_node(context, "n1", Path("results/r/freeze/n1.json"), Path("before.json"))
    found = frozen(context, "n1")
    assert found is not None
    assert drift(found, FACTS) == []
    assert found["workflow"]["servemap"]
    (taking,) = [argv for argv in asked if "--model" in argv]
    assert [taking[i + 1] for i, word in enumerate(taking) if word == "--model"] == [
        "model.gguf",
        "extra.bin",
    ]
    snapshot_node(context, "n1", Path("after.json"))
    for name in ("before.json", "after.json"):
        assert json.loads(Path(name).read_text())["state"] == FACTS


def test_declared_secrets_are_not_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent hides what looks like a secret; what the campaign declares is one by any name."""
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    node.facts = {"env": {"VLLM_LICENSE": "hunter2", "VLLM_HOST": "h", "VLLM_X": "hunter3"}}
    server = {
        "engine": "vllm",
        "env": {"VLLM_X": {"secret": "SITE_X"}, "A": {"secret": "VLLM_LICENSE"}},
    }
    context = fake_context(
        node, campaign(server=server, variables=[], variants=[{"id": "baseline"}])
    )
    freeze_node(context, "n1", Path("results/r/freeze/n1.json"), Path("before.json"))
    text = Path("results/r/freeze/n1.json").read_text()
    assert "hunter" not in text
    assert '"VLLM_HOST": "h"' in text


@pytest.mark.parametrize("answer", ["", "[]", "{}", "not json"])
def test_an_agent_without_facts_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    node.on_run["facts"] = lambda argv: answer
    context = fake_context(node, campaign())
    with pytest.raises(NodeError, match=r"the agent (exited with 0|gave no facts)"):
        freeze.take_facts(context, "n1")


def test_workflow_facts_say_the_commit_and_whether_the_tree_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*args: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *args],
            cwd=tmp_path, check=True, capture_output=True,
        )  # fmt: skip

    (tmp_path / "freeze.py").write_text("1")
    monkeypatch.setattr(freeze, "__file__", str(tmp_path / "freeze.py"))
    assert workflow_facts()["commit"] is None, "a copy without git says so"
    assert workflow_facts()["tree_clean"] is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = workflow_facts()
    assert len(clean["commit"]) == 40
    assert clean["tree_clean"] is True
    (tmp_path / "freeze.py").write_text("2")
    dirty = workflow_facts()
    assert dirty["tree_clean"] is False
    assert [line.split() for line in dirty["changed_files"]] == [["M", "freeze.py"]]
    assert "pydantic" in dirty["packages"]
