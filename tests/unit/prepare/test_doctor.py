"""The doctor on nodes: this machine driven as if it were two others, whole and with faults."""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from servemap.engines import embedded
from servemap.measure.setup import load_context
from servemap.model.errors import ConnectionLostError
from servemap.model.resolve import _source_digest
from servemap.model.server_spec import NodeSpec
from servemap.nodes.base import Completed, Node
from servemap.nodes.clock import ClockOffset
from servemap.prepare import survey
from servemap.prepare.doctor import examine
from servemap.prepare.here import HERE
from servemap.prepare.lines import Line
from servemap.server.launch.boots import Boot, write_boot
from tests.fakes import FarNode, campaign
from tests.unit.cli.test_cli import call

ENGINE = {
    "engine": "llamacpp",
    "python": sys.executable,
    "package": {"name": "llamaserve", "root": str(Path(embedded.__file__).parent)},
}


class ToldNode(FarNode):
    """A far node whose survey is changed as a test says: hardware that is not here (simulated)."""

    def __init__(self, name: str, home: Path, change: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(name, home)
        self._change = change
        self.closed = False

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002
        cwd: str | None = None,
    ) -> Completed:
        done = super().run(argv, timeout_s=timeout_s, env=env, input=input, cwd=cwd)
        if argv[-1] != "survey" or done.code:
            return done
        found = json.loads(done.stdout)
        # Each is a machine of its own, and has the address that the campaign gives.
        found["kernel"] = {"hostname": self.name, "boot_id": "b", "release": "6.1"}
        found["address"] = {"ours": True, "reason": None}
        self._change(found)
        return replace(done, stdout=json.dumps(found))

    def close(self) -> None:
        self.closed = True


def nothing(found: dict[str, Any]) -> None:
    """Change nothing."""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A campaign on two nodes, with a model that is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(survey, "measure_clock", lambda node: ClockOffset(1000, 500))
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("12345")
    return campaign(
        nodes=[
            {"id": "worker", "role": "worker", "transport": "ssh", "address": "10.0.0.2"},
            {"id": "head", "transport": "ssh", "address": "10.0.0.1"},
        ],
        model={"name": "m", "path": str(model), "context": 2048},
        server={**ENGINE, "port": free_port(), "nodes": ["head", "worker"]},
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def nodes_of(tmp_path: Path, **changes: Callable[[dict[str, Any]], None]) -> Callable[..., Node]:
    made = {
        name: ToldNode(name, tmp_path / name, changes.get(name, nothing))
        for name in ("head", "worker")
    }
    return lambda spec: made[spec.id]


def by_check(lines: list[Line]) -> dict[tuple[str, str], Line]:
    found = {(line.node, line.check): line for line in lines}
    assert len(found) == len(lines), "one line a node and check"
    for line in lines:
        assert bool(line.remedy) == (line.state != "ok")
    return found


def test_two_nodes_that_are_ready(two: dict[str, Any], tmp_path: Path) -> None:
    lines = examine(load_context(two), nodes_of(tmp_path))
    assert [line for line in lines if line.state not in ("ok", "warn")] == []
    found = by_check(lines)
    assert lines[0].node == "head", "the head comes first"
    assert found["head", "ssh"].seen.startswith("connected in")
    assert found["worker", "model"].seen.startswith("1 file, 5 B")
    assert "(server.port)" in found["head", "ports"].seen
    assert "29500 (server.master_port)" in found["head", "ports"].seen
    assert ("worker", "ports") not in found
    assert ("head", "accelerators") not in found, "none are planned"
    assert found[HERE, "results disk"].state == "ok"
    assert not (tmp_path / "results").exists(), "nothing is begun"


def test_a_node_that_cannot_be_reached(two: dict[str, Any], tmp_path: Path) -> None:
    reachable = nodes_of(tmp_path)

    def connector(spec: NodeSpec) -> Node:
        if spec.id == "worker":
            raise ConnectionLostError("no route to host", "node worker", "switch it on")
        return reachable(spec)

    found = by_check(examine(load_context(two), connector))
    assert found["worker", "ssh"].seen == "no route to host (node worker)"
    assert found["worker", "ssh"].state == "FAIL"
    rest = [line for (node, check), line in found.items() if node == "worker" and check != "ssh"]
    assert {line.state for line in rest} == {"?"}
    head = {check for node, check in found if node == "head"}
    assert {line.check for line in rest} == head - {"ssh", "ports"}
    assert found["head", "model"].state == "ok"


def test_a_node_whose_python_does_not_run(two: dict[str, Any], tmp_path: Path) -> None:
    connector = nodes_of(tmp_path)
    worker = connector(NodeSpec(id="worker"))
    worker._python = "/bin/false"
    found = by_check(examine(load_context(two), connector))
    assert found["worker", "ssh"].state == "ok"
    assert found["worker", "python"].state == "FAIL"
    assert "install Python 3.8" in found["worker", "python"].remedy
    assert found["worker", "model"].state == "?"
    assert worker.closed


def test_nodes_that_differ(two: dict[str, Any], tmp_path: Path) -> None:
    """Cards, links and images that are not here (simulated)."""
    for node in two["nodes"]:
        node |= {"accelerators": 2, "rails": [{"netdev": "eth0", "hca": "mlx5_0"}], "become": True}
    two["server"]["container"] = {"image": "i:1"}
    port = {"state": "4: ACTIVE", "link_layer": "InfiniBand", "rate": "400", "gids": {}}

    def machine(cards: int, mtu: int, image: str, size: int) -> Callable[[dict[str, Any]], None]:
        def change(found: dict[str, Any]) -> None:
            found["cards"] = {"tool": "nvidia-smi", "count": cards, "errors": []}
            found["netdevs"] = {"eth0": {"mtu": mtu, "operstate": "up"}}
            found["rdma"] = {"mlx5_0": {"netdevs": ["eth0"], "ports": {"1": port}}}
            found["peer_memory"] = {"modules": ["nvidia_peermem"]}
            found["sudo"] = {"works": True, "said": None}
            images = {"i:1": {"id": f"sha256:{image}", "digests": []}}
            found["runtime"] = {"version": "27", "error": None, "images": images}
            for listing in found["paths"].values():
                listing["files"]["weights"] = size

        return change

    connector = nodes_of(tmp_path, head=machine(2, 9000, "aa", 5), worker=machine(1, 1500, "bb", 6))
    found = by_check(examine(load_context(two), connector))
    failed = {key for key, line in found.items() if line.state == "FAIL"}
    assert failed == {
        ("worker", check) for check in ("accelerators", "rails and MTU", "image", "model")
    }
    assert found["worker", "image"].seen == "i:1 is bb here and aa on head"
    assert found["head", "memlock"].state == "ok", "containers get their own limit"
    same = nodes_of(tmp_path, head=machine(2, 9000, "aa", 5), worker=machine(2, 9000, "aa", 5))
    assert {line.state for line in examine(load_context(two), same)} <= {"ok", "warn"}


def test_machines_and_engines_that_differ(two: dict[str, Any], tmp_path: Path) -> None:
    def kernel(found: dict[str, Any]) -> None:
        found["kernel"]["release"] = "5.4"
        found["address"] = {"ours": False, "reason": "Cannot assign requested address"}
        found["engines"][0]["packages"]["xllamacpp"] = "0.0.1"

    found = by_check(examine(load_context(two), nodes_of(tmp_path, worker=kernel)))
    failed = {key for key, line in found.items() if line.state == "FAIL"}
    assert failed == {("worker", check) for check in ("machine", "address", "engine")}
    assert found["worker", "machine"].seen == "kernel 5.4 here and 6.1 on head"
    assert "10.0.0.2 is no address of this machine" in found["worker", "address"].seen
    assert "differs from that of head: xllamacpp 0.0.1 (there " in found["worker", "engine"].seen
    assert "llamaserve, xllamacpp in " in found["head", "engine"].seen


def test_one_machine_as_two_nodes(two: dict[str, Any], tmp_path: Path) -> None:
    def same(found: dict[str, Any]) -> None:
        found["kernel"]["hostname"] = "head"

    found = by_check(examine(load_context(two), nodes_of(tmp_path, worker=same)))
    assert found["worker", "machine"].seen == "it is the same machine as head, head"
    assert found["worker", "machine"].state == "FAIL"


def test_an_interpreter_without_the_engine(two: dict[str, Any], tmp_path: Path) -> None:
    del two["server"]["package"]
    found = by_check(examine(load_context(two), nodes_of(tmp_path)))
    assert found["head", "engine"].state == "FAIL"
    assert "has no module llamaserve" in found["head", "engine"].seen
    two["server"]["python"] = "/no/python"
    found = by_check(examine(load_context(two), nodes_of(tmp_path)))
    assert found["worker", "engine"].seen == "/no/python: no such program"
    assert "server.python" in found["worker", "engine"].remedy


def test_load_clients_of_others_are_looked_for_on_the_node_of_the_load(
    two: dict[str, Any], tmp_path: Path
) -> None:
    two["clients"] = {
        "vllm-bench": {"python": "/no/python"},
        "sglang-bench": {"python": sys.executable},
        "aiperf": {"python": "/not/planned"},
    }
    shape = {"isl": 64, "osl": 8, "concurrency": 2}
    two["cases"] += [{"id": c, "client": c, **shape} for c in ("vllm-bench", "sglang-bench")]
    two["phases"] = [{"id": "p", "cases": [case["id"] for case in two["cases"]]}]

    def looked_for() -> dict[tuple[str, str], Line]:
        return by_check(examine(load_context(two), nodes_of(tmp_path)))

    found = looked_for()
    absent, without = found["head", "client vllm-bench"], found["head", "client sglang-bench"]
    assert (absent.state, absent.seen) == ("FAIL", "/no/python: no such program")
    assert "clients.vllm-bench.python" in absent.remedy
    assert (without.state, without.seen) == ("FAIL", f"{sys.executable} has no module sglang")
    assert ("head", "client aiperf") not in found, "no planned case names it"
    two["load_node"], two["server"]["bind"] = "worker", "0.0.0.0"
    assert ("worker", "client vllm-bench") in looked_for()


def test_a_load_client_that_is_there(two: dict[str, Any], tmp_path: Path) -> None:
    def there(found: dict[str, Any]) -> None:
        modules, packages = {"vllm": "/v/vllm/__init__.py"}, {"vllm": "0.32.0"}
        found["clients"] = [{"modules": modules, "packages": packages, "version": "3.11.7"}]

    two["clients"] = {"vllm-bench": {"python": "/v/bin/python"}}
    two["cases"] = [{"id": "c", "client": "vllm-bench", "isl": 64, "osl": 8, "concurrency": 2}]
    two["phases"] = [{"id": "p", "cases": ["c"]}]
    found = by_check(examine(load_context(two), nodes_of(tmp_path, head=there)))
    assert found["head", "client vllm-bench"].seen == "vllm 0.32.0 in /v/bin/python"
    assert found["head", "client vllm-bench"].state == "ok"


def test_the_source_of_a_patch_that_is_not_here(two: dict[str, Any], tmp_path: Path) -> None:
    patch = {"id": "mine", "source": "mine.py", "target": "/e/m.py", "root": "/e"}
    two["server"]["patches"] = [patch]
    _source_digest.cache_clear()
    found = by_check(examine(load_context(two), nodes_of(tmp_path)))
    assert found["(here)", "patches"].state == "FAIL"
    assert "mine.py (mine)" in found["(here)", "patches"].seen
    Path("mine.py").write_text("x = 1\n")
    _source_digest.cache_clear()
    found = by_check(examine(load_context(two), nodes_of(tmp_path)))
    assert found["(here)", "patches"].seen == "their sources are here: mine"
    assert found["(here)", "patches"].state == "ok"


def test_a_port_that_the_runs_own_server_holds(two: dict[str, Any], tmp_path: Path) -> None:
    context = load_context(two)
    boot = Boot("baseline", "b1", "s1", "f", [], 1, 5)
    write_boot(context.run_dir, boot)

    def held(boot_id: str | None) -> Callable[[dict[str, Any]], None]:
        row = {"port": 1, "address": "127.0.0.1", "uid": 0, "pid": 7, "comm": "python"}
        return lambda found: found.update(ports=[{**row, "boot_id": boot_id}])

    for boot_id, state, said in (
        ("b1", "warn", "a server that servemap started, of this run (start b1)"),
        ("b2", "FAIL", "a server that servemap started, of another run (start b2)"),
        (None, "FAIL", "pid 7 (python)"),
    ):
        found = by_check(examine(context, nodes_of(tmp_path, head=held(boot_id))))
        assert found["head", "ports"].state == state
        assert said in found["head", "ports"].seen


def test_the_runtime_that_does_not_answer(two: dict[str, Any], tmp_path: Path) -> None:
    two["server"]["container"] = {"image": "i:1"}

    def change(found: dict[str, Any]) -> None:
        found["runtime"] = {"version": None, "error": "permission denied", "images": {}}

    found = by_check(examine(load_context(two), nodes_of(tmp_path, head=change, worker=change)))
    assert found["head", "container runtime"].state == "FAIL"
    assert found["head", "image"].state == "?"


def test_a_server_that_is_attached_to_needs_no_model_and_no_port(
    two: dict[str, Any], tmp_path: Path
) -> None:
    two["server"] = {"engine": "vllm", "attach": "http://127.0.0.1:9"}
    two["variants"], two["variables"] = [{"id": "baseline"}], []
    lines = examine(load_context(two), nodes_of(tmp_path))
    assert {"model", "ports", "memlock"} & {line.check for line in lines} == set()
    assert "disk space" in {line.check for line in lines}


def test_a_section_that_failed_hides_no_other(two: dict[str, Any], tmp_path: Path) -> None:
    def change(found: dict[str, Any]) -> None:
        found["disk"] = {"error": "OSError: odd"}
        found["ports"] = {"error": "OSError: odd"}

    found = by_check(examine(load_context(two), nodes_of(tmp_path, head=change)))
    for check in ("disk space", "work folder", "ports"):
        assert found["head", check].state == "?"
    assert found["head", "model"].state == "ok"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The command in a folder with a campaign on this machine."""
    monkeypatch.chdir(tmp_path)
    Path("model.gguf").write_text("x")
    server = {**ENGINE, "port": free_port()}
    Path("c.yaml").write_text(yaml.safe_dump(campaign(server=server)))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda capsys, *args: call(capsys, monkeypatch, *args)


def test_the_command(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = here(capsys, "doctor", "--configfile", "c.yaml")
    assert code == 0, said
    assert "n1      ssh" in said
    assert "this machine" in said
    assert "0 failed" in said
    Path("model.gguf").unlink()
    Path("site").mkdir()
    Path("site/profile.yaml").write_text("configfile: c.yaml\n")
    code, said = here(capsys, "doctor", "--profile", "site")
    assert code == 1
    assert "no such file or folder" in said
    assert "mend model.path" in " ".join(said.split())


def test_a_port_that_is_held(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    port = yaml.safe_load(Path("c.yaml").read_text())["server"]["port"]
    with socket.socket() as held:
        held.bind(("127.0.0.1", port))
        held.listen()
        code, said = here(capsys, "doctor", "--configfile", "c.yaml")
    assert code == 1
    assert f"held: {port}: pid {os.getpid()}" in said


def test_the_commands_errors_are_words(here: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--configfile", "none.yaml"], ["--profile", "none"]):
        code, said = here(capsys, "doctor", *args)
        assert code == 1
        assert said.startswith("error: ")
