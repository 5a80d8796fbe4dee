"""What the gate makes of what a server's processes noted of patched files."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.server.gates.checks import Check
from servemap.server.gates.imports import (
    Import,
    Importer,
    import_rows,
    inside_path,
    judge_imports,
    parse_importers,
    watchable,
)

LIB = "/env/lib/site-packages/pack"
MOD, INIT, DATA = f"{LIB}/inner/mod.py", f"{LIB}/__init__.py", f"{LIB}/table.json"
OLD, NEW = "0" * 64, "1" * 64


def record(*patches: tuple[str, dict[str, str | None]]) -> dict[str, Any]:
    """A node's record: patches in order, each with its files and their digests after it."""
    return {
        "order": [name for name, _ in patches],
        "patches": {
            name: {"files": [{"path": p, "sha256_after": digest} for p, digest in files.items()]}
            for name, files in patches
        },
    }


def importer(pid: int, *imports: Import, began: bool = True, program: str = "/p/python3") -> Any:
    return Importer(pid, f"worker {pid}", program, began, imports)


def mod(digest: str = NEW, file: str = MOD, *, inherited: bool = False) -> Import:
    return Import("pack.inner.mod", file, digest, inherited)


def judged(patches: dict[str, Any], *importers: Importer) -> list[tuple[str, bool | None]]:
    return [(check.name, check.ok) for check in judge_imports(patches, importers)]


ONE = record(("p", {MOD: NEW}))


def only(*importers: Importer) -> Check:
    (check,) = judge_imports(ONE, importers)
    return check


def test_every_process_that_runs_the_patch_is_named() -> None:
    check = only(importer(1, mod()), importer(2, mod(inherited=True)), importer(3))
    assert (check.name, check.ok) == ("patches.p", True)
    assert check.evidence == (
        f"{MOD} (sha256 111111111111) imported by pid 1 (worker 1), pid 2 (worker 2), by a fork"
    )


def test_one_process_with_other_bytes_fails_it() -> None:
    check = only(importer(1, mod()), importer(2, mod(OLD)))
    assert check.ok is False
    assert "pid 2 (worker 2) imported pack.inner.mod" in check.evidence
    assert f"patched is {MOD} (sha256 111111111111)" in check.evidence
    assert check.remedy


def test_a_copy_in_another_place_fails_it_whatever_its_bytes() -> None:
    check = only(importer(1, mod(NEW, "/cwd/pack/inner/mod.py")))
    assert check.ok is False
    assert "/cwd/pack/inner/mod.py" in check.evidence


def test_both_copies_patched_are_both_right() -> None:
    other = MOD.replace("/lib/", "/lib64/")
    both = record(("p", {MOD: NEW}), ("q", {other: NEW}))
    assert judged(both, importer(1, mod(file=other))) == [("patches.p", True), ("patches.q", True)]


def test_a_process_that_says_nothing_leaves_it_unknown() -> None:
    for told in ((), (importer(1, mod()),)):
        check = only(*told, importer(2, began=False))
        assert check.ok is None
        assert "pid 2 (worker 2) does not note" in check.evidence
        assert "PYTHONPATH" in check.remedy
    assert only(importer(1, mod()), Importer(2, "x", None, False)).ok is None, "who knows"


@pytest.mark.parametrize("program", ["/usr/bin/sleep", "/usr/bin/gcc-12"])
def test_other_programs_need_not_say_anything(program: str) -> None:
    assert only(importer(1, mod()), importer(2, began=False, program=program)).ok is True


@pytest.mark.parametrize("program", ["python3.11", "python", "pypy3", "python3.12 (deleted)"])
def test_what_is_python(program: str) -> None:
    assert importer(2, began=False, program=f"/usr/bin/{program}").silent


def test_a_patch_that_nothing_imports_does_not_act() -> None:
    check = only(importer(1))
    assert check.ok is None
    assert f"never imported: {MOD}" in check.evidence
    assert "the patch changes nothing" in check.remedy


def test_each_patch_is_judged_by_its_own_files_as_the_last_one_left_them() -> None:
    patches = record(("first", {MOD: OLD}), ("second", {MOD: NEW}), ("third", {INIT: NEW}))
    assert judged(patches, importer(1, mod())) == [
        ("patches.first", True),
        ("patches.second", True),
        ("patches.third", None),
    ]


def test_what_is_no_python_source_is_said_not_to_be_seen() -> None:
    (check,) = judge_imports(record(("p", {DATA: NEW, f"{LIB}/link.py": None})), [importer(1)])
    assert check.ok is None
    assert f"not seen from inside: {DATA}, {LIB}/link.py" in check.evidence
    (check,) = judge_imports(record(("p", {DATA: NEW, MOD: NEW})), [importer(1, mod())])
    assert check.ok is True
    assert DATA in check.evidence
    assert watchable(record(("p", {DATA: NEW, MOD: NEW, f"{LIB}/a\nb.py": NEW}))) == [MOD]


def test_a_module_of_one_word_is_not_one_inside_a_package() -> None:
    inside, top = "/env/pack/utils.py", "/other/utils.py"
    patches = record(("p", {inside: NEW}), ("q", {top: NEW}))
    assert judged(patches, importer(1, Import("utils", top, NEW, False))) == [
        ("patches.p", None),
        ("patches.q", True),
    ]


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/data/engine/mod.py", "/opt/mod.py"),
        ("/data/other.py", "/d/other.py"),
        ("/data", "/d"),
        ("/database/x.py", "/database/x.py"),
        ("/one.py", "/two.py"),
    ],
)
def test_paths_in_a_container_are_those_of_the_nearest_mount(path: str, inside: str) -> None:
    mounts = {"/data": "/d", "/data/engine": "/opt/", "/one.py": "/two.py"}
    assert inside_path(path, mounts) == inside


def test_what_is_stored() -> None:
    assert import_rows([importer(1, mod()), importer(2)]) == [
        {
            "pid": 1,
            "process": "worker 1",
            "module": "pack.inner.mod",
            "file": MOD,
            "sha256": NEW,
            "inherited": False,
        }
    ]


def test_answers_of_another_shape_are_refused() -> None:
    good = {"pid": 1, "program": None, "began": True, "imports": []}
    assert parse_importers({"processes": [good]}, {1: "x"}) == [Importer(1, "x", None, True)]
    for bad in (None, {}, {"processes": [{}]}, {"processes": [{**good, "imports": [{"a": 1}]}]}):
        with pytest.raises(ValueError, match="not what processes imported"):
            parse_importers(bad, {})


ODD = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({})
IMPORT = st.fixed_dictionaries(
    {}, optional={"module": ODD, "file": ODD, "sha256": ODD, "inherited": ODD}
)
PROCESS = st.fixed_dictionaries(
    {"pid": ODD, "program": ODD, "began": ODD, "imports": ODD | st.lists(IMPORT, max_size=2)}
)


@given(st.lists(PROCESS, max_size=2))
def test_any_answer_is_judged_or_refused(processes: list[Any]) -> None:
    try:
        found = parse_importers({"processes": processes}, {})
    except ValueError:
        return
    (check,) = judge_imports(ONE, found)
    assert check.evidence
    import_rows(found)
