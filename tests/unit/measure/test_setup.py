"""What is refused when a campaign is read: a dry run does not plan what cannot be started."""

from typing import Any

import pytest

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError
from tests.fakes import campaign

ALONE: dict[str, Any] = {"variables": [], "variants": [{"id": "baseline"}]}


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ({"engine": "llamacpp", "topology": {"tp": 2}}, "server.topology.tp"),
        ({"engine": "vllm", "args": {"port": 1}}, "server.args.port"),
        ({"engine": "sglang", "args": {"tp": 2}}, "server.args.tp"),
        ({"engine": "vllm", "settings": {"context": 64}, "args": {"max_model_len": 64}},
         "server.args.max_model_len"),
    ],
)  # fmt: skip
def test_a_server_that_has_no_command_is_refused(server: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_context(campaign(server=server, **ALONE))
    assert error.value.where == where


def test_so_is_a_variant_that_nobody_asked_to_start_yet() -> None:
    with pytest.raises(ConfigError, match="is set from another key"):
        load_context(
            campaign(
                server={"engine": "vllm", "settings": {"max_active": 4}},
                variables=[{"id": "slots", "keys": ["args.max-num-seqs"]}],
                variants=[
                    {"id": "baseline"},
                    {"id": "few", "variable": "slots", "set": {"args.max-num-seqs": 2}},
                ],
            )
        )


def test_of_an_attached_server_no_command_is_needed() -> None:
    server = {"engine": "vllm", "attach": "http://127.0.0.1:9", "args": {"port": 1}}
    assert load_context(campaign(server=server, **ALONE)).server("baseline").attach


FLUSH: dict[str, Any] = {"id": "c", "isl": 64, "osl": 8, "concurrency": 1, "cache": "flush"}


@pytest.mark.parametrize(
    ("server", "node", "says"),
    [
        ({"engine": "llamacpp"}, {}, "no call that empties the prefix cache of all slots"),
        (
            {"engine": "llamacpp", "attach": "http://127.0.0.1:1"},
            {},
            "no call that empties the prefix cache of all slots",
        ),
        (
            {"engine": "vllm", "env": {"VLLM_SERVER_DEV_MODE": "0"}},
            {},
            "only with VLLM_SERVER_DEV_MODE=1, and it is set to '0'",
        ),
        ({"engine": "vllm"}, {"VLLM_SERVER_DEV_MODE": " 00"}, "only with VLLM_SERVER_DEV_MODE=1"),
    ],
)
def test_a_cache_that_nothing_empties_is_refused_when_it_is_planned(
    server: dict[str, Any], node: dict[str, str], says: str
) -> None:
    nodes = [{"id": "n1", "env": node}]
    with pytest.raises(ConfigError, match=says) as error:
        load_context(campaign(server=server, nodes=nodes, cases=[FLUSH], **ALONE))
    assert error.value.where == "cases.c.cache"
    load_context(campaign(server=server, nodes=nodes, cases=[{**FLUSH, "cache": "keep"}], **ALONE))


@pytest.mark.parametrize(
    "server",
    [
        {"engine": "sglang"},
        {"engine": "vllm"},
        {"engine": "vllm", "env": {"VLLM_SERVER_DEV_MODE": "1"}},
        {"engine": "vllm", "attach": "http://127.0.0.1:1/v1"},
    ],
)
def test_where_there_is_a_call_a_case_may_ask_for_it(server: dict[str, Any]) -> None:
    context = load_context(campaign(server=server, cases=[FLUSH], **ALONE))
    assert context.plan.cases["c"].cache == "flush"


def test_only_what_is_planned_together_must_fit() -> None:
    """The variant whose server has no call is in no phase with the case that needs one."""
    keep = {**FLUSH, "id": "kept", "cache": "keep"}
    load_context(
        campaign(
            server={"engine": "vllm"},
            variables=[{"id": "mode", "keys": ["env.VLLM_SERVER_DEV_MODE"]}],
            variants=[
                {"id": "baseline"},
                {"id": "plain", "variable": "mode", "set": {"env.VLLM_SERVER_DEV_MODE": "0"}},
            ],
            cases=[FLUSH, keep],
            phases=[
                {"id": "phase1", "variants": ["baseline"], "cases": ["c", "kept"]},
                {"id": "phase2", "variants": ["plain"], "cases": ["kept"]},
            ],
        )
    )
