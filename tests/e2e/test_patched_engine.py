"""Patches of the embedded engine, as the server's own process saw them, and what would be a lie."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded.tiny_model import install
from servemap.measure.setup import load_context
from servemap.server.context import Context
from servemap.server.hold import session
from servemap.server.launch import boots, start
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.patch_stage import unpatch
from servemap.server.launch.served import Served
from servemap.server.not_run import NotRunError
from tests.fakes import campaign
from tests.workflow.harness import free_port

pytestmark = pytest.mark.e2e
pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")

PATCH = Path(__file__).parents[2] / "config" / "patches" / "ubatch-64.diff"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    install(folder)
    return folder


@pytest.fixture
def engine(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the embedded server's package, for one test to patch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shutil.copytree(demo / "engine", tmp_path / "engine")
    (tmp_path / "tiny.gguf").symlink_to(demo / "tiny.gguf")
    yield tmp_path / "engine"


def diff(engine: Path) -> dict[str, Any]:
    return {
        "id": "ubatch-64",
        "kind": "diff",
        "source": str(PATCH),
        "target": str(engine / "llamaserve" / "settings.py"),
        "root": str(engine),
    }


class Run:
    """A session of a campaign with a plain and a patched variant."""

    def __init__(self, engine: Path, *patches: dict[str, Any], **server: Any) -> None:
        self.context: Context = load_context(
            campaign(
                model={
                    "name": "tiny",
                    "path": str(engine.parent / "tiny.gguf"),
                    "context": 2048,
                    "vocab": [300, 1000],
                },
                server={
                    "engine": "llamacpp",
                    "port": free_port(),
                    "package": {"name": "llamaserve", "root": str(engine)},
                    "args": {"n_threads": 1, "n_batch": 512},
                    **server,
                },
                variables=[{"id": "code", "keys": ["patches"]}],
                variants=[
                    {"id": "baseline"},
                    {"id": "patched", "variable": "code", "set": {"patches": list(patches)}},
                ],
                policy={"stop_grace_s": 5, "start_timeout_s": 60},
            )
        )

    def __enter__(self) -> "Run":
        session._ended.clear()
        session.begin(self.context)
        return self

    def __exit__(self, *args: object) -> None:
        session.end(self.context, "the campaign ended", [])
        while session._run_lock:
            session._run_lock.pop().close()

    def start(self, variant: str = "patched") -> Served:
        return ensure_server(self.context, variant)

    def gate(self, variant: str = "patched") -> dict[str, Any]:
        """The gates of the variant's newest start."""
        boot = boots.read_boots(self.context.run_dir, variant)[-1]
        folder = boots.boot_dir(self.context.run_dir, variant, boot.boot_id)
        found: dict[str, Any] = json.loads((folder / "gate.json").read_text())
        return found

    def check(self, name: str, variant: str = "patched") -> tuple[bool | None, str]:
        checks = self.gate(variant)["checks"]
        (found,) = (one for one in checks if one["name"] == name)
        return found["ok"], found["evidence"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_patched_file_is_seen_in_the_process_and_the_next_start_is_unpatched(
    engine: Path,
) -> None:
    target = engine / "llamaserve" / "settings.py"
    original = sha256(target)
    with Run(engine, diff(engine)) as run:
        served = run.start()
        ok, evidence = run.check("patches.ubatch-64")
        assert ok is True
        (pid,) = served.pids["n1"]
        assert f"{target} (sha256 {sha256(target)[:12]}) imported by pid {pid} (" in evidence
        (seen,) = run.gate()["imports"]["n1"]
        assert (seen["pid"], seen["sha256"]) == (pid, sha256(target))
        assert seen["module"] == "llamaserve.settings"
        assert run.gate()["effective"]["settings"]["n_ubatch"] == 64
        assert unpatch(run.context)["n1"]["files"][0]["ok"]
        assert sha256(target) == original
        served = run.start("baseline")
        assert run.check("patches", "baseline")[1].startswith("unpatched")
        assert "imports" not in run.gate("baseline")
        assert "hook" not in served.ranks[0]
        environ = Path(f"/proc/{served.pids['n1'][0]}/environ").read_text()
        assert ".hook" not in environ
        assert run.gate("baseline")["effective"]["settings"]["n_ubatch"] == 512


def test_a_file_that_is_changed_after_its_import(engine: Path) -> None:
    """The process still runs what was patched; the next job finds the file foreign and refuses."""
    target = engine / "llamaserve" / "settings.py"
    with Run(engine, diff(engine)) as run:
        run.start()
        patched = sha256(target)
        target.write_text(target.read_text() + "# mine\n")
        assert run.gate()["imports"]["n1"][0]["sha256"] == patched != sha256(target)
        with pytest.raises(NotRunError, match="changed by somebody else"):
            run.start()


def test_a_file_that_is_changed_between_patching_and_import(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = engine / "llamaserve" / "settings.py"
    begin = start._start_ranks

    def sneak(*args: Any) -> Any:
        target.write_text(target.read_text().replace("N_UBATCH = 64", "N_UBATCH = 32"))
        return begin(*args)

    monkeypatch.setattr(start, "_start_ranks", sneak)
    with Run(engine, diff(engine)) as run:
        with pytest.raises(NotRunError, match=r"patches\.ubatch-64: pid \d+") as caught:
            run.start()
        assert f"imported llamaserve.settings from {target}" in str(caught.value)
        assert run.gate()["effective"]["settings"]["n_ubatch"] == 32
        # put back what the patches left, so that the session can end
        target.write_text(target.read_text().replace("N_UBATCH = 32", "N_UBATCH = 64"))


def test_a_copy_that_comes_first_on_the_path(engine: Path, tmp_path: Path) -> None:
    """The start folder comes before all others, and `server.package` is not there to notice."""
    copy = tmp_path / "elsewhere" / "llamaserve"
    shutil.copytree(engine / "llamaserve", copy)
    away = {"package": None, "cwd": str(copy.parent), "env": {"PYTHONPATH": str(engine)}}
    with Run(engine, diff(engine), **away) as run:
        with pytest.raises(NotRunError, match=r"patches\.ubatch-64"):
            run.start()
        ok, evidence = run.check("patches.ubatch-64")
        assert ok is False
        assert f"imported llamaserve.settings from {copy / 'settings.py'}" in evidence


def test_a_patch_that_is_never_imported_is_said_not_to_act(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "extra.py").write_text("X = 1\n")
    added = {
        "id": "extra",
        "kind": "folder",
        "source": str(tmp_path / "new"),
        "target": str(engine / "llamaserve"),
        "root": str(engine),
    }
    with Run(engine, added, diff(engine)) as run:
        run.start()
        ok, evidence = run.check("patches.extra")
        assert ok is None
        assert f"never imported: {engine / 'llamaserve' / 'extra.py'}" in evidence
        assert run.check("patches.ubatch-64")[0] is True
