"""What a server for captures is started with, and that no server of results is."""

import json
from typing import Any

import pytest

from servemap.engines.profiling import FOLDER, PROFILERS, refuse_profiler
from servemap.engines.registry import ENGINES
from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec
from tests.fakes import campaign


def test_every_engine_that_offers_profiles_has_a_profiler() -> None:
    offering = {name for name, one in ENGINES.items() if one.capabilities.torch_profile.available}
    assert offering == set(PROFILERS)


def test_vllm_is_started_with_its_profiler_and_ends_by_itself() -> None:
    ((key, said),) = PROFILERS["vllm"].start_with(7).items()
    assert key == "args.profiler-config"
    assert json.loads(said) == {
        "profiler": "torch",
        "torch_profiler_dir": FOLDER,
        "ignore_frontend": True,
        "max_iterations": 7,
    }


def test_sglang_is_told_folder_and_steps_with_the_call() -> None:
    assert PROFILERS["sglang"].body(7) == {
        "output_dir": FOLDER,
        "num_steps": 7,
        "activities": ["CPU", "GPU"],
    }


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ({"args": {"profiler-config": "{}"}}, "server.args.profiler-config"),
        ({"args": {"profiler_config": "{}"}}, "server.args.profiler_config"),
        ({"args": {"profiler-config.profiler": "torch"}}, "server.args.profiler-config.profiler"),
        ({"env": {"VLLM_TORCH_PROFILER_DIR": "/t"}}, "server.env.VLLM_TORCH_PROFILER_DIR"),
    ],
)
def test_a_campaign_cannot_have_its_results_from_a_profiled_server(
    server: dict[str, Any], where: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_context(campaign(server={"engine": "vllm", "port": 18999, **server}))
    assert caught.value.where == where
    assert "captures" in caught.value.remedy


def test_other_arguments_and_engines_are_left_alone() -> None:
    refuse_profiler(ServerSpec(engine="vllm", args={"dtype": "float32"}))
    refuse_profiler(ServerSpec(engine="llamacpp", args={"profiler-config": "{}"}))
    refuse_profiler(ServerSpec(engine="sglang", env={"SGLANG_TORCH_PROFILER_DIR": "/t"}))
