"""Requirements of baselines that cannot be met by any measurement are refused, naming the key."""

from typing import Any

import pytest

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from tests.fakes import campaign

COLLECTIVE = {"id": "ar", "kind": "collective", "ranks_per_node": 2, "sizes": ["8K", "64M"],
              "operations": ["all_reduce"]}  # fmt: skip
NET = {"id": "net", "kind": "tcp"}
FLOOR = {"id": "ar", "operation": "all_reduce", "size": "64M", "floor_gb_s": 40}


def loaded(*required: dict[str, Any], engine: str = "vllm", **keys: Any) -> Any:
    server = {"engine": engine, "port": 18999, "python": "/opt/python",
              "transport": {"baselines": list(required), **keys}}  # fmt: skip
    return load_context(campaign(server=server, baselines=[NET, COLLECTIVE]))


@pytest.mark.parametrize(
    ("required", "said"),
    [
        ({"id": "other"}, "there is no baseline 'other'"),
        ({"id": "ar", "floor_gb_s": 1}, "the floor of a collective is of one operation and size"),
        ({**FLOOR, "id": "net"}, "net is of kind tcp, which has no operations"),
        ({**FLOOR, "size": "1G"}, "ar does not measure all_reduce at 1G"),
        ({**FLOOR, "operation": "all_gather"}, "ar does not measure all_gather at 64M"),
        ({"id": "ar", "operation": "all_reduce", "floor_gb_s": 1}, "belong together"),
        ({"id": "ar", "operation": "all_reduce", "size": "64M"}, "belong together"),
    ],
)
def test_what_no_measurement_can_meet_is_refused(required: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(required)
    assert said in str(caught.value)
    assert "server.transport.baselines" in str(caught.value)


@pytest.mark.parametrize(
    "pair", [({"id": "net"}, {"id": "net", "floor_gb_s": 1}), (FLOOR, {**FLOOR, "size": "65536K"})]
)
def test_one_figure_is_required_once(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="twice for the same figure"):
        loaded(*pair)
    assert loaded(FLOOR, {**FLOOR, "size": "8K"}).plan.required_baselines("baseline") == ["ar"] * 2


def test_a_size_may_be_written_either_way() -> None:
    assert loaded({**FLOOR, "size": 64 << 20}).plan.required_baselines("baseline") == ["ar"]


def test_what_is_required_is_planned_though_no_phase_names_it() -> None:
    plan = loaded(FLOOR).plan
    assert plan.items("phase1").baselines == ["net", "ar"]
    keys = list(plan.sequence)
    assert keys.index(("baseline", "ar")) < keys.index(("launch", "baseline"))


def test_an_engine_without_nccl_may_require_baselines_but_no_path() -> None:
    assert loaded({"id": "net"}, engine="llamacpp").plan.required_baselines("few") == ["net"]
    with pytest.raises(ConfigError, match="llamacpp does not use NCCL"):
        loaded({"id": "net"}, engine="llamacpp", inter="NET/IB")


def test_a_spec_without_required_baselines_is_what_it_was() -> None:
    server = {"engine": "vllm", "port": 18999, "transport": {"inter": "NET/IB"}}
    spec = load_context(campaign(server=server)).plan.server_spec("baseline")
    assert spec["server"]["transport"] == {
        "inter": "NET/IB", "intra": None, "gdr": None, "hcas": None,
    }  # fmt: skip


def test_mpirun_in_a_container_reaches_no_other_node() -> None:
    server = {"engine": "vllm", "port": 18999, "container": {"image": "img"}}
    nodes = [{"id": "n1", "address": "10.0.0.1"},
             {"id": "n2", "role": "worker", "address": "10.0.0.2"}]  # fmt: skip
    across = {**COLLECTIVE, "tool": "nccl-tests"}
    with pytest.raises(ConfigError, match="cannot start ranks in those of other nodes"):
        load_context(campaign(server=server, nodes=nodes, baselines=[NET, across]))
    bare = {**across, "python": "/usr/bin/python3"}
    assert load_context(campaign(server=server, nodes=nodes, baselines=[NET, bare]))
