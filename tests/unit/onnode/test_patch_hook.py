"""The hook in real processes: what each says that it compiled, and that it changes nothing else."""

import compileall
import hashlib
import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import patch_hook
from servemap.onnode.patch_notes import look, read_notes
from tests.parts import need
from tests.unit.onnode.agent_process import agent_argv, wait_for
from tests.waiting import WAIT_S

PATCHED = "VALUE = 'patched'\n"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Hooked:
    """A package with a watched module, and the hook in a folder that comes first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hook, self.root = folder, folder / "hook", folder / "root"
        self.module = self.root / "pack" / "inner" / "mod.py"
        self.module.parent.mkdir(parents=True)
        self.module.write_text(PATCHED)
        for package in (self.root / "pack", self.module.parent):
            (package / "__init__.py").write_text("")
        self.hook.mkdir()
        source = Path(patch_hook.__file__).read_text()
        (self.hook / "sitecustomize.py").write_text(source)
        (self.hook / "notes").touch()
        self.watch(self.module)
        self.first: list[Path] = []
        self.running: list[subprocess.Popen[str]] = []

    def watch(self, *paths: Path) -> None:
        (self.hook / "watched").write_text("".join(f"{path}\n" for path in paths))

    def start(self, code: str, *options: str, python: str = sys.executable) -> Any:
        path = ":".join(map(str, [self.hook, *self.first, self.root]))
        process = subprocess.Popen(
            [python, *options, "-c", code],
            env={**os.environ, "PYTHONPATH": path},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, code: str, *options: str, python: str = sys.executable) -> str:
        """Run to the end; return what it printed."""
        process = self.start(code, *options, python=python)
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, err
        return str(out)

    def imports(self) -> list[list[dict[str, Any]]]:
        """What each process imported, in the order in which they began."""
        return list(read_notes(str(self.hook)).values())


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[Hooked]:
    found = Hooked(tmp_path)
    yield found
    for process in found.running:
        process.kill()
        process.communicate()


def test_an_import_is_noted_with_what_was_compiled(hooked: Hooked) -> None:
    assert hooked.run("import pack.inner.mod as m; print(m.VALUE)") == "patched\n"
    (process,) = hooked.imports()
    assert process == [
        {
            "module": "pack.inner.mod",
            "file": str(hooked.module),
            "sha256": sha256(hooked.module),
            "inherited": False,
        }
    ]


def test_cached_byte_code_of_other_bytes_is_not_run(hooked: Hooked) -> None:
    """Byte code is trusted by size and whole seconds, which both versions share here."""
    hooked.module.write_text(PATCHED.replace("patched", "ORIGNAL"))
    os.utime(hooked.module, (1_700_000_000, 1_700_000_000))
    assert compileall.compile_file(hooked.module, quiet=1)
    hooked.module.write_text(PATCHED)
    os.utime(hooked.module, (1_700_000_000, 1_700_000_000))
    code = "import pack.inner.mod as m; print(m.VALUE)"
    (hooked.hook / "sitecustomize.py").rename(hooked.hook / "off")
    assert hooked.run(code) == "ORIGNAL\n", "without the hook the cache is run"
    (hooked.hook / "off").rename(hooked.hook / "sitecustomize.py")
    assert hooked.run(code) == "patched\n"
    assert hooked.imports()[0][0]["sha256"] == sha256(hooked.module)


def test_a_file_that_changes_after_its_import_is_told_as_it_was(hooked: Hooked) -> None:
    process = hooked.start("import pack.inner.mod; print(1, flush=True); input()")
    assert process.stdout.readline() == "1\n"
    before = sha256(hooked.module)
    hooked.module.write_text("VALUE = 'changed behind its back'\n")
    (found,) = look(str(hooked.hook), [process.pid])
    assert (found["began"], found["imports"][0]["sha256"]) == (True, before)
    assert Path(found["program"]).name.startswith("python")


def test_forked_and_spawned_processes(hooked: Hooked) -> None:
    """A fork inherits without importing; a spawned process imports itself, what lies there then."""
    code = """
import multiprocessing, os, pathlib
import pack.inner.mod
for way in ("fork", "spawn"):
    process = multiprocessing.get_context(way).Process(target=os.getpid)
    process.start(); process.join(); assert process.exitcode == 0
    pathlib.Path(pack.inner.mod.__file__).write_text("VALUE = 'new'\\n")
process = multiprocessing.get_context("spawn").Process(
    target=__import__("importlib").import_module, args=("pack.inner.mod",))
process.start(); process.join(); assert process.exitcode == 0
"""
    before = sha256(hooked.module)
    hooked.run(code)
    told = [[(one["sha256"], one["inherited"]) for one in process] for process in hooked.imports()]
    after = sha256(hooked.module)
    assert before != after
    assert told[:2] == [[(before, False)], [(before, True)]]
    assert [(after, False)] in told[2:]
    assert [] in told[2:], "spawned, and it imported nothing"


def test_a_copy_that_comes_first_is_noted_as_what_it_is(hooked: Hooked) -> None:
    copy = hooked.folder / "other" / "pack" / "inner" / "mod.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("VALUE = 'copy'\n")
    for package in (copy.parent, copy.parents[1]):
        (package / "__init__.py").write_text("")
    hooked.first = [hooked.folder / "other"]
    assert hooked.run("import pack.inner.mod as m; print(m.VALUE)") == "copy\n"
    ((found,),) = hooked.imports()
    assert (found["file"], found["sha256"]) == (str(copy), sha256(copy))


def test_byte_code_without_source_that_comes_first_is_noted_as_what_it_is(hooked: Hooked) -> None:
    copy = hooked.folder / "copy" / "pack" / "inner" / "mod.pyc"
    for source in sorted(hooked.root.rglob("*.py")):
        target = copy.parents[2] / source.relative_to(hooked.root).with_suffix(".pyc")
        py_compile.compile(str(source), cfile=str(target))
    hooked.first = [copy.parents[2]]
    assert hooked.run("import pack.inner.mod as m; print(m.VALUE)") == "patched\n"
    ((noted,),) = hooked.imports()
    assert (noted["module"], noted["file"]) == ("pack.inner.mod", str(copy))
    assert noted["sha256"] == sha256(copy)


def test_modules_of_a_like_name_are_not_taken_for_it(hooked: Hooked) -> None:
    (hooked.root / "mod.py").write_text("")
    (hooked.root / "elsewhere").mkdir()
    (hooked.root / "elsewhere" / "mod.py").write_text("")
    hooked.run("import mod, elsewhere.mod")
    assert hooked.imports() == [[]]


@pytest.mark.parametrize("how", ["package", "main", "by its file", "a link"])
def test_other_ways_to_import(hooked: Hooked, how: str) -> None:
    package = hooked.root / "pack" / "__init__.py"
    main = hooked.root / "pack" / "__main__.py"
    main.write_text("")
    link = hooked.folder / "linked"
    link.symlink_to(hooked.root)
    by_file = (
        "import importlib.util as i; s = i.spec_from_file_location('x.mod', "
        f"{str(hooked.module)!r}); s.loader.exec_module(i.module_from_spec(s))"
    )
    path, code = {
        "package": (package, "import pack"),
        "main": (main, "import runpy; runpy.run_module('pack')"),
        "by its file": (hooked.module, by_file),
        "a link": (
            hooked.module, f"import sys; sys.path.insert(0, {str(link)!r}); import pack.inner.mod"
        ),
    }[how]  # fmt: skip
    hooked.watch(path)
    hooked.run(code)
    assert [one["file"] for one in hooked.imports()[0]] == [str(path)]


def test_a_file_that_is_loaded_under_another_name_is_noted(hooked: Hooked) -> None:
    """As engines load plug-ins and parsers that they are given by path."""
    hooked.run(
        "from importlib.util import module_from_spec, spec_from_file_location\n"
        f"spec = spec_from_file_location('any.name', {str(hooked.module)!r})\n"
        "spec.loader.exec_module(module_from_spec(spec))"
    )
    ((noted,),) = hooked.imports()
    assert (noted["module"], noted["file"]) == ("any.name", str(hooked.module))
    assert noted["sha256"] == sha256(hooked.module)


def test_the_environments_own_sitecustomize_runs_too(hooked: Hooked) -> None:
    own = hooked.root / "sitecustomize.py"
    own.write_text("SAYS = 'mine'\nimport sys; sys.path.append('/added')\n")
    code = "import sitecustomize, sys; print(sitecustomize.SAYS, sys.path)"
    with_hook = hooked.run(code)
    assert with_hook.startswith("mine ")
    (hooked.hook / "sitecustomize.py").unlink()
    assert hooked.run(code) == with_hook, "the search path is the same, and what it added is there"
    own.write_text("raise RuntimeError('broken')\n")
    assert "Error in sitecustomize" in hooked.start("").communicate(timeout=WAIT_S)[1]


@pytest.mark.parametrize("way", ["its environment", "the parent's search path"])
def test_programs_that_are_started_have_the_hook_too(hooked: Hooked, way: str) -> None:
    """As engine processes are started, and torch's compile workers."""
    path = "os.environ['PYTHONPATH']" if "env" in way else "os.pathsep.join(sys.path)"
    hooked.run(
        "import os, subprocess, sys; subprocess.run([sys.executable, '-c', 'import pack.inner.mod'"
        f"], env={{**os.environ, 'PYTHONPATH': {path}}}, check=True)"
    )
    assert [len(imports) for imports in hooked.imports()] == [0, 1]


def test_a_process_that_skips_the_hook_says_nothing(hooked: Hooked) -> None:
    process = hooked.start("print(1, flush=True); input()", "-I")
    assert process.stdout.readline() == "1\n"
    (found,) = look(str(hooked.hook), [process.pid])
    assert (found["began"], found["imports"]) == (False, [])


@pytest.mark.parametrize("broken", ["watched", "notes"])
def test_a_server_never_fails_for_the_hook(hooked: Hooked, broken: str) -> None:
    (hooked.hook / broken).unlink()
    assert hooked.run("import pack.inner.mod as m; print(m.VALUE)") == "patched\n"
    assert hooked.imports() == []


def test_a_module_that_does_not_compile_fails_as_it_would(hooked: Hooked) -> None:
    hooked.module.write_text("VALUE = (\n")
    process = hooked.start("import pack.inner.mod")
    assert "SyntaxError" in process.communicate(timeout=WAIT_S)[1]


def test_python_38_runs_the_hook(hooked: Hooked) -> None:
    hooked.run("import pack.inner.mod", python=need("python38"))
    assert hooked.imports()[0][0]["sha256"] == sha256(hooked.module)


def test_a_pid_of_an_earlier_process_tells_nothing(hooked: Hooked) -> None:
    (hooked.hook / "notes").write_text(f"{os.getpid()}\t7\tbegan\n")
    (found,) = look(str(hooked.hook), [os.getpid()])
    assert found["began"] is False


def test_the_agent_prints_it_and_leaves_out_who_is_gone(hooked: Hooked) -> None:
    process = hooked.start("import pack.inner.mod, time; time.sleep(60)")
    wait_for(lambda: any(hooked.imports()), "the import")
    ended = subprocess.Popen(["true"])
    ended.wait()
    argv = agent_argv("patch-notes", str(hooked.hook), str(process.pid), str(ended.pid))
    said = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)
    assert [one["pid"] for one in said["processes"]] == [process.pid]
    assert said["processes"][0]["imports"][0]["module"] == "pack.inner.mod"


@given(st.text(st.sampled_from("12\t\nbegan imported abc/.")))
def test_any_notes_can_be_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / "notes").write_text(text)
    for (pid, start), imports in read_notes(str(folder)).items():
        assert pid >= 0
        assert start >= 0
        assert all(one.keys() == {"module", "file", "sha256", "inherited"} for one in imports)
