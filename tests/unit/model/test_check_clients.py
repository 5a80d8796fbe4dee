"""What a campaign may say of load clients of others; specs without them stay what they were."""

import hashlib
from typing import Any

import pytest

from servemap.model.canon import canonical_json
from servemap.model.checks import check
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.plan import Plan
from tests.fakes import campaign

CASE = {"id": "c", "isl": 64, "osl": 8, "concurrency": 2}


def checked(clients: dict[str, Any] | None = None, node: str = "local", **case: Any) -> Plan:
    where = {"id": "n1"} if node == "local" else {"id": "n1", "transport": "ssh", "user": "u"}
    described = {"vllm-bench": {"python": "/v/bin/python"}} if clients is None else clients
    keys = {"clients": described, "cases": [{**CASE, **case}], "nodes": [where]}
    if node != "local":
        keys["model"] = {**campaign()["model"], "path": "/m/model.gguf"}
        keys["server"] = {**campaign()["server"], "python": "/e/bin/python"}
    parsed = parse_campaign(campaign(**keys))
    check(parsed)
    return Plan(parsed)


def refusal(**keys: Any) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        checked(**keys)
    return error.value


def test_a_case_without_a_client_keeps_its_spec() -> None:
    """Its digest, as this campaign had it before there were clients: nothing measured reruns."""
    spec = checked(clients={}).spec_data("case", "baseline", "c")
    assert "client" not in spec["case"]
    assert checked().spec("case", "baseline", "c") == canonical_json(spec)
    assert checked(client="servemap").spec("case", "baseline", "c") == canonical_json(spec)
    case = canonical_json(spec["case"])
    assert hashlib.sha256(case.encode()).hexdigest() == DIGEST, case


DIGEST = "a2d4f4a909eceee3aabb20b7a0b7043bace4e3a3d370b5e5bac15830063c469d"


def test_a_case_with_a_client_has_all_that_is_said_of_it() -> None:
    spec = checked(client="vllm-bench").spec_data("case", "baseline", "c")
    assert spec["case"]["client"] == {
        "name": "vllm-bench",
        "python": "/v/bin/python",
        "tokenizer": None,
        "env": {},
        "args": [],
    }


def test_what_is_said_of_a_client_changes_the_cases_that_name_it_and_no_others() -> None:
    def specs(python: str) -> list[str]:
        clients = {"vllm-bench": {"python": python}}
        plans = [checked(clients, client=name) for name in ("servemap", "vllm-bench")]
        return [plan.spec_sha256("case", "baseline", "c") for plan in plans]

    before, after = specs("/a"), specs("/b")
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_client_that_is_not_described() -> None:
    said = refusal(clients={}, client="aiperf")
    assert said.where == "cases.c.client"
    assert "clients: { aiperf: { python: PATH } }" in said.remedy


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("min_window_s", 3, "num_prompts"),
        ("fallback", {"isl": 32}, "client servemap"),
        ("request_timeout_s", 10, "case_timeout_s"),
    ],
)
def test_what_a_client_cannot_do(key: str, value: Any, remedy: str) -> None:
    said = refusal(client="vllm-bench", **{key: value})
    assert said.where == f"cases.c.{key}"
    assert remedy in said.remedy
    checked(**{key: value})


def test_aiperf_knows_a_limit_for_requests() -> None:
    checked(clients={"aiperf": {"python": "p"}}, client="aiperf", request_timeout_s=10)


@pytest.mark.parametrize(
    ("client", "where"),
    [
        ({"args": ["--header", "x", "--api-key", "abc"]}, "clients.vllm-bench.args"),
        ({"args": ["--api-key=abc"]}, "clients.vllm-bench.args"),
        ({"env": {"OPENAI_API_KEY": "abc"}}, "clients.vllm-bench.env.OPENAI_API_KEY"),
        ({"args": ["--num-prompts", "5"]}, "clients.vllm-bench.args"),
        ({"args": ["--seed=5"]}, "clients.vllm-bench.args"),
    ],
)
def test_what_may_not_be_given(client: dict[str, Any], where: str) -> None:
    said = refusal(clients={"vllm-bench": {"python": "p", **client}})
    assert said.where == where
    assert "abc" not in str(said), "what may be a secret is not shown"


def test_switches_of_a_client_may_be_given() -> None:
    checked(clients={"vllm-bench": {"python": "p", "args": ["--num-warmups", "4"]}})


@pytest.mark.parametrize("key", ["python", "tokenizer"])
def test_paths_on_another_machine_are_absolute(key: str) -> None:
    client = {"python": "/p", "tokenizer": "/t", key: "here"}
    assert refusal(node="ssh", clients={"aiperf": client}).where == f"clients.aiperf.{key}"
    checked(node="ssh", clients={"aiperf": {"python": "/p"}})


def test_a_client_that_servemap_does_not_know() -> None:
    with pytest.raises(ConfigError, match="guidellm"):
        checked(clients={"guidellm": {"python": "p"}})
    error = refusal(client="guidellm")
    assert error.where == "configuration, key cases.c.client"
    assert "must be 'servemap', 'vllm-bench', 'sglang-bench' or 'aiperf'" in error.what


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("vllm-bench", "--max-conc"),
        ("vllm-bench", "--max_concurrency"),
        ("vllm-bench", "--num_prom=3"),
        ("sglang-bench", "--random-in"),
        ("aiperf", "--num-requests"),
        ("aiperf", "--request_count=9"),
        ("aiperf", "-u"),
        ("aiperf", "-mother"),
        ("aiperf", "--synthetic-input-tokens-mean"),
    ],
)
def test_an_option_of_ours_is_refused_however_it_is_spelt(name: str, word: str) -> None:
    described = {name: {"python": "/v/bin/python", "args": [word, "3"]}}
    assert "is given by servemap itself" in refusal(clients=described, client=name).what


@pytest.mark.parametrize(
    ("name", "word"), [("aiperf", "--stream"), ("vllm-bench", "--goodput"), ("vllm-bench", "-1")]
)
def test_other_options_are_the_campaigns(name: str, word: str) -> None:
    checked({name: {"python": "/v/bin/python", "args": [word, "3"]}}, client=name)
