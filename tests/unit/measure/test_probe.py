"""Tools of required collectors are tried on the nodes before a server starts (simulated)."""

import json
import os
from pathlib import Path

import pytest

from servemap.measure.probe import require_collectors, why_silent
from servemap.nodes.local import LocalNode
from servemap.server.launch import stage
from servemap.server.not_run import NotRunError
from servemap.telemetry.catalogue import catalogue
from servemap.telemetry.collectors import Probe
from tests.fakes import FakeNode, campaign, fake_context
from tests.parts import need
from tests.shims import dcgmi, nvidia_smi


def probe(name: str) -> Probe:
    found = catalogue()[name].probe
    assert found is not None
    return found


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_a_tool_that_answers_is_ready(bin_folder: Path) -> None:
    nvidia_smi(bin_folder, Path(need("corpus")))
    assert why_silent(LocalNode("n1"), probe("nvidia_smi")) is None


def test_a_host_engine_that_does_not_answer(bin_folder: Path) -> None:
    """The tool says so on stdout, and its exit status is not known to tell."""
    dcgmi(bin_folder, Path(need("corpus")))
    said = why_silent(LocalNode("n1"), probe("dcgm"))
    assert said is not None
    assert "dcgmi discovery -l" in said
    assert "unable to establish a connection" in said


def test_a_tool_that_is_not_there_or_fails(bin_folder: Path) -> None:
    node = LocalNode("n1")
    missing = probe("dcgm")._replace(argv=("no-such-tool",))
    assert "no-such-tool" in (why_silent(node, missing) or "")
    failing = probe("nvidia_smi")._replace(argv=("sh", "-c", "echo no driver; exit 9"))
    assert "ended with status 9: no driver" in (why_silent(node, failing) or "")


def requiring(**collectors: dict[str, bool]) -> dict[str, object]:
    return campaign(collectors={"proc": {}, **collectors})


@pytest.mark.parametrize(("required", "status"), [(True, "not_run"), (None, None)])
def test_a_required_one_ends_the_phase_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: bool | None, status: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    node.on_run["-c"] = lambda argv: "Error: unable to connect to host engine\n"
    setting = {} if required is None else {"required": required}
    context = fake_context(node, requiring(dcgm=setting))
    if not required:
        require_collectors(context, "baseline")
        return
    with pytest.raises(NotRunError, match="required collector dcgm") as caught:
        require_collectors(context, "baseline")
    assert (caught.value.where, caught.value.cause) == ("node n1", "collector")
    assert "nv-hostengine" in caught.value.remedy
    output = tmp_path / "launch.json"
    stage.launch_variant(context, "baseline", 1, output, require_collectors)
    record = json.loads(output.read_text())
    assert (record["status"], record["cause"]) == (status, "collector")
    assert "nv-hostengine" in record["reasons"][0]
    assert node.starts() == 0


def test_files_of_a_required_one_are_looked_at_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_silent(LocalNode("n1"), probe("tcp")) is None
    none = probe("hca")._replace(argv=("sh", "-c", f"cat {tmp_path}/*/state"))
    assert "ended with status 1" in (why_silent(LocalNode("n1"), none) or "")
    monkeypatch.chdir(tmp_path)
    node = FakeNode()
    asked: list[list[str]] = []
    node.on_run["-c"] = lambda argv: asked.append(argv[4:]) or "some avg10=0.00\n"
    context = fake_context(node, requiring(pressure={"required": True}))
    require_collectors(context, "baseline")
    assert asked == [["cat", "/proc/pressure/cpu"]]


def test_every_remedy_says_what_to_do() -> None:
    for name, one in catalogue().items():
        if one.probe is not None:
            assert "required to false" in one.probe.remedy, name
