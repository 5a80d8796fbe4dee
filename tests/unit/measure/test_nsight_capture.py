"""Captures by Nsight Systems: the server's command, bare and in a container (simulated)."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from servemap.engines import nsys
from servemap.engines.nsys import MARK, Launch
from servemap.engines.registry import get_engine
from servemap.measure.nsight.capture import _Taking, _versions
from servemap.measure.nsight.installed import NsysError
from servemap.measure.profiled import profiled_name, start_for_captures, why_unavailable
from servemap.model.errors import ConfigError
from servemap.model.phases import CaptureSpec
from servemap.server.context import Context
from servemap.server.launch.commands import boxed, rank_commands
from tests.fakes import FakeNode, campaign, fake_context

HELP = "-t, --trace=\n Possible values are 'cuda', 'nvtx', 'osrt' or 'none'.\n Select the API(s)\n"
SAID = "NVIDIA Nsight Systems version {}\n"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = FakeNode()
    made.on_run["--version"] = lambda _: SAID.format("2024.6.1")
    made.on_run["launch"] = lambda _: HELP
    made.on_run["run"] = lambda argv: HELP if argv[-1] == "--help" else SAID.format("2025.1.3")
    return made


def made(node: FakeNode, **server: Any) -> Context:
    spec = {"engine": "vllm", "port": 18999, **server}
    capture = {"case": "c", "kind": "nsys", "seconds": 3, "graphs": "graph"}
    return fake_context(
        node, campaign(server=spec, phases=[{"id": "phase1", "captures": [capture]}])
    )


CONTAINER = {"container": {"image": "vllm:1", "runtime": "docker"}}


def test_a_bare_server_stands_behind_nsys_launch_and_has_a_fingerprint_of_its_own(node) -> None:
    context = made(node)
    how = Launch("nsys", "s", ("cuda", "nvtx"), "graph")
    profiled = start_for_captures(context, "baseline", {f"env.{MARK}": how.mark()})
    name = profiled_name("baseline")
    (command,) = rank_commands(profiled, name, profiled.server(name), get_engine("vllm"))
    assert command.argv[:3] == ["nsys", "launch", "--session-new=s-r0"]
    assert "--cuda-graph-trace=graph" in command.argv
    (plain,) = rank_commands(context, "baseline", context.server("baseline"), get_engine("vllm"))
    assert command.argv[-len(plain.argv) :] == plain.argv, "the engine's own command is the same"
    prints = {context.plan.spec_sha256("launch", one) for one in context.plan.variants}
    assert profiled.plan.spec_sha256("launch", name) not in prints


def test_in_a_container_nsys_is_the_images_and_its_sessions_are_asked_inside(node) -> None:
    context = made(node, **CONTAINER)
    taking = _Taking(context, "baseline", "c", Path("capture"))
    name = profiled_name("baseline")
    server = taking.context.server(name)
    (command,) = rank_commands(taking.context, name, server, get_engine("vllm"))
    assert server.container is not None
    inside = boxed(taking.context, name, "boot", command, server.container, "sha256:1")
    assert "--entrypoint=nsys" in inside.argv
    image = inside.argv.index("sha256:1")
    assert inside.argv[image + 1] == "launch"
    session = taking._sessions("boot")["n1"]
    assert session.inside == ["docker", "exec", "servemap-baseline.profiled-boot"]
    assert session.folder == "/tmp/servemap-nsys"


def test_the_version_in_the_image_counts_and_that_outside_is_noted(node) -> None:
    found = _versions(made(node, **CONTAINER), "baseline", "nsys")["n1"]
    assert found["tool"].text == "2025.1.3"
    assert found["outside"].text == "2024.6.1"
    node.on_run["--version"] = lambda _: "nsys: not found"
    assert _versions(made(node, **CONTAINER), "baseline", "nsys")["n1"]["outside"] is None
    node.on_run["run"] = lambda _: "exec: nsys: executable file not found"
    with pytest.raises(NsysError, match="no Nsight Systems: exec: nsys") as caught:
        _versions(made(node, **CONTAINER), "baseline", "nsys")
    assert caught.value.where == "node n1, image vllm:1"


def test_the_session_is_named_by_run_variant_and_tree(node) -> None:
    taking = _Taking(made(node), "baseline", "c", Path("capture"))
    assert taking.launch.session.startswith("servemap-r-baseline-")
    assert taking.launch.traces == ("cuda", "nvtx", "osrt")
    assert (taking.launch.graphs, taking.seconds) == ("graph", 3.0)
    assert nsys.session_of(taking.launch.session, 1).endswith("-r1")


def test_every_engine_can_be_traced_that_is_started_here(node) -> None:
    for engine in ("llamacpp", "vllm", "sglang"):
        assert why_unavailable(made(node, engine=engine), "baseline", "nsys") is None
    attached = campaign(
        server={"engine": "vllm", "attach": "http://127.0.0.1:1"},
        variables=[],
        variants=[{"id": "baseline"}],
        phases=[{"id": "phase1", "captures": [{"case": "c", "kind": "nsys"}]}],
    )
    with pytest.raises(ConfigError, match="only attached to"):
        fake_context(node, attached)


def test_keys_of_nsys_are_refused_elsewhere_and_old_captures_keep_their_spec(node) -> None:
    with pytest.raises(ValidationError, match="seconds needs kind: nsys"):
        CaptureSpec(case="c", seconds=2)
    with pytest.raises(ValidationError, match="num_steps needs kind: torch"):
        CaptureSpec(case="c", kind="nsys", num_steps=10)
    with pytest.raises(ValidationError, match=r"greater than or equal to 0\.5"):
        CaptureSpec(case="c", kind="nsys", seconds=0.1)
    assert CaptureSpec(case="c", kind="nsys").num_steps is None
    plain = campaign(phases=[{"id": "phase1", "captures": [{"case": "c"}]}])
    spec = fake_context(node, plain).plan.spec_data("capture", "baseline", "c")
    assert spec["capture"] == {"case": "c", "kind": "torch", "num_steps": 10}
