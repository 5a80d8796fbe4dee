from collections.abc import Iterator
from pathlib import Path

import pytest

from servemap.model import code_digest as module
from servemap.model.code_digest import code_digest

CACHES = (code_digest, module._tables, module._source_file, module._read)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of which `servemap.a.one` reaches `servemap.b.two` and nothing else."""
    files = {
        "a/__init__.py": '"""A."""\n',
        "a/one.py": '"""One."""\nfrom servemap.b.two import value\ndef f():\n    return value\n',
        "a/alone.py": "raise RuntimeError('the code is read, not run')\n",
        "a/table.yaml": "# of units\nunit: ms\n",
        "b/__init__.py": "",
        "b/two.py": "import os\n\nvalue = 1\n",
    }
    for name, text in files.items():
        path = tmp_path / "servemap" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    forget()
    yield tmp_path / "servemap"
    forget()


def forget() -> None:
    for cached in CACHES:
        cached.cache_clear()


def digest_with(package: Path, name: str, text: str) -> str:
    (package / name).write_text(text)
    forget()
    return code_digest("servemap.a.one")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a/one.py", "from servemap.b.two import value\n\n\ndef f():\n    return value + 1\n"),
        ("b/two.py", "import os\n\nvalue = 2\n"),
        ("a/table.yaml", "unit: s\n"),
        ("b/two.py", "import os\n\nvalue = 'text' and 1\n"),
        ("a/page.j2", "a template\n"),
        ("b/sheet.css", "a { color: blue }\n"),
    ],
)
def test_code_and_tables_that_are_reached_count(package: Path, name: str, text: str) -> None:
    before = code_digest("servemap.a.one")
    assert digest_with(package, name, text) != before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a/one.py",
            '"""Other words."""\nfrom servemap.b.two import value  # a remark\n\n'
            'def f():\n    """Say."""\n    return  value\n',
        ),
        ("b/two.py", 'import os\n\nvalue = 1\n"""What the value is."""\n'),
        ("a/alone.py", "other = 1\n"),
        ("a/table.yaml", "unit:   ms\n"),
        ("b/three.py", "other = 1\n"),
    ],
)
def test_words_layout_and_code_that_is_not_reached_do_not_count(
    package: Path, name: str, text: str
) -> None:
    before = code_digest("servemap.a.one")
    assert digest_with(package, name, text) == before


def test_the_same_file_gives_the_same_digest_through_another_module(package: Path) -> None:
    # a string that follows a docstring is code: dropping the docstring twice would lose it
    (package / "b" / "two.py").write_text('"""Doc."""\n"""second"""\nvalue = 1\n')
    forget()
    alone = code_digest("servemap.b.two")
    code_digest("servemap.a.one")
    code_digest.cache_clear()
    assert code_digest("servemap.b.two") == alone


@pytest.mark.parametrize("line", ["from .three import value", "from ..c.four import value"])
def test_what_is_imported_relatively_counts(package: Path, line: str) -> None:
    (package / "c").mkdir()
    for name in ("a/three.py", "c/__init__.py", "c/four.py"):
        (package / name).write_text("value = 1\n")
    before = digest_with(package, "a/one.py", f"{line}\n")
    name = "a/three.py" if "three" in line else "c/four.py"
    assert digest_with(package, name, "value = 2\n") != before


def test_a_relative_import_of_a_module_counts(package: Path) -> None:
    (package / "a/three.py").write_text("value = 1\n")
    before = digest_with(package, "a/one.py", "from . import three\n")
    assert digest_with(package, "a/three.py", "value = 2\n") != before


def test_the_calibration_reaches_client_and_reference_server() -> None:
    reached = module._closure(("servemap.onnode.calibrate",))
    names = ("load_loop", "load_conn", "load_sse", "ref_server", "ref_script")
    assert {f"servemap.onnode.{name}" for name in names} <= reached.keys()


def test_what_the_derive_job_really_reaches() -> None:
    reached = module._closure(("servemap.analysis.derive",))
    assert {"servemap.analysis.metrics", "servemap.parsers.proc"} <= reached.keys()
    assert not [name for name in reached if name.startswith(("servemap.report", "servemap.nodes"))]
