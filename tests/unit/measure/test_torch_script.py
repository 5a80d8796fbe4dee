"""The script that ranks run: by an old Python, from the address to the interface."""

import ast
import json
import subprocess
from importlib import resources

import pytest

from servemap.measure.baselines import torch_ranks
from servemap.parsers.communication.torch_ranks import parse_rank_lines
from tests.parts import need

SOURCE = resources.files("servemap.measure.baselines").joinpath("torch_ranks.py").read_text()


def test_it_is_a_program_of_python_3_8_that_imports_nothing_of_ours() -> None:
    tree = ast.parse(SOURCE, feature_version=(3, 8))
    named = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in named if name.startswith("servemap")]


def test_python_3_8_without_torch_says_so_in_the_ranks_words(tmp_path) -> None:
    python = need("python38")
    script = tmp_path / "torch_ranks.py"
    script.write_text(SOURCE)
    plan = {"operations": [], "sizes": [], "address": "127.0.0.1", "timeout_s": 1}
    done = subprocess.run(
        [python, str(script), json.dumps(plan)],
        env={"RANK": "3", "LOCAL_RANK": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "has no torch" in parse_rank_lines(done.stdout).errors[3]


@pytest.mark.parametrize(("address", "name"), [("127.0.0.1", "lo"), ("203.0.113.7", None)])
def test_an_address_leads_to_its_interface(address: str, name: str | None) -> None:
    assert torch_ranks.interface_of(address) == name
