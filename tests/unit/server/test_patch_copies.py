"""A package that is installed in two places is patched in both, or not at all."""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from servemap.model.errors import PatchError
from servemap.model.server_spec import PatchSpec
from servemap.nodes.local import LocalNode
from servemap.server import patches as api
from servemap.server.launch.search_path import search_path
from tests.fakes import FakeNode, campaign, fake_context

OLD, NEW = "IMPL = 'loop'\n", "IMPL = 'bmm'\n"


class Installed:
    """A package below `lib`, and what else a test installs; sources of patches beside it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.work = str(base / "work")
        self.node = LocalNode("n1")
        self.lib = base / "opt/lib/python3/dist-packages"
        self.lib64 = base / "opt/lib64/python3/dist-packages"
        self.file = self.install(self.lib)
        self.source = base / "moe.py"
        self.source.write_text(NEW)

    def install(self, folder: Path) -> Path:
        package = folder / "engine"
        package.mkdir(parents=True)
        (package / "moe.py").write_text(OLD)
        return package / "moe.py"

    def patch(self, target: Path | None = None, **keys: Any) -> PatchSpec:
        file = target or self.file
        data = {
            "id": keys.pop("id", "p"), "source": str(self.source),
            "target": str(file), "root": str(file.parent.parent),
        }  # fmt: skip
        return PatchSpec.model_validate(data | keys)

    def apply(self, *patches: PatchSpec, search: list[str] | None = None) -> Any:
        return api.apply_patches(self.node, list(patches), self.work, search or [])


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_a_second_copy_in_lib64_is_refused_and_both_are_named(installed: Installed) -> None:
    other = installed.install(installed.lib64)
    with pytest.raises(PatchError) as error:
        installed.apply(installed.patch())
    assert error.value.what == (
        f"{installed.file} is installed a second time as {other}, which would stay as it is"
    )
    assert error.value.where == "patches.p.target (node n1)"
    assert (installed.file.read_text(), other.read_text()) == (OLD, OLD)
    with pytest.raises(PatchError, match="is installed a second time"):
        api.lint_patches(installed.node, [installed.patch(other)], installed.work)


def test_both_copies_may_be_patched(installed: Installed) -> None:
    other = installed.install(installed.lib64)
    both = [installed.patch(), installed.patch(other, id="p64")]
    assert installed.apply(*both)["changed"]
    assert (installed.file.read_text(), other.read_text()) == (NEW, NEW)
    assert not installed.apply(*both)["changed"]
    api.restore_all(installed.node, installed.work)
    assert (installed.file.read_text(), other.read_text()) == (OLD, OLD)


@pytest.mark.parametrize("level", ["lib64", "lib64/python3/dist-packages/engine", "file"])
def test_a_link_is_no_copy(installed: Installed, level: str) -> None:
    if level == "file":
        link = installed.lib64 / "engine/moe.py"
        goal = installed.file
    else:
        link = installed.base / "opt" / level
        goal = installed.base / "opt" / level.replace("lib64", "lib")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(goal)
    assert installed.apply(installed.patch())["changed"]
    assert (installed.lib64 / "engine/moe.py").read_text() == NEW


def test_a_hard_link_is_a_copy_once_the_other_is_replaced(installed: Installed) -> None:
    other = installed.lib64 / "engine/moe.py"
    other.parent.mkdir(parents=True)
    os.link(installed.file, other)
    with pytest.raises(PatchError, match="is installed a second time"):
        installed.apply(installed.patch())


def test_a_copy_in_another_folder_of_the_search_path(installed: Installed) -> None:
    other = installed.install(installed.base / "checkout")
    search = [str(installed.lib), str(installed.base / "none"), str(installed.base / "checkout")]
    with pytest.raises(PatchError, match=str(other)):
        installed.apply(installed.patch(), search=search)
    assert installed.apply(installed.patch(), search=search[:2])["changed"]
    with pytest.raises(PatchError, match=str(other)):
        installed.apply(installed.patch(), search=search)
    assert installed.file.read_text() == NEW, "what is in place stays there until it is taken back"
    both = [installed.patch(), installed.patch(other, id="second")]
    assert installed.apply(*both, search=search)["changed"]


def test_the_same_folder_by_two_names_is_one(installed: Installed) -> None:
    (installed.base / "alias").symlink_to(installed.lib)
    search = [
        str(installed.lib),
        str(installed.base / "alias"),
        f"{installed.lib}/../dist-packages",
    ]
    assert installed.apply(installed.patch(), search=search)["changed"]


def test_a_new_file_is_missing_in_the_copy_of_its_package(installed: Installed) -> None:
    folder = installed.base / "more"
    folder.mkdir()
    (folder / "new.py").write_text(NEW)
    keys = {"kind": "folder", "source": str(folder)}
    patch = installed.patch(installed.file.parent, **keys, root=str(installed.lib))
    assert installed.apply(patch)["changed"]
    api.restore_all(installed.node, installed.work)
    other = installed.install(installed.lib64)
    with pytest.raises(PatchError, match=f"as {other.parent / 'new.py'}"):
        installed.apply(patch)


def test_files_that_are_no_packages_may_lie_in_both(installed: Installed) -> None:
    """As libraries for two word sizes do, and modules that stand alone beside a package."""
    for folder in ("lib", "lib64"):
        (installed.base / "opt" / folder).mkdir(exist_ok=True)
        (installed.base / "opt" / folder / "x.so").write_text(OLD)
    library = installed.base / "opt/lib/x.so"
    assert installed.apply(installed.patch(library, root=str(library.parent)))["changed"]
    installed.lib64.mkdir(parents=True)
    (installed.base / "empty").mkdir()
    folder = {"kind": "folder", "source": str(installed.base / "empty")}
    (installed.base / "empty/alone.py").write_text(NEW)
    added = installed.patch(installed.lib, **folder, root=str(installed.lib))
    assert installed.apply(added, search=[str(installed.lib), str(installed.base)])["changed"]


@pytest.fixture
def environment(tmp_path: Path) -> Installed:
    """A real virtual environment with the package in its site-packages."""
    folder = tmp_path / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    if not (folder / "lib64").is_symlink():
        (folder / "lib64").symlink_to("lib")
    installed = Installed(tmp_path / "made")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    installed.base = folder
    installed.lib = folder / "lib" / version / "site-packages"
    installed.lib64 = folder / "lib64" / version / "site-packages"
    installed.file = installed.install(installed.lib)
    return installed


def runs(installed: Installed) -> str:
    """What the environment's own interpreter imports."""
    argv = [str(installed.base / "bin/python"), "-c", "import engine.moe as m; print(m.IMPL)"]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_a_virtual_environments_lib64_is_a_link_and_no_copy(environment: Installed) -> None:
    assert runs(environment) == "loop"
    by_lib64 = environment.lib64 / "engine/moe.py"
    assert environment.apply(environment.patch(by_lib64))["changed"]
    assert runs(environment) == "bmm"
    api.restore_all(environment.node, environment.work)
    assert runs(environment) == "loop"


def test_a_virtual_environment_whose_lib64_is_a_folder_of_its_own(environment: Installed) -> None:
    """As distributions have it that keep compiled packages apart."""
    (environment.base / "lib64").unlink()
    shutil.copytree(environment.base / "lib", environment.base / "lib64")
    other = environment.lib64 / "engine/moe.py"
    with pytest.raises(PatchError, match=f"installed a second time as {other}"):
        environment.apply(environment.patch())
    assert runs(environment) == "loop"
    both = [environment.patch(), environment.patch(other, id="p64")]
    assert environment.apply(*both, search=[str(environment.lib)])["changed"]
    assert runs(environment) == "bmm"
    assert other.read_text() == NEW
    api.restore_all(environment.node, environment.work)
    assert (runs(environment), other.read_text()) == ("loop", OLD)


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def server(**keys: Any) -> dict[str, Any]:
    return campaign(server={"engine": "llamacpp", "port": 18999, **keys})


@pytest.mark.usefixtures("_here")
def test_the_interpreter_itself_names_its_search_path(tmp_path: Path) -> None:
    context = fake_context(FakeNode(), server(env={"PYTHONPATH": str(tmp_path / "one")}))
    context.__dict__["nodes"] = {"n1": LocalNode("n1")}
    found = search_path(context, "baseline", "n1")
    assert found[0] == str(tmp_path / "one")
    assert "" not in found
    assert any(Path(folder) == Path(json.__file__).parents[1] for folder in found)
    assert any(folder in sys.path for folder in found[1:])


@pytest.mark.usefixtures("_here")
def test_without_an_answer_pythonpath_alone_counts(tmp_path: Path) -> None:
    keys = {"env": {"PYTHONPATH": "/a:/b"}, "package": {"name": "e", "root": "/root_of_it"}}
    node = FakeNode()
    node.on_run["-c"] = lambda argv: "no json"
    context = fake_context(node, server(**keys))
    assert search_path(context, "baseline", "n1") == ["/root_of_it", "/a", "/b"]
    boxed = server(container={"image": "i"}, bind="0.0.0.0", **keys)
    assert search_path(fake_context(node, boxed), "baseline", "n1") == []
