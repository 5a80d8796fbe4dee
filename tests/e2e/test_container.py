"""A server in a real container, by podman: the whole chain, and every way to lose control of it."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded.tiny_model import install
from servemap.engines.profiling import FOLDER
from servemap.measure.capture import run_capture
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.model.errors import LaunchError
from servemap.model.server_spec import Build, Container, Package, PatchSpec
from servemap.nodes.local import LocalNode
from servemap.onnode.container import find
from servemap.onnode.ident import is_alive
from servemap.server.container.command import in_container, runtime_argv
from servemap.server.container.image import ensure_image, image_drift
from servemap.server.context import Context
from servemap.server.launch import process
from servemap.server.launch.ending import stop_server
from servemap.server.launch.patch_stage import unpatch
from servemap.server.launch.stage import launch_variant
from tests.e2e.kineto_server import install as install_vllm
from tests.e2e.podman import IMAGE, Podman, host_mounts
from tests.fakes import campaign
from tests.parts import need
from tests.waiting import wait_for

pytestmark = pytest.mark.e2e
pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    need("podman")
    store = Podman(tmp_path_factory.mktemp("podman"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.env.items():
            patch.setenv(name, value)
        try:
            store.import_image()
            yield store
        finally:
            store.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    install(folder)
    return folder


@pytest.fixture(autouse=True)
def _nothing_left(podman: Podman) -> Iterator[None]:
    yield
    left = podman.containers()
    for one in left:
        podman("rm", "-f", "-t", "0", one)
    assert left == []
    wait_for(lambda: not podman.helpers(), "the end of podman's helpers")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- the chain ----


@pytest.fixture
def context(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THE_KEY", "s3cr3t-value")
    made = load_context(
        {
            "run": "boxed",
            "nodes": [{"id": "local", "env": {"OMP_NUM_THREADS": "1"}}],
            "scale": {"tokens_per_k": 16},
            "model": {
                "name": "tiny", "path": "/no/such/path/outside", "context": 2048,
                "vocab": [300, 1000],
            },
            "server": {
                "engine": "llamacpp",
                "port": free_port(),
                "python": sys.executable,
                "package": {"name": "llamaserve", "root": str(demo / "engine")},
                "settings": {"context": 4096, "max_active": 4},
                "args": {"n_threads": 1},
                "env": {"API_KEY": {"secret": "THE_KEY"}, "SPACED": "two words"},
                "container": {
                    "image": IMAGE,
                    "runtime": "podman",
                    "mounts": [*host_mounts(), f"{demo}:/inside:ro", f"{demo}:{demo}:ro"],
                    "model_path": "/inside/tiny.gguf",
                    "args": ["--ulimit=host"],
                },
            },
            "variants": [{"id": "baseline"}],
            "cases": [{"id": "c", "isl": 64, "osl": 8, "concurrency": 2, "num_prompts": 4}],
            "phases": [{"id": "phase1", "cases": ["c"]}],
            "policy": {"lease_ttl_s": 60, "start_timeout_s": 90, "stop_grace_s": 3},
            "collectors": {"proc": {"interval_s": 0.1}},
        }
    )  # fmt: skip
    made.run_dir.mkdir(parents=True)
    (made.run_dir / ".session.json").write_text('{"session": "s"}')
    yield made
    stop_server(made, "the test is over")


def test_start_gate_case_logs_stop(context: Context, podman: Podman, tmp_path: Path) -> None:
    launch = tmp_path / "launch.json"
    launch_variant(context, "baseline", 1, launch)
    record = json.loads(launch.read_text())
    assert record["status"] == "ok", record["reasons"]
    checks = {check["name"]: check["ok"] for check in record["gate"]["checks"]}
    assert False not in checks.values()
    assert {checks[name] for name in ("process", "port", "completion", "module")} == {True}
    state = process.supervisor_state(
        context.head, context.workdir(context.plan.head), record["boot_id"]
    )
    (container,) = podman.containers()
    assert state["container"]["id"] == container
    seen = json.loads(podman("inspect", container))[0]
    assert state["server"]["pid"] == state["container"]["pid"] == seen["State"]["Pid"]
    words = Path(f"/proc/{state['server']['pid']}/cmdline").read_bytes().split(b"\0")
    assert words[1:3] == [b"-m", b"llamaserve"]
    inside = Path(f"/proc/{state['server']['pid']}/environ").read_bytes().split(b"\0")
    assert {b"API_KEY=s3cr3t-value", b"SPACED=two words", b"OMP_NUM_THREADS=1"} <= set(inside)
    assert not any(b"s3cr3t" in word for word in seen_command_lines())
    written = "".join(
        path.read_text(errors="replace") for path in tmp_path.rglob("*.json") if path.is_file()
    )
    assert "s3cr3t" not in written

    meta = run_case(context, Job("baseline", "c", 1, 1), tmp_path / "meta.json")
    assert meta["status"] == "ok", meta["reasons"]
    assert meta["server"]["reused"]
    assert meta["counts"]["ok"] == 4
    assert any(item["samples"] for item in meta["collectors"].values())

    assert stop_server(context, "enough")
    log = context.run_dir / "server" / "baseline" / "boots" / record["boot_id"] / "local.log"
    assert "llamaserve: starting" in log.read_text()
    assert "llamaserve: stopped by SIGTERM" in log.read_text()
    state = process.supervisor_state(
        context.head, context.workdir(context.plan.head), record["boot_id"]
    )
    assert (state["exit"]["code"], state["exit"]["reason"]) == (0, "stopped")
    assert not state["exit"].keys() & {"left", "containers_left"}
    assert not is_alive(state["server"]["pid"], state["server"]["start"])


def test_a_capture_comes_out_of_the_container(
    tmp_path: Path, podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is a stand-in (`kineto_server`); where its traces go is podman's doing."""
    monkeypatch.chdir(tmp_path)
    for name in ("SERVEMAP_LEASE_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    engine = install_vllm(tmp_path / "engine")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    context = load_context(
        campaign(
            model={"name": "tiny", "path": "model", "context": 2048, "vocab": [300, 1000]},
            server={
                "engine": "vllm",
                "port": free_port(),
                "python": sys.executable,
                "package": {"name": "vllm", "root": str(engine)},
                "topology": {"tp": 2},
                "container": {
                    "image": IMAGE,
                    "runtime": "podman",
                    "mounts": [*host_mounts(), f"{engine}:{engine}:ro"],
                    "model_path": "/inside",
                    "args": ["--ulimit=host"],
                },
            },
            variables=[],
            variants=[{"id": "baseline"}],
            cases=[{"id": "c", "isl": 64, "osl": 32, "concurrency": 2, "num_prompts": 4}],
            phases=[{"id": "phase1", "captures": [{"case": "c", "num_steps": 5}]}],
            policy={"lease_ttl_s": 60, "start_timeout_s": 30, "stop_grace_s": 3},
        )
    )
    context.run_dir.mkdir(parents=True)
    (context.run_dir / ".session.json").write_text('{"session": "s"}')
    folder = context.run_dir / "captures/baseline/c"
    try:
        # The second one is of the same start: the folder is emptied, since it is a mount.
        for token in (1, 2):
            record = run_capture(context, "baseline", "c", token, folder / "capture.json")
            assert (record["status"], record["reasons"]) == ("ok", [])
            traces = [name for name in record["files"] if name.startswith("n1/")]
            ids = {name.removeprefix("n1/").partition("_")[0] for name in traces}
            assert (len(traces), ids) == (2, {record["load"]["id"]})
        assert record["server"]["reused"]
        (container,) = podman.containers()
        said = podman("inspect", "--format", "{{.Mounts}}", container)
        assert f"{context.workdir('n1')}/{FOLDER} /{FOLDER}" in said
        assert list(Path(context.workdir("n1"), FOLDER).iterdir()) == []
    finally:
        stop_server(context, "the test is over")


def test_a_patch_is_seen_in_the_process_inside(
    context: Context, demo: Path, tmp_path: Path
) -> None:
    """The patch goes to the node's file; the server has it below another folder."""
    shutil.copytree(demo / "engine", tmp_path / "engine")
    target = tmp_path / "engine" / "llamaserve" / "settings.py"
    patch = PatchSpec(
        id="ubatch-64",
        kind="diff",
        source=str(Path(__file__).parents[2] / "config" / "patches" / "ubatch-64.diff"),
        target=str(target),
        root=str(tmp_path / "engine"),
    )
    campaign = context.plan.campaign
    box = campaign.server.container
    assert box is not None
    mounts = [*box.mounts, f"{tmp_path / 'engine'}:/opened/engine:ro"]
    keys = {
        "container": box.model_copy(update={"mounts": mounts}),
        "package": Package(name="llamaserve", root="/opened/engine"),
        "patches": [patch],
    }
    server = campaign.server.model_copy(update=keys)
    made = load_context(campaign.model_copy(update={"server": server}).model_dump(mode="json"))
    launch = tmp_path / "launch.json"
    try:
        launch_variant(made, "baseline", 1, launch)
        record = json.loads(launch.read_text())
        assert record["status"] == "ok", record["reasons"]
        checks = {check["name"]: check for check in record["gate"]["checks"]}
        assert checks["patches.ubatch-64"]["ok"] is True, checks["patches.ubatch-64"]
        (seen,) = record["gate"]["imports"]["local"]
        assert seen["file"] == "/opened/engine/llamaserve/settings.py"
        assert seen["sha256"] == hashlib.sha256(target.read_bytes()).hexdigest()
        assert record["gate"]["effective"]["settings"]["n_ubatch"] == 64
    finally:
        unpatch(made)


def seen_command_lines() -> list[bytes]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.append((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return found


# ---- losing control ----


class Boxed:
    """A shell in a container, started as a server is."""

    def __init__(self, folder: Path) -> None:
        self.node = LocalNode("n", agent_dir=folder / "agent")
        self.workdir = str(folder / "work")
        self.boot_id = str(uuid.uuid4())

    def start(self, script: str, *, ttl_s: float = 60, grace_s: float = 1, **keys: Any) -> None:
        container = Container(
            image=IMAGE,
            runtime="podman",
            mounts=host_mounts(),
            **{"args": ["--ulimit=host"], **keys},
        )
        boxed = in_container(
            container,
            become=False,
            variant="v",
            boot_id=self.boot_id,
            image=IMAGE,
            argv=["/usr/bin/bash", "-c", script],
            env={},
            secret_names=[],
            cwd=None,
        )
        self.running = process.start(
            self.node,
            self.workdir,
            variant="v",
            fingerprint="f",
            port=1,
            argv=boxed.argv,
            env={},
            secrets={},
            cwd=None,
            ttl_s=ttl_s,
            grace_s=grace_s,
            boot_id=self.boot_id,
            container=boxed.container,
        )

    @property
    def state(self) -> dict[str, Any]:
        return process.supervisor_state(self.node, self.workdir, self.boot_id)

    @property
    def log(self) -> str:
        path = Path(process.log_path(self.workdir, self.boot_id))
        return path.read_text() if path.exists() else ""

    def up(self) -> dict[str, Any]:
        """Return the container's part of the state, once its main process is known."""
        return wait_for(lambda: self.state["container"]["id"] and self.state, "the container")

    def ended(self) -> dict[str, Any]:
        return wait_for(lambda: self.state.get("exit"), "the end")

    def stop(self) -> dict[str, Any]:
        return process.stop(self.node, self.workdir, self.running, 1)


@pytest.fixture
def boxed(podman: Podman, tmp_path: Path) -> Iterator[Boxed]:
    one = Boxed(tmp_path)
    yield one
    if hasattr(one, "running"):
        one.stop()


STUBBORN = "trap '' TERM; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done"


def gone(podman: Podman, boxed: Boxed) -> bool:
    server = boxed.state["server"]
    return find(["podman"], boxed.boot_id) == [] and not is_alive(server["pid"], server["start"])


def test_exit_code_and_log_are_kept_after_the_end(boxed: Boxed, podman: Podman) -> None:
    boxed.start("echo hello; exit 7")
    end = boxed.ended()
    assert (end["code"], end["signal"], end["reason"]) == (7, None, "exited")
    assert end["oom_killed"] is False
    assert boxed.log == "hello\n"
    assert podman.containers() == []


def test_stop_reaches_a_server_that_ignores_term(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN)
    boxed.up()
    state = boxed.stop()
    assert (state["exit"]["signal"], state["exit"]["reason"]) == (signal.SIGKILL, "stopped")
    assert gone(podman, boxed)


def test_killed_client_ends_its_container_and_no_line_is_lost(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN, grace_s=2)
    client = boxed.up()["container"]["client"]
    wait_for(lambda: "line 3\n" in boxed.log, "some output")
    os.kill(client["pid"], signal.SIGKILL)
    end = boxed.ended()
    assert (end["signal"], end["reason"]) == (signal.SIGKILL, "client_lost")
    numbers = {int(line.split()[1]) for line in boxed.log.splitlines() if line[:5] == "line "}
    assert numbers == set(range(1, max(numbers) + 1))
    assert max(numbers) >= 15, "what it said in its grace of 2 s, after the client was gone"
    assert gone(podman, boxed)


def test_killed_container_is_a_death_of_the_server(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN)
    os.kill(boxed.up()["server"]["pid"], signal.SIGKILL)
    end = boxed.ended()
    assert (end["signal"], end["reason"]) == (signal.SIGKILL, "exited")
    assert gone(podman, boxed)


def test_lease_that_nobody_renews_ends_the_container(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN, ttl_s=2)
    boxed.up()
    assert boxed.ended()["reason"] == "lease_expired"
    assert gone(podman, boxed)


def test_killed_supervisor_does_not_leave_its_container(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN, ttl_s=600)
    boxed.up()
    os.kill(boxed.running.supervisor.pid, signal.SIGKILL)
    end = boxed.ended()
    assert (end["signal"], end["reason"]) == (signal.SIGKILL, "supervisor_lost")
    assert gone(podman, boxed)


def test_supervisor_killed_while_the_container_is_made(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN, ttl_s=600)
    os.kill(boxed.running.supervisor.pid, signal.SIGKILL)
    boxed.ended()
    assert podman.containers() == []


def guard_of(boxed: Boxed) -> int:
    """The supervisor's only child that runs the same program."""
    supervisor = boxed.running.supervisor.pid
    own = Path(f"/proc/{supervisor}/cmdline").read_bytes()
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (guard,) = [pid for pid in children if Path(f"/proc/{pid}/cmdline").read_bytes() == own]
    return int(guard)


def test_a_guard_that_was_killed_is_replaced(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN, ttl_s=600)
    boxed.up()
    first = guard_of(boxed)
    os.kill(first, signal.SIGKILL)

    def replaced() -> bool:
        try:
            return guard_of(boxed) != first
        except ValueError:
            return False

    wait_for(replaced, "another guard")
    os.kill(boxed.running.supervisor.pid, signal.SIGKILL)
    assert boxed.ended()["reason"] == "supervisor_lost"
    assert gone(podman, boxed)


def test_sweep_ends_what_neither_supervisor_nor_guard_could(boxed: Boxed, podman: Podman) -> None:
    boxed.start(STUBBORN, ttl_s=600)
    boxed.up()
    supervisor = boxed.running.supervisor.pid
    guard = guard_of(boxed)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    other = boxed.node.run(boxed.node.agent_argv("sweep", "--boot-id", "other"), timeout_s=30)
    assert json.loads(other.stdout)["containers"] == []
    assert podman.containers() != []
    argv = boxed.node.agent_argv("sweep", "--boot-id", boxed.boot_id, "--grace", "0")
    done = boxed.node.run(argv, timeout_s=60)
    answer = json.loads(done.stdout)
    assert done.code == 0
    assert answer["containers"] == [boxed.state["container"]["id"]]
    assert answer["containers_left"] == answer["left"] == []
    assert gone(podman, boxed)


def test_a_command_that_is_not_in_the_image(boxed: Boxed, podman: Podman) -> None:
    boxed.start("exit 0", args=["--ulimit=host", "--entrypoint=/no/such/program"])
    end = boxed.ended()
    assert (end["code"], end["reason"]) == (127, "exited")
    assert "/no/such/program" in boxed.log
    assert podman.containers() == []


def test_the_runtimes_own_log_is_kept_small(boxed: Boxed, podman: Podman) -> None:
    boxed.start("seq 1 300000; echo done; sleep 600", log_max_bytes=1_000_000)
    container = boxed.up()["container"]["id"]
    wait_for(lambda: "done\n" in boxed.log, "the whole output")
    kept = podman("inspect", "--format", "{{.HostConfig.LogConfig.Path}}", container).strip()
    assert Path(kept).stat().st_size <= 1_100_000
    assert "\n1\n" in "\n" + boxed.log[:100], "the server's log is whole"


# ---- images ----


def test_an_image_that_is_not_there_and_may_not_come(podman: Podman, tmp_path: Path) -> None:
    container = Container(image="localhost/absent:1", runtime="podman")
    with pytest.raises(LaunchError, match="is not on the node") as caught:
        ensure_image(LocalNode("n"), container, ["podman"], workdir=str(tmp_path))
    assert "pull" in caught.value.remedy


def test_an_image_is_loaded_from_its_archive(podman: Podman, tmp_path: Path) -> None:
    node = LocalNode("n")
    archive = tmp_path / "image.tar"
    podman("tag", IMAGE, "localhost/loaded:1")
    podman("save", "-o", str(archive), "localhost/loaded:1")
    podman("rmi", "localhost/loaded:1")
    container = Container(image="localhost/loaded:1", runtime="podman", load=str(archive))
    image = ensure_image(node, container, ["podman"], workdir=str(tmp_path))
    original = ensure_image(
        node, Container(image=IMAGE, runtime="podman"), ["podman"], workdir=str(tmp_path)
    )
    assert image.id == original.id
    assert image.id.startswith("sha256:")
    assert original.digest is not None
    assert image_drift(original.record(), image) == []


def test_an_image_is_built_from_what_is_committed(podman: Podman, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()

    def git(*words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        return subprocess.run(
            ["git", *identity, *words], cwd=repo, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    (repo / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY said /said\n")
    (repo / "said").write_text("committed\n")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    (repo / "said").write_text("not committed\n")
    commit = git("rev-parse", "HEAD")
    container = Container(
        image="localhost/built:local", runtime="podman", build=Build(repo=str(repo))
    )
    node = LocalNode("n")
    runtime = runtime_argv(container, become=False)
    image = ensure_image(node, container, runtime, workdir=str(tmp_path / "work"))
    assert image.name == f"localhost/built:local-{commit[:12]}"
    assert image.commit == commit
    said = podman(
        "run", "--rm", "--network=host", "--ulimit=host",
        *(f"--volume={one}" for one in host_mounts()),
        "--entrypoint=/usr/bin/cat", image.id, "/said",
    )  # fmt: skip
    assert said == "committed\n"
    assert list((tmp_path / "work" / "images").iterdir()) == []
    again = ensure_image(node, container, runtime, workdir=str(tmp_path / "work"))
    assert again == image
