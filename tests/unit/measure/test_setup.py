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
