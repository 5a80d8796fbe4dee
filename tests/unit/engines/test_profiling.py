"""What a server for captures is started with, and that no server of results is."""

import json
from typing import Any

import pytest

from servemap.engines.profiling import FOLDER, PROFILERS, Asked, refuse_profiler
from servemap.engines.registry import ENGINES
from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec
from tests.fakes import campaign


def test_every_engine_that_offers_profiles_has_a_profiler() -> None:
    offering = {name for name, one in ENGINES.items() if one.capabilities.torch_profile.available}
    assert offering == set(PROFILERS)


def test_vllm_is_started_with_its_profiler_and_ends_by_itself() -> None:
    ((key, said),) = PROFILERS["vllm"].start_with(7, FOLDER).items()
    assert key == "args.profiler-config"
    assert json.loads(said) == {
        "profiler": "torch",
        "torch_profiler_dir": FOLDER,
        "ignore_frontend": True,
        "max_iterations": 7,
    }


def test_what_engines_are_told_with_the_call() -> None:
    asked = Asked(7, FOLDER, "n")
    assert PROFILERS["vllm"].body(asked) == {"max_iterations": 7, "profile_prefix": "n"}
    # Whole steps: 1 is the next one, however many there were.
    assert PROFILERS["sglang"].body(asked) == {
        "output_dir": FOLDER,
        "num_steps": 7,
        "activities": ["CPU", "GPU"],
        "profile_prefix": "n",
        "start_step": 1,
    }
    staged = PROFILERS["sglang"].body(asked._replace(stage="decode"))
    assert staged["profile_by_stage"]
    assert "start_step" not in staged, "it would not wait for a stage"


@pytest.mark.parametrize(
    ("engine", "sizes", "name", "rank"),
    [
        ("vllm", {"tp": 2}, "n_rank1.1796012580.pt.trace.json.gz", 1),
        ("vllm", {"tp": 2}, "rank0.1796012580.pt.trace.json.gz", 0),
        ("vllm", {"tp": 4, "pp": 2}, "n_dp0_pp1_tp3_dcp0_ep0_rank7.17.pt.trace.json.gz", 7),
        # With data parallelism each copy counts its own from 0.
        ("vllm", {"tp": 4, "dp": 2}, "n_dp1_pp0_tp2_dcp0_ep6_rank2.17.pt.trace.json.gz", 6),
        ("vllm", {"tp": 2}, "host_1234.1796012580.pt.trace.json.gz", None),
        ("sglang", {"tp": 8}, "n-1796012580.5-TP-3.trace.json.gz", 3),
        ("sglang", {"tp": 8, "pp": 2}, "n-17.5-TP-3-PP-1-DECODE.trace.json.gz", 11),
        ("sglang", {"tp": 8, "dp": 2}, "n-17.5-TP-7-DP-1-EP-7.trace.json.gz", 7),
        ("sglang", {"tp": 2}, "merged-17.5.trace.json.gz", None),
    ],
)
def test_the_rank_of_a_trace_by_its_name(
    engine: str, sizes: dict[str, int], name: str, rank: int | None
) -> None:
    server = ServerSpec.model_validate({"engine": engine, "topology": sizes})
    assert PROFILERS[engine].rank_of(name, server) == rank


def test_how_many_processes_write_a_trace() -> None:
    sizes = {"tp": 4, "pp": 2, "dp": 2}
    vllm = ServerSpec.model_validate({"engine": "vllm", "topology": sizes})
    sglang = ServerSpec.model_validate({"engine": "sglang", "topology": sizes})
    assert (PROFILERS["vllm"].ranks(vllm), PROFILERS["sglang"].ranks(sglang)) == (16, 8)


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
