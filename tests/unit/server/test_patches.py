"""Patches through the controller's API, on files of a made-up site folder."""

import difflib
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from servemap.model.errors import PatchError
from servemap.model.server_spec import PatchSpec
from servemap.nodes.base import Completed
from servemap.nodes.local import LocalNode
from servemap.onnode.__main__ import main
from servemap.server import patches as api

OLD = "N_UBATCH = 512\nN_CTX = 1\n"


class InProcessNode(LocalNode):
    """Answers patch commands by calling the agent, which spares the start of an interpreter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__("n1")
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def agent_argv(self, *args: str) -> list[str]:
        return list(args)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002
        cwd: str | None = None,
    ) -> Completed:
        stdin = SimpleNamespace(buffer=io.BytesIO((input or "").encode()))
        with self._monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", stdin)
            code = main(list(argv))
        out, err = self._capsys.readouterr()
        return Completed(tuple(argv), code, out, err, 0.0)


class Site:
    """A folder of the node with an engine in it, and the sources of patches beside it."""

    def __init__(self, base: Path, node: LocalNode) -> None:
        self.root = base / "site"
        self.sources = base / "sources"
        self.work = str(base / "work")
        self.node = node
        (self.root / "engine").mkdir(parents=True)
        self.sources.mkdir()
        self.settings = self.root / "engine/settings.py"
        self.settings.write_text(OLD)
        self.settings.chmod(0o640)

    def source(self, name: str, text: str | bytes) -> str:
        path = self.sources / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def patch(self, **keys: Any) -> PatchSpec:
        return PatchSpec.model_validate(
            {"id": "p", "target": str(self.settings), "root": str(self.root), **keys}
        )

    def diff(self, new: str, old: str = OLD, **keys: Any) -> PatchSpec:
        return self.patch(
            kind="diff",
            source=self.source(f"{keys.get('id', 'p')}.diff", unified(old, new)),
            **keys,
        )

    def apply(self, *patches: PatchSpec) -> dict[str, Any]:
        return api.apply_patches(self.node, list(patches), self.work)

    def verify(self, *patches: PatchSpec) -> dict[str, Any]:
        return api.verify_patches(self.node, list(patches), self.work)

    def restore(self) -> dict[str, Any]:
        return api.restore_all(self.node, self.work)

    def facts(self) -> dict[str, tuple[str, int, str]]:
        """Everything below the root: type, mode, bytes or goal."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            info = path.lstat()
            if path.is_symlink():
                found[str(path)] = ("link", 0, str(path.readlink()))
            elif path.is_dir():
                found[str(path)] = ("dir", info.st_mode, "")
            else:
                found[str(path)] = ("file", info.st_mode, path.read_bytes().hex())
        return found


def unified(old: str, new: str, name: str = "engine/settings.py") -> str:
    return "".join(
        difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"a/{name}", f"b/{name}")
    )


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Site:
    return Site(tmp_path, InProcessNode(monkeypatch, capsys))


def new(old: str = OLD) -> str:
    return old.replace("512", "64")


def test_a_diff_is_applied_verified_recorded_and_undone(site: Site) -> None:
    before = site.facts()
    patch = site.diff(
        new(),
        verify=[
            {"marker": "N_UBATCH = 64"},
            {"sha256": sha(new())},
            {"python": "'N_UBATCH = 512' not in text and len(text.splitlines()) == 2"},
        ],
    )
    record = site.apply(patch)
    assert site.settings.read_text() == new()
    assert site.settings.stat().st_mode & 0o777 == 0o640
    assert record["changed"] is True
    assert record["order"] == ["p"]
    (file,) = record["patches"]["p"]["files"]
    assert (file["sha256_before"], file["sha256_after"]) == (sha(OLD), sha(new()))
    assert [proof["ok"] for proof in record["patches"]["p"]["verified"]] == [True] * 3
    assert site.verify(patch)["in_place"] is True

    proof = site.restore()
    assert proof["changed"] is True
    assert [(item["path"], item["ok"], item["sha256"]) for item in proof["files"]] == [
        (str(site.settings), True, sha(OLD))
    ]
    assert site.facts() == before
    assert site.verify(patch)["standing"] == "unpatched"


def test_applying_twice_changes_nothing(site: Site) -> None:
    patch = site.diff(new())
    first = site.apply(patch)
    stamp = site.settings.stat().st_mtime_ns
    inode = site.settings.stat().st_ino
    second = site.apply(patch)
    assert (site.settings.stat().st_mtime_ns, site.settings.stat().st_ino) == (stamp, inode)
    assert (second["changed"], second["patches"]["p"]["changed"]) == (False, False)
    assert second["patches"]["p"]["files"] == first["patches"]["p"]["files"]


def test_restoring_twice_proves_the_same_again(site: Site) -> None:
    site.apply(site.diff(new()))
    first = site.restore()
    second = site.restore()
    assert second["changed"] is False
    assert second["files"] == first["files"]


def test_patches_on_one_target_apply_in_order(site: Site) -> None:
    before = site.facts()
    one = site.diff(new(), id="one")
    two = site.diff(new().replace("N_CTX = 1", "N_CTX = 2"), old=new(), id="two")
    record = site.apply(one, two)
    assert site.settings.read_text() == "N_UBATCH = 64\nN_CTX = 2\n"
    assert (
        record["patches"]["one"]["files"][0]["sha256_after"]
        == record["patches"]["two"]["files"][0]["sha256_before"]
    )
    assert site.apply(one, two)["changed"] is False
    site.restore()
    assert site.facts() == before
    with pytest.raises(PatchError, match="does not apply"):
        site.apply(two, one)
    assert site.facts() == before


def test_a_swap_takes_the_other_variants_patches_back(site: Site) -> None:
    before = site.facts()
    one = site.diff(new(), id="one")
    other = site.diff(OLD.replace("N_CTX = 1", "N_CTX = 9"), id="other")
    site.apply(one)
    assert site.verify(other)["standing"] == "other_set"
    record = site.apply(other)
    assert site.settings.read_text() == "N_UBATCH = 512\nN_CTX = 9\n"
    assert record["patches"]["other"]["files"][0]["sha256_before"] == sha(OLD)
    assert api.active_set(site.node, site.work)["patches"] == ["other"]
    site.apply()
    assert site.facts() == before
    assert site.verify()["in_place"] is True
    assert api.active_set(site.node, site.work)["standing"] == "none"


def test_a_folder_is_laid_over_its_target_and_taken_off_again(site: Site) -> None:
    site.source("fast/engine/settings.py", "N_UBATCH = 1\n")
    site.source("fast/engine/moe/kernel.py", "FAST = True\n")
    site.source("fast/engine/__pycache__/x.pyc", b"stale")
    (site.root / "engine/kept.py").write_text("keep\n")
    before = site.facts()
    patch = site.patch(
        kind="folder",
        source=str(site.sources / "fast"),
        target=str(site.root),
        verify=[{"marker": "FAST", "file": "engine/moe/kernel.py"}],
    )
    record = site.apply(patch)
    files = {Path(f["path"]).name: f for f in record["patches"]["p"]["files"]}
    assert files.keys() == {"settings.py", "kernel.py"}
    assert files["kernel.py"]["sha256_before"] is None
    assert (site.root / "engine/moe/kernel.py").read_text() == "FAST = True\n"
    assert (site.root / "engine/kept.py").read_text() == "keep\n"
    # the server leaves bytecode in the folder that the patch made
    cache = site.root / "engine/moe/__pycache__"
    cache.mkdir()
    (cache / "kernel.cpython-311.pyc").write_bytes(b"x")
    proof = site.restore()
    assert {"type": "absent"} in [item["found"] for item in proof["files"]]
    assert site.facts() == before


def test_what_others_put_into_a_made_folder_stays(site: Site) -> None:
    site.source("add/sub/mine.py", "mine\n")
    site.apply(site.patch(kind="folder", source=str(site.sources / "add"), target=str(site.root)))
    foreign = site.root / "sub/yours.py"
    foreign.write_text("yours\n")
    site.restore()
    assert foreign.read_text() == "yours\n"
    assert not (site.root / "sub/mine.py").exists()


def test_a_link_replaces_a_file_and_the_file_comes_back(site: Site) -> None:
    (site.root / "other.py").write_text("other\n")
    before = site.facts()
    patch = site.patch(kind="symlink", source="../other.py", verify=[{"marker": "other"}])
    record = site.apply(patch)
    assert str(site.settings.readlink()) == "../other.py"
    (file,) = record["patches"]["p"]["files"]
    assert (file["sha256_before"], file["sha256_after"], file["goal_after"]) == (
        sha(OLD),
        None,
        "../other.py",
    )
    assert site.apply(patch)["changed"] is False
    site.restore()
    assert site.facts() == before


def test_a_new_link_is_removed_and_an_old_goal_comes_back(site: Site) -> None:
    link = site.root / "lib.so"
    link.symlink_to("engine/settings.py")
    (site.root / "other.py").write_text("other\n")
    before = site.facts()
    site.apply(
        site.patch(id="old", kind="symlink", source="other.py", target=str(link)),
        site.patch(id="new", kind="symlink", source="other.py", target=str(site.root / "new.so")),
    )
    assert str(link.readlink()) == "other.py"
    site.restore()
    assert site.facts() == before


SED = '#!/bin/sh\n[ "$LC_ALL" = C ] && [ "$PWD" = %s ] && sed -i s/512/64/ "$1"\n'


def test_a_script_changes_its_target(site: Site) -> None:
    before = site.facts()
    patch = site.patch(
        kind="script",
        source=site.source("p.sh", SED % site.root.resolve()),
        verify=[{"marker": "N_UBATCH = 64"}],
    )
    assert site.apply(patch)["patches"]["p"]["files"][0]["sha256_after"] == sha(new())
    assert site.apply(patch)["changed"] is False
    site.restore()
    assert site.facts() == before


def test_a_script_that_fails_leaves_the_original_and_says_why(site: Site) -> None:
    before = site.facts()
    text = '#!/bin/sh\necho half > "$1"; echo no such anchor; exit 3\n'
    with pytest.raises(PatchError, match="ended with 3: no such anchor"):
        site.apply(site.patch(kind="script", source=site.source("p.sh", text)))
    assert site.facts() == before


def test_a_script_that_writes_elsewhere_is_refused(site: Site) -> None:
    (site.root / "other.py").write_text("other\n")
    text = '#!/bin/sh\necho more >> other.py; echo x > "$1"\n'
    with pytest.raises(PatchError, match=r"other\.py, which is not its target"):
        site.apply(site.patch(kind="script", source=site.source("p.sh", text)))
    assert site.settings.read_text() == OLD


def test_a_script_does_not_reach_the_files_other_names(site: Site, tmp_path: Path) -> None:
    cache = tmp_path / "package-cache.py"
    cache.hardlink_to(site.settings)
    text = '#!/bin/sh\necho changed > "$1"\n'
    site.apply(site.patch(kind="script", source=site.source("p.sh", text)))
    assert (site.settings.read_text(), cache.read_text()) == ("changed\n", OLD)


def test_a_diff_after_a_script_is_judged_when_the_script_has_run(site: Site) -> None:
    script = site.patch(
        id="script", kind="script", source=site.source("p.sh", SED % site.root.resolve())
    )
    diff = site.diff("N_UBATCH = 64\nN_CTX = 7\n", old=new(), id="diff")
    api.lint_patches(site.node, [script, diff], site.work)
    site.apply(script, diff)
    assert site.settings.read_text() == "N_UBATCH = 64\nN_CTX = 7\n"
    site.restore()
    wrong = site.diff("N_UBATCH = 64\nN_CTX = 7\n", old="N_UBATCH = 65\nN_CTX = 1\n", id="wrong")
    with pytest.raises(PatchError, match="does not fit"):
        site.apply(script, wrong)
    assert site.settings.read_text() == OLD


def test_a_diff_from_dev_null_adds_a_file(site: Site) -> None:
    target = site.root / "engine/added.py"
    text = "--- /dev/null\n+++ b/engine/added.py\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    before = site.facts()
    patch = site.patch(kind="diff", source=site.source("p.diff", text), target=str(target))
    site.apply(patch)
    assert target.read_text() == "one\ntwo\n"
    site.restore()
    assert site.facts() == before


def refused(site: Site, patch: PatchSpec) -> PatchError:
    """Apply a patch that must be refused, with lint and apply of one mind, nothing written."""
    before = site.facts()
    with pytest.raises(PatchError) as linted:
        api.lint_patches(site.node, [patch], site.work)
    with pytest.raises(PatchError) as applied:
        site.apply(patch)
    assert site.facts() == before
    assert str(linted.value) == str(applied.value)
    assert applied.value.remedy
    return applied.value


def test_crlf_is_named_with_its_line(site: Site) -> None:
    source = site.source("p.py", b"one\ntwo\r\n")
    error = refused(site, site.patch(source=source))
    assert "CRLF line ends (line 2)" in error.what
    assert error.where.startswith("patches.p.source")
    assert "eol: keep" in error.remedy
    site.apply(site.patch(source=source, eol="keep"))
    assert site.settings.read_bytes() == b"one\ntwo\r\n"


def test_binary_sources_may_hold_any_bytes(site: Site) -> None:
    site.apply(site.patch(source=site.source("p.so", b"\x7fELF\0\r\n")))
    assert site.settings.read_bytes() == b"\x7fELF\0\r\n"


@pytest.mark.parametrize("kind", ["file", "diff", "script"])
def test_a_missing_target_is_refused(site: Site, kind: str) -> None:
    source = site.source("p", "#!/bin/sh\n" if kind != "diff" else unified("a\n", "b\n", "gone.py"))
    error = refused(site, site.patch(kind=kind, source=source, target=str(site.root / "gone.py")))
    assert "target is missing" in error.what
    assert error.where.startswith("patches.p.target")


def test_a_missing_target_folder_is_refused(site: Site) -> None:
    site.source("add/a.py", "a\n")
    folder = str(site.sources / "add")
    for kind, source in (("folder", folder), ("symlink", str(site.settings))):
        gone = site.patch(kind=kind, source=source, target=str(site.root / "no/where"))
        assert "target is missing" in refused(site, gone).what


@pytest.mark.parametrize("kind", ["file", "diff", "script", "symlink"])
@pytest.mark.parametrize("way", ["plain", "dots", "through a link", "is a link"])
def test_a_target_outside_its_root_is_refused(site: Site, kind: str, way: str) -> None:
    outside = site.root.parent / "outside"
    outside.mkdir()
    (outside / "settings.py").write_text(OLD)
    (site.root / "way-out").symlink_to(outside)
    (site.root / "link.py").symlink_to(outside / "settings.py")
    target = {
        "plain": outside / "settings.py",
        "dots": site.root / "../outside/settings.py",
        "through a link": site.root / "way-out/settings.py",
        "is a link": site.root / "link.py",
    }[way]
    source = {
        "file": site.source("s.py", "x\n"),
        "diff": site.source("s.diff", unified(OLD, new(), "settings.py")),
        "script": site.source("s.sh", "#!/bin/sh\necho x > $1\n"),
        "symlink": str(site.settings),
    }[kind]
    patch = site.patch(kind=kind, source=source, target=str(target))
    if kind == "symlink" and way == "is a link":
        site.apply(patch)  # the link itself is replaced, and that lies inside
    else:
        assert "is outside its root" in refused(site, patch).what
    assert (outside / "settings.py").read_text() == OLD


def test_a_folder_patch_does_not_follow_links_out_of_its_target(site: Site) -> None:
    outside = site.root.parent / "outside"
    outside.mkdir()
    (site.root / "way-out").symlink_to(outside)
    site.source("add/way-out/a.py", "a\n")
    patch = site.patch(kind="folder", source=str(site.sources / "add"), target=str(site.root))
    assert "is outside its target" in refused(site, patch).what
    assert list(outside.iterdir()) == []


def test_a_link_inside_the_root_is_written_through(site: Site) -> None:
    alias = site.root / "alias.py"
    alias.symlink_to("engine/settings.py")
    before = site.facts()
    record = site.apply(site.patch(source=site.source("p.py", "x\n"), target=str(alias)))
    assert record["patches"]["p"]["files"][0]["path"] == str(site.settings)
    assert alias.is_symlink()
    site.restore()
    assert site.facts() == before


@pytest.mark.parametrize("kind", ["file", "diff", "script", "folder", "symlink"])
def test_a_missing_source_is_refused(site: Site, kind: str) -> None:
    target = str(site.root if kind == "folder" else site.settings)
    error = refused(site, site.patch(kind=kind, source=str(site.sources / "no"), target=target))
    assert error.where.startswith("patches.p.source")


def test_sources_of_the_wrong_shape_are_refused(site: Site) -> None:
    site.source("dir/f.py", "x\n")
    (site.sources / "dir/l.py").symlink_to("f.py")
    folder = str(site.sources / "dir")
    assert "cannot be read" in refused(site, site.patch(source=folder)).what
    linked = site.patch(kind="folder", source=folder, target=str(site.root))
    assert "is a link" in refused(site, linked).what
    no_target = site.patch(source=site.source("f", "x\n"), target=str(site.root / "engine"))
    assert "is not a file" in refused(site, no_target).what
    site.source("clash/engine", "a file where a folder is\n")
    clash = site.patch(kind="folder", source=str(site.sources / "clash"), target=str(site.root))
    assert "a folder stands where a file should" in refused(site, clash).what
    bare = site.patch(kind="script", source=site.source("bare.sh", "echo\n"))
    assert "does not name its interpreter" in refused(site, bare).what
    no_root = site.patch(source=site.source("f", "x\n"), root=str(site.root / "no"))
    assert "is not a folder" in refused(site, no_root).what


def test_a_diff_that_does_not_fit_is_refused(site: Site) -> None:
    error = refused(site, site.diff("b\n", old="a\n"))
    assert "does not apply" in error.what
    assert "hunk 1" in error.what


def test_a_diff_of_other_files_is_refused(site: Site) -> None:
    other = unified("a\n", "b\n", "engine/other.py")
    for text in (other, unified(OLD, new()) + other):
        error = refused(site, site.patch(kind="diff", source=site.source("p.diff", text)))
        assert "engine/other.py" in error.what
        assert "not only the target" in error.what
    gone = unified(OLD, "").replace("b/engine/settings.py", "/dev/null")
    error = refused(site, site.patch(kind="diff", source=site.source("p.diff", gone)))
    assert "removes the file" in error.what


def test_all_problems_are_named_at_once(site: Site) -> None:
    one = site.patch(id="one", source=site.source("p", b"\r\n"))
    two = site.diff("b\n", old="a\n", id="two")
    with pytest.raises(PatchError, match=r"CRLF(.|\n)*patches\.two\.source(.|\n)*does not apply"):
        site.apply(one, two)


def test_an_id_used_twice_is_refused(site: Site) -> None:
    patch = site.diff(new())
    with pytest.raises(PatchError, match="'p' is used 2 times"):
        site.apply(patch, patch)


@pytest.mark.parametrize(
    ("proof", "says"),
    [
        ({"marker": "N_UBATCH = 32"}, "0 times"),
        ({"sha256": "0" * 64}, sha(OLD.replace("512", "64"))),
        ({"python": "'512' in text"}, "False"),
        ({"python": "tex"}, "NameError"),
        ({"python": "text +"}, "SyntaxError"),
        ({"python": "text.__class__"}, "not allowed"),
        ({"python": "open('/etc/passwd')"}, "NameError"),
        ({"python": "'{0.__class__}'.format(text)"}, "not allowed"),
        ({"marker": "x", "file": "gone.py"}, "cannot be read"),
        ({"marker": "root", "file": "../../../../../../etc/passwd"}, "outside the target"),
    ],
)
def test_a_proof_that_fails_takes_the_patch_back(
    site: Site, proof: dict[str, Any], says: str
) -> None:
    before = site.facts()
    with pytest.raises(PatchError) as error:
        site.apply(site.diff(new(), verify=[{"marker": "64"}, proof]))
    assert says in error.value.what
    assert error.value.where.startswith("patches.p.verify")
    assert site.facts() == before
    assert api.active_set(site.node, site.work)["patches"] == []


def test_a_proof_is_asked_again_when_nothing_is_written(site: Site) -> None:
    site.apply(site.diff(new()))
    with pytest.raises(PatchError, match="does not hold"):
        site.apply(site.diff(new(), verify=[{"marker": "nowhere"}]))
    assert site.verify(site.diff(new(), verify=[{"marker": "nowhere"}]))["in_place"] is False


def test_foreign_changes_are_refused_and_kept(site: Site) -> None:
    patch = site.diff(new())
    site.apply(patch)
    site.settings.write_text("mine\n")
    assert site.verify(patch)["standing"] == "foreign"
    for act in (site.restore, lambda: site.apply(patch), site.apply):
        with pytest.raises(PatchError, match="changed by somebody else") as error:
            act()
        assert site.settings.read_text() == "mine\n"
    kept = Path(error.value.remedy.rsplit(" ", 1)[1])
    assert kept.read_text() == OLD
    # the way out that the remedy names
    site.settings.unlink()
    site.restore()
    assert site.settings.read_text() == OLD


def test_another_campaigns_patch_is_never_taken_for_the_original(site: Site) -> None:
    site.apply(site.diff(new()))
    mine, site.work = site.work, str(Path(site.work).with_name("work-2"))
    with pytest.raises(PatchError, match="is patched by another campaign") as error:
        site.apply(site.patch(id="second", source=site.source("q", "x\n")))
    assert mine in error.value.where
    assert len(list(Path(mine).with_name("patched").iterdir())) == 1
    assert site.settings.read_text() == new()
    site.work = mine
    site.restore()
    assert list(Path(mine).with_name("patched").iterdir()) == []
    site.work = str(Path(site.work).with_name("work-2"))
    site.apply(site.patch(id="second", source=site.source("q", "x\n")))
    site.restore()
    assert site.settings.read_text() == OLD


def test_a_start_without_patches_is_refused_while_another_run_has_patched_what_it_uses(
    site: Site,
) -> None:
    site.work = str(Path(site.work).with_name("demo-0123abcd-n1"))
    site.apply(site.diff(new()))
    other = str(Path(site.work).with_name("demo2-4567abcd-n1"))
    for uses in ([str(site.root)], [str(site.settings)]):
        for refuse in (
            lambda uses=uses: api.apply_patches(site.node, [], other, uses=uses),
            lambda uses=uses: api.refuse_others(site.node, other, uses),
        ):
            with pytest.raises(PatchError, match="patched by another campaign, run demo") as error:
                refuse()
            assert "`unpatch` (run demo)" in error.value.remedy
    assert api.apply_patches(site.node, [], site.work, uses=[str(site.root)])["changed"] is False
    assert api.apply_patches(site.node, [], other, uses=[str(site.root)])["others"] == []


def test_a_diff_on_another_runs_patch_is_told_so_and_not_to_be_made_anew(site: Site) -> None:
    site.apply(site.diff(new()))
    diff = site.diff(new(), id="second")
    with pytest.raises(PatchError, match="is patched by another campaign, run work"):
        api.apply_patches(site.node, [diff], f"{site.work}-2", uses=[diff.target])


def test_another_runs_patch_elsewhere_is_listed_and_none_that_is_taken_back(site: Site) -> None:
    site.apply(site.diff(new()))
    uses = [str(site.root / "eng"), str(site.root / "engine/settings.py2")]
    other = f"{site.work}-2"
    row = {"path": str(site.settings), "work": site.work, "used": False}
    assert api.apply_patches(site.node, [], other, uses=uses)["others"] == [row]
    site.settings.write_text(OLD)
    assert api.patched_by_others(site.node, other, [str(site.root)]) == []
    site.settings.write_text("of somebody else\n")
    api_row = {**row, "used": True}
    assert api.patched_by_others(site.node, other, [str(site.root)]) == [api_row]
    Path(site.work, "journal.json").write_text("{")
    assert api.patched_by_others(site.node, other, [str(site.root)]) == [api_row]


def test_a_folder_that_was_removed_is_not_raised_from_the_dead(site: Site) -> None:
    site.apply(site.diff(new()))
    site.settings.unlink()
    site.settings.parent.rmdir()
    (proof,) = site.restore()["files"]
    assert (proof["ok"], proof["gone"]) == (False, True)
    assert not site.settings.parent.exists()
    assert api.active_set(site.node, site.work)["standing"] == "none"


def test_one_foreign_file_stops_the_whole_restore(site: Site) -> None:
    site.source("add/engine/settings.py", "x\n")
    site.source("add/engine/b.py", "b\n")
    site.apply(site.patch(kind="folder", source=str(site.sources / "add"), target=str(site.root)))
    (site.root / "engine/b.py").write_text("mine\n")
    with pytest.raises(PatchError, match="changed by somebody else"):
        site.restore()
    assert site.settings.read_text() == "x\n"


def test_originals_put_back_by_hand_are_seen_and_patched_again(site: Site) -> None:
    patch = site.diff(new())
    site.apply(patch)
    site.settings.write_text(OLD)
    assert site.verify(patch)["standing"] == "unpatched"
    assert site.apply(patch)["changed"] is True
    assert site.settings.read_text() == new()


def test_python_never_takes_the_bytecode_of_another_variant(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources of one size, swapped within a second, are told apart by their times alone."""
    monkeypatch.setattr("servemap.onnode.patch_journal.time.time", lambda: 1_800_000_000.5)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    site.settings.write_text("N = 1\n")
    show = [sys.executable, "-c", "import settings; print(settings.N)"]
    seen = []
    for number in ("2", "3", "4"):
        site.apply(site.patch(id=f"n{number}", source=site.source(number, f"N = {number}\n")))
        done = subprocess.run(
            show, cwd=site.settings.parent, capture_output=True, text=True, check=True
        )
        seen.append(done.stdout.strip())
    assert list(site.settings.parent.glob("__pycache__/settings.*.pyc"))
    assert seen == ["2", "3", "4"]


def test_modes_and_times_of_the_original_come_back(site: Site) -> None:
    os.utime(site.settings, ns=(1_600_000_000_000_000_001, 1_600_000_000_000_000_001))
    site.apply(site.patch(source=site.source("p.py", "x\n")))
    site.settings.chmod(0o600)
    site.restore()
    assert site.settings.stat().st_mode & 0o777 == 0o640
    assert site.settings.stat().st_mtime_ns == 1_600_000_000_000_000_001


def test_a_damaged_journal_is_named_not_overwritten(site: Site) -> None:
    site.apply(site.diff(new()))
    journal = Path(site.work) / "journal.json"
    journal.write_text(journal.read_text()[:100])
    with pytest.raises(PatchError, match="record of applied patches cannot be used"):
        site.restore()
    journal.write_text(json.dumps({"schema": 99}))
    with pytest.raises(PatchError, match="schema 99"):
        site.apply()
    assert site.settings.read_text() == new()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_target_that_cannot_be_written_is_said_without_a_traceback(site: Site) -> None:
    site.settings.parent.chmod(0o500)
    try:
        with pytest.raises(PatchError, match="Permission denied"):
            site.apply(site.diff(new()))
    finally:
        site.settings.parent.chmod(0o700)


def test_an_agent_without_an_answer_is_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        site.node, "run", lambda *a, **k: Completed((), 127, "", "python3: not found\n", 0.0)
    )
    with pytest.raises(PatchError, match=r"no answer.*python3: not found"):
        site.restore()


def test_the_shipped_agent_does_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, LocalNode(agent_dir=tmp_path / "agent"))
    monkeypatch.chdir(tmp_path)
    site.source("p.diff", unified(OLD, new()))
    patch = PatchSpec(
        id="p",
        kind="diff",
        source="sources/p.diff",
        target="site/engine/settings.py",
        root="site",
        verify=[{"marker": "N_UBATCH = 64"}],
    )
    assert site.apply(patch)["changed"] is True
    assert site.apply(patch)["changed"] is False
    assert site.settings.read_text() == new()
    assert site.restore()["files"][0]["ok"] is True
    assert site.settings.read_text() == OLD
