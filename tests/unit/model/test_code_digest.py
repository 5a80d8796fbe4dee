"""The code digest: what makes a derive job run again, and what does not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from servemap.model import code_digest as module

MAIN = '''"""Docstring."""
# comment
from servemap.probe_b import helper

LIMIT = 3
"""What the limit is."""


def entry(x):
    """Docstring."""
    return helper(x) + 1  # why
'''
FILES = {
    "probe_a.py": MAIN,
    "probe_b.py": "from servemap import probe_c\n\n\ndef helper(x):\n    return probe_c.ONE * x\n",
    "probe_c.py": "ONE = 1\n",
    "probe_d.py": "unused = 1\n",
    "table.yaml": "limit: 3  # comment\nother: [1, 2]\n",
    "sheet.css": "a { color: red }\n",
}


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the digest of `probe_a` with some files changed."""
    calls = iter(range(100))

    def of(**changed: str) -> str:
        folder = tmp_path / str(next(calls))
        folder.mkdir()
        for name, text in {
            **FILES,
            **{k.replace("__", "."): v for k, v in changed.items()},
        }.items():
            (folder / name).write_text(text)

        def source(name: str) -> Path | None:
            path = folder / f"{name.removeprefix('servemap.')}.py"
            return path if path.exists() else None

        monkeypatch.setattr(module, "_source", source)
        module.code_digest.cache_clear()
        return module.code_digest("servemap.probe_a")

    return of


@pytest.mark.parametrize(
    "text",
    [
        MAIN.replace("# comment", "# another"),
        MAIN.replace("Docstring.", "Said otherwise."),
        MAIN.replace('    """Docstring."""\n', ""),
        MAIN.replace("What the limit is.", "What it is."),
        MAIN.replace("\n\n\ndef", "\ndef").replace("(x) + 1", "(\n        x\n    ) + 1"),
    ],
    ids=["comment", "docstring", "no docstring", "text below a name", "layout"],
)
def test_what_changes_nothing(digest: Callable[..., str], text: str) -> None:
    assert text != MAIN
    assert digest(probe_a__py=text) == digest()


@pytest.mark.parametrize(
    "changed",
    [
        {"probe_a__py": MAIN.replace("+ 1", "+ 2")},
        {"probe_a__py": MAIN.replace("LIMIT = 3", "LIMIT = 4")},
        {"probe_c__py": "ONE = 2\n"},
        {"probe_a__py": MAIN.replace("helper(x) + 1", "'text' and helper(x) + 1")},
        {"table__yaml": "limit: 4\nother: [1, 2]\n"},
        {"sheet__css": "a { color: blue }\n"},
    ],
    ids=["function", "value", "imported twice over", "a text that is used", "table", "style"],
)
def test_what_changes_it(digest: Callable[..., str], changed: dict[str, str]) -> None:
    assert digest(**changed) != digest()


@pytest.mark.parametrize(
    "changed",
    [
        {"probe_d__py": "unused = 2\n"},
        {"table__yaml": "# moved\nother: [1, 2]\nlimit: 3\n"},
    ],
    ids=["a module that is not reached", "a table's layout"],
)
def test_what_is_not_reached(digest: Callable[..., str], changed: dict[str, str]) -> None:
    assert digest(**changed) == digest()


def test_it_is_the_same_however_often_it_is_asked(digest: Callable[..., str]) -> None:
    two_texts = MAIN.replace('"""Docstring."""\n# comment', '"""One."""\n"""Two."""', 1)
    first = digest(probe_a__py=two_texts)
    module.code_digest.cache_clear()
    assert module.code_digest("servemap.probe_a") == first


def test_what_the_derive_job_really_reaches() -> None:
    reached = module._closure(("servemap.analysis.derive",))
    assert {"servemap.analysis.metrics", "servemap.parsers.proc"} <= reached.keys()
    assert not [name for name in reached if name.startswith(("servemap.report", "servemap.nodes"))]
    assert module.code_digest("servemap.no_such_module")
