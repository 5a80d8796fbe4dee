from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.engines.base import (
    flags,
    last_json_line,
    longest_sequence,
    on_node,
    python_env,
    served_models,
)
from servemap.model.errors import ConfigError
from servemap.model.server_spec import Package, Secret, ServerSpec

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
SHAPED = st.fixed_dictionaries(
    {"data": st.lists(st.fixed_dictionaries({"id": JSON, "meta": JSON, "max_model_len": JSON}))}
)


def test_flags_spell_each_kind_of_value() -> None:
    args = {"n_batch": 512, "fast": True, "prefix_cache": False, "cuts": [1, 2], "--x-y": 0.5}
    assert flags(args) == [
        "--n-batch", "512", "--fast", "--no-prefix-cache", "--cuts", "1", "2", "--x-y", "0.5",
    ]  # fmt: skip


def test_paths_of_the_spec_lie_in_the_work_folder() -> None:
    assert on_node(".demo/../a/tiny.gguf", "/work folder") == "/work folder/a/tiny.gguf"
    assert on_node("/models/x", "/w") == "/models/x"


def test_package_root_comes_before_the_given_python_path() -> None:
    package = Package(name="llamaserve", root="engine")
    spec = ServerSpec(engine="llamacpp", package=package, env={"PYTHONPATH": "/opt/a", "A": "1"})
    env = python_env(spec, "/w")
    assert env["PYTHONPATH"] == "/w/engine:/opt/a"
    assert env["PYTHONDONTWRITEBYTECODE"] == "1"
    assert env["A"] == "1"
    assert "PYTHONPATH" not in python_env(ServerSpec(engine="llamacpp"), "/w")


def test_secrets_stay_references() -> None:
    secret = Secret(secret="HF_TOKEN")
    spec = ServerSpec(engine="llamacpp", env={"TOKEN": secret})
    assert python_env(spec, "/w")["TOKEN"] == secret
    package = Package(name="llamaserve", root="engine")
    hidden = ServerSpec(engine="llamacpp", package=package, env={"PYTHONPATH": secret})
    with pytest.raises(ConfigError, match=r"server\.env\.PYTHONPATH"):
        python_env(hidden, "/w")


def test_the_last_start_of_a_log_counts() -> None:
    log = 'x: starting {"pid": 1}\nnoise x: starting {"pid": 9}\nx: starting {"pid": 2}\nx: sta'
    assert last_json_line(log, "x: starting ") == {"pid": 2}


@pytest.mark.parametrize("log", ["", "x: starting {", "x: starting [1]", "x: starting"])
def test_a_start_line_that_is_cut_says_nothing(log: str) -> None:
    assert last_json_line(log, "x: starting ") == {}


@pytest.mark.parametrize(
    ("models", "props", "tokens"),
    [
        ([], {"default_generation_settings": {"n_ctx": 512}}, 512),
        ([{"id": "a", "meta": {"n_ctx": 256}}], None, 256),
        ([{"id": "a", "max_model_len": 4096}, {"id": "b", "max_model_len": 1024}], None, 1024),
        ([{"id": "a", "max_model_len": True, "meta": {"n_ctx": 7}}], {}, 7),
        ([{"id": "a", "max_model_len": 0}], {"default_generation_settings": []}, None),
    ],
)
def test_longest_sequence(models: list[dict[str, Any]], props: Any, tokens: int | None) -> None:
    assert longest_sequence(models, props) == tokens


@settings(max_examples=40)
@given(JSON | SHAPED, JSON)
def test_no_answer_is_too_odd_to_be_read(models: Any, props: Any) -> None:
    entries = served_models(models)
    assert all(isinstance(entry["id"], str) for entry in entries)
    tokens = longest_sequence(entries, props)
    assert tokens is None or tokens > 0
