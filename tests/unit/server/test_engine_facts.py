"""What servers run on a node: what is asked, and what counts as drift."""

import sys
from pathlib import Path
from typing import Any

import pytest

from servemap.server.engine_facts import engine_drift, engine_of, engine_request
from tests.fakes import FakeNode, campaign, fake_context


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "overlay/sub").mkdir(parents=True)
    (tmp_path / "overlay/sub/a.py").write_text("a")


def request(**server: Any) -> dict[str, list[str]]:
    config = campaign(server={"engine": "llamacpp", **server})
    return engine_request(fake_context(FakeNode(), config), "n1")


def test_what_a_node_is_asked() -> None:
    assert request() == {"pythons": [sys.executable], "packages": [], "apart": []}
    patches = [
        {"id": "one", "source": "x.py", "target": "/e/llamaserve/x.py", "root": "/e"},
        {"id": "laid", "kind": "folder", "source": "overlay", "target": "/e/llamaserve",
         "root": "/e"},
    ]  # fmt: skip
    package = {"name": "llamaserve", "root": "/e"}
    found = request(python="/p/python", package=package, patches=patches)
    assert found == {
        "pythons": ["/p/python"],
        "packages": ["/e/llamaserve"],
        "apart": ["/e/llamaserve/sub/a.py", "/e/llamaserve/x.py"],
    }


@pytest.mark.parametrize("server", [{"container": {"image": "i"}}, {"attach": "http://h:1"}])
def test_servers_that_do_not_run_the_nodes_own_software(server: dict[str, Any]) -> None:
    variants: dict[str, Any] = {"variables": [], "variants": [{"id": "baseline"}]}
    config = campaign(server={"engine": "vllm", **server}, **variants)
    context = fake_context(FakeNode(), config)
    assert engine_request(context, "n1") == {"pythons": [], "packages": [], "apart": []}
    assert engine_of(context, "baseline", "n1", {}) is None


def test_the_part_of_the_facts_that_a_variant_runs() -> None:
    server = {"engine": "llamacpp", "python": "/p", "package": {"name": "e", "root": "/r"}}
    context = fake_context(FakeNode(), campaign(server=server))
    python, files = {"version": "3"}, {"files": 1}
    facts = {"engine_python": {"/p": python, "/q": {}}, "engine_files": {"/r/e": files}}
    assert engine_of(context, "few", "n1", facts) == {"python": python, "files": files}
    assert engine_of(context, "few", "n1", {}) == {"python": None, "files": None}
    broken = {"engine_files": {"error": "OSError"}}
    assert engine_of(context, "few", "n1", broken) == {
        "python": None,
        "files": broken["engine_files"],
    }


def facts(python: Any = None, apart: tuple[str, ...] = (), **digests: str) -> dict[str, Any]:
    files = {"files": len(digests), "sha256": str(digests), "digests": digests, "apart": [*apart]}
    return {
        "engine_python": {"/p": python or {"version": "3.11", "packages": {"torch": "2.7"}}},
        "engine_files": {"/e": files},
    }


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (facts(a="1"), facts(a="1"), []),
        (facts(a="1"), facts(a="2"), ["files of /e/a was 1, is 2"]),
        (facts(a="1"), facts(b="2"),
         ["files of /e/a was 1, is gone", "files of /e/b was not there, is 2"]),
        (facts(), facts({"version": "3.12", "packages": {}}),
         ["/p: version was 3.11, is 3.12", "/p: package torch was 2.7, is gone"]),
        # An interpreter of no server any more; one that fails to answer says so itself.
        (facts(), {}, []),
        ({}, facts(a="1"), []),
        (facts({"error": "no"}), facts(), []),
        (facts(), facts({"error": "no such file"}), ["/p does not answer any more: no such file"]),
        # A patch that the campaign gained or lost changes what is left out, and is no drift.
        (facts(a="1", d="1"), facts(apart=("d",), a="1"), []),
        (facts(apart=("d",), a="1"), facts(**{"d/x": "1"}, a="1"), []),
    ],
)  # fmt: skip
def test_drift_of_engines(before: dict[str, Any], after: dict[str, Any], said: list[str]) -> None:
    assert engine_drift(before, after) == said


def test_many_changed_files_are_counted() -> None:
    found = engine_drift(facts(**{f"f{n}": "1" for n in range(50)}), facts(other="1"))
    assert len(found) == 11
    assert found[-1] == "files of /e: 41 more"
