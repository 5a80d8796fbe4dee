import pytest

from servemap.engines.attached import AttachedServer
from servemap.engines.llamacpp import LlamaCpp
from servemap.engines.registry import get_adapter, get_engine
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec


def test_llamacpp_can_be_started() -> None:
    assert isinstance(get_engine("llamacpp"), LlamaCpp)
    assert isinstance(get_adapter(ServerSpec(engine="llamacpp")), LlamaCpp)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_others_can_be_attached_to_but_not_started(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} and attach to it, but not start it"):
        get_engine(name)
    server = ServerSpec.model_validate({"engine": name, "attach": "http://10.0.0.1:8000"})
    adapter = get_adapter(server)
    assert isinstance(adapter, AttachedServer)
    assert adapter.name == name


def test_an_attached_server_is_read_only() -> None:
    adapter = AttachedServer("vllm")
    endpoints = adapter.endpoints("http://10.0.0.1:8000/v1")
    assert endpoints.completions == "http://10.0.0.1:8000/v1/completions"
    assert endpoints.metrics == "http://10.0.0.1:8000/metrics"
    assert (endpoints.props, endpoints.cache_flush, endpoints.profile_start) == (None, None, None)
    assert not hasattr(adapter, "argv")
    assert not adapter.capabilities.torch_profile.available
    props = AttachedServer("llamacpp").endpoints("http://10.0.0.1:8000").props
    assert props == "http://10.0.0.1:8000/props"


def test_read_back_of_an_attached_server() -> None:
    models = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}
    effective = AttachedServer("vllm").read_back("", models)
    assert effective.model_names == ("m",)
    assert effective.context == 32768
    assert effective.engine_version is None
