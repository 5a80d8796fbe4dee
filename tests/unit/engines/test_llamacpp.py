from typing import Any

import pytest

from servemap.engines.base import Placement
from servemap.engines.llamacpp import LlamaCpp
from servemap.model.errors import ConfigError
from servemap.model.server_spec import (
    Container,
    ModelSpec,
    ServerSpec,
    Settings,
    Topology,
)

ENGINE = LlamaCpp()
MODEL = ModelSpec(name="tiny", path=".demo/tiny.gguf", context=8192)


def argv(server: ServerSpec, placement: Placement | None = None) -> list[str]:
    given = placement or Placement("n1")
    return ENGINE.argv(server, MODEL, given, python="/py", workdir="/w")


def test_argv() -> None:
    server = ServerSpec(
        engine="llamacpp",
        bind="10.0.0.1",
        port=18081,
        settings=Settings(context=24576, max_active=64, max_batched_tokens=256, prefix_cache=False),
        args={"n_threads": 1},
    )
    assert argv(server) == [
        "/py", "-m", "llamaserve", "--model", "/w/.demo/tiny.gguf", "--alias", "tiny",
        "--host", "10.0.0.1", "--port", "18081", "--context", "24576", "--max-active", "64",
        "--n-batch", "256", "--no-prefix-cache", "--n-threads", "1",
    ]  # fmt: skip


def test_ranks_know_each_other() -> None:
    server = ServerSpec(engine="llamacpp", nodes=["a", "b"])
    words = argv(server, Placement("b", 1, 2, "10.0.0.2", "10.0.0.1", 29511))
    at = words.index("--rank")
    assert words[at : at + 6] == ["--rank", "1", "--ranks", "2", "--master", "10.0.0.1:29511"]
    assert "--rank" not in argv(server, Placement("a"))


def test_interpreter_of_the_spec_and_context_of_the_model() -> None:
    words = argv(ServerSpec(engine="llamacpp", python="/venv/bin/python"))
    assert words[0] == "/venv/bin/python"
    assert words[words.index("--context") + 1] == "8192"
    assert (
        argv(ServerSpec(engine="llamacpp", python=".venv/bin/python"))[0] == "/w/.venv/bin/python"
    )
    assert argv(ServerSpec(engine="llamacpp", python="python3.12"))[0] == "python3.12"


def test_in_a_container_the_paths_and_the_interpreter_are_those_inside() -> None:
    container = Container(image="x", model_path="/models/tiny.gguf")
    words = argv(ServerSpec(engine="llamacpp", container=container))
    assert words[:5] == ["python3", "-m", "llamaserve", "--model", "/models/tiny.gguf"]
    same = argv(ServerSpec(engine="llamacpp", python="/v/py", container=Container(image="x")))
    assert (same[0], same[4]) == ("/v/py", "/w/.demo/tiny.gguf")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"topology": Topology(tp=2)}, "server.topology.tp"),
        ({"settings": Settings(kv_dtype="fp8")}, "server.settings.kv_dtype"),
        ({"args": {"max-active": 3}}, "server.args.max-active"),
        ({"args": {"rank": 1}}, "server.args.rank"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_key(change: dict[str, Any], key: str) -> None:
    server = ServerSpec(engine="llamacpp").model_copy(update=change)
    with pytest.raises(ConfigError) as error:
        argv(server)
    assert error.value.where == key


def test_endpoints_are_absolute() -> None:
    endpoints = ENGINE.endpoints("http://127.0.0.1:18080/")
    assert endpoints.completions == "http://127.0.0.1:18080/v1/completions"
    assert endpoints.metrics == "http://127.0.0.1:18080/metrics"
    assert endpoints.profile_start is None
    assert not ENGINE.capabilities.torch_profile.available
    assert "Kineto" in ENGINE.capabilities.torch_profile.reason


def test_read_back() -> None:
    log = (
        'llamaserve: starting {"module": "/w/engine/llamaserve/__main__.py", "pid": 5, '
        '"settings": {"n_ubatch": 64}, "xllamacpp": "2026.10.11549"}\n'
        "0.00.000.239 I srv          init: initializing ...\n"
    )
    models = {"data": [{"id": "tiny", "meta": {"n_ctx": 8192}}]}
    props = {"default_generation_settings": {"n_ctx": 4096}}
    effective = ENGINE.read_back(log, models, {"props": props})
    assert effective.engine_version == "xllamacpp 2026.10.11549"
    assert effective.model_names == ("tiny",)
    assert effective.context == 4096
    assert effective.module_path == "/w/engine/llamaserve/__main__.py"
    assert effective.settings == {"n_ubatch": 64}


@pytest.mark.parametrize("garbage", [None, [], "x", {"data": [1, {"id": 3}]}, {"data": {}}])
def test_read_back_of_garbage_is_empty(garbage: Any) -> None:
    effective = ENGINE.read_back(
        'llamaserve: starting {"xllamacpp": 1}', garbage, {"props": garbage}
    )
    assert effective.engine_version is None
    assert effective.model_names == ()
    assert effective.context is None
    assert effective.module_path is None
    assert effective.settings == {}
