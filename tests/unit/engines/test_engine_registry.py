import pytest

from servemap.engines.attached import AttachedServer
from servemap.engines.llamacpp import LlamaCpp
from servemap.engines.registry import get_adapter, get_engine
from servemap.engines.vllm import Vllm
from servemap.model.server_spec import ModelSpec, ServerSpec, Settings, Topology

MODEL = ModelSpec(name="m", path="/m", context=4096)


@pytest.mark.parametrize("name", ["llamacpp", "vllm", "sglang"])
def test_each_engine_of_a_campaign_has_its_adapter(name: str) -> None:
    server = ServerSpec.model_validate({"engine": name})
    assert get_engine(name).name == name
    assert get_adapter(server) is get_engine(name)
    attached = get_adapter(server.model_copy(update={"attach": "http://10.0.0.1:8000"}))
    assert isinstance(attached, AttachedServer)
    assert attached.name == name


def test_an_attached_server_is_read_only() -> None:
    adapter = AttachedServer(Vllm())
    endpoints = adapter.endpoints("http://10.0.0.1:8000/v1")
    assert endpoints.completions == "http://10.0.0.1:8000/v1/completions"
    assert endpoints.metrics == "http://10.0.0.1:8000/metrics"
    assert (endpoints.profile_start, endpoints.profile_stop) == (None, None)
    assert not hasattr(adapter, "argv")
    assert not adapter.capabilities.torch_profile.available
    info = AttachedServer(LlamaCpp()).endpoints("http://10.0.0.1:8000").info
    assert info == {"props": "http://10.0.0.1:8000/props"}


def test_only_the_prefix_cache_of_an_attached_server_may_be_emptied() -> None:
    adapter = AttachedServer(Vllm())
    flush = adapter.endpoints("http://10.0.0.1:8000/v1").cache_flush
    assert flush == "http://10.0.0.1:8000/reset_prefix_cache?reset_external=true"
    # How it was started is not known, so the campaign's variables say nothing.
    assert adapter.cache_flush({"VLLM_SERVER_DEV_MODE": "0"}).available
    assert not AttachedServer(LlamaCpp()).cache_flush({}).available


def test_read_back_of_an_attached_server_needs_no_log() -> None:
    models = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}
    log = "INFO [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=2048."
    effective = AttachedServer(Vllm()).read_back(log, models, {"version": {"version": "0.32.0"}})
    assert effective.model_names == ("m",)
    assert effective.context == 32768
    assert effective.engine_version == "0.32.0"
    assert effective.settings == {}
    assert AttachedServer(Vllm()).memory("Model loading took 1.0 GiB") == ()


def test_of_an_attached_server_only_what_is_stated_is_asked() -> None:
    server = ServerSpec(engine="vllm", settings=Settings(max_active=4), topology=Topology(tp=2))
    assert AttachedServer(Vllm()).asked(server, MODEL) == {"max_active": 4, "tp": 2}
