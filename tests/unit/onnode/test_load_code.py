"""The load client is shipped to nodes: old Python, nothing but the standard library."""

import ast
import sys
from pathlib import Path

import pytest

import servemap.onnode.bench

FOLDER = Path(servemap.onnode.bench.__file__).parent
FILES = sorted([FOLDER / "bench.py", *FOLDER.glob("load_*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_code_is_python_3_8_with_the_standard_library(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [] if node.level == 1 else [str(node.module)]
        else:
            continue
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names


def test_there_are_files():
    assert len(FILES) > 8
