"""A server spec holds no secret and no value that would fail long after planning."""

from typing import Any

import pytest
from pydantic import ValidationError

from servemap.model.check_server import RESERVED_FIELDS, check_node_env, check_server
from servemap.model.checks import check
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.secret_names import is_secret_option, is_secret_variable
from servemap.model.server_spec import NodeSpec, ServerSpec
from servemap.onnode.checked import SpecError
from servemap.onnode.load_prompts import parse_target
from servemap.onnode.load_spec import RESERVED
from servemap.onnode.redact import REDACTED, redact_variable


def refusal(**keys: Any) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        check_server(ServerSpec.model_validate({"engine": "vllm", **keys}))
    assert error.value.remedy
    return error.value


def accept(**keys: Any) -> None:
    check_server(ServerSpec.model_validate({"engine": "vllm", **keys}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "x"), ("hf_token", "x"), ("OPENAI_API_KEY", "x"), ("AWS_ACCESS_KEY_ID", "x"),
        ("DB_PASSWORD", "x"), ("MY_SECRET", "1"), ("BASIC_AUTH", "x"), ("COOKIE", "x"),
        ("HF_TOKEN", ""), ("VLLM_MAX_NUM_BATCHED_TOKENS", "8192"), ("MAX_TOKENS", "8"),
        ("TOKENIZERS_PARALLELISM", "false"), ("NCCL_DEBUG", "INFO"), ("KEYBOARD", "us"),
        ("MAX_TOKENS", "many"), ("PYTHONPATH", "/w"),
    ],
)  # fmt: skip
def test_what_would_be_hidden_in_a_record_is_refused_in_the_file(name: str, value: str) -> None:
    assert is_secret_variable(name, value) == (redact_variable(name, value) == REDACTED)


def test_a_partition_key_is_no_secret() -> None:
    accept(env={"NCCL_IB_PKEY": "3"})


def test_a_secret_in_the_environment_is_refused_without_telling_it() -> None:
    error = refusal(env={"HF_TOKEN": "s3cr3t"})
    assert error.where == "server.env.HF_TOKEN"
    assert "server.env: { HF_TOKEN: { secret: HF_TOKEN } }" in error.remedy
    assert "s3cr3t" not in str(error)
    accept(env={"HF_TOKEN": {"secret": "HF_TOKEN"}, "OMP_NUM_THREADS": "8"})


def test_a_secret_of_a_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="HF_TOKEN looks like a secret"):
        check_node_env(NodeSpec(id="n", env={"HF_TOKEN": "x"}))
    check_node_env(NodeSpec(id="n", env={"NCCL_DEBUG": "INFO"}))


@pytest.mark.parametrize(
    "name", ["api-key", "api_key", "token", "hf-token", "secret", "password", "ssl-password"]
)
def test_a_secret_among_arguments_is_refused_without_telling_it(name: str) -> None:
    for keys in ({"args": {name: "s3cr3t"}}, {"request": {name: "s3cr3t"}}):
        error = refusal(**keys)
        assert error.where == f"server.{next(iter(keys))}.{name}"
        assert "environment" in error.remedy
        assert "s3cr3t" not in str(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-num-batched-tokens", 8192), ("max_total_tokens", "4096"), ("tokenizer", "/m"),
        ("tokenizer-mode", "auto"), ("stop_token_ids", "1,2"), ("api-key-file", "/run/key"),
        ("skip_special_tokens", False), ("ssl-keyfile", "/k.pem"), ("keep", 4),
    ],
)  # fmt: skip
def test_other_arguments_are_taken(name: str, value: Any) -> None:
    assert not is_secret_option(name, value)
    accept(args={name: value})


@pytest.mark.parametrize(
    "words",
    [["-e", "HF_TOKEN=s3cr3t"], ["--env=HF_TOKEN=s3cr3t"], ["--password", "s3cr3t"]],
    ids=["two words", "one word", "option"],
)
def test_a_secret_for_a_container_is_refused(words: list[str]) -> None:
    error = refusal(container={"image": "i", "args": words})
    assert error.where == "server.container.args"
    assert "s3cr3t" not in str(error)


def test_a_containers_other_arguments_are_taken() -> None:
    accept(container={"image": "i", "args": ["-e", "HF_TOKEN", "--ulimit=memlock=-1"]})


def test_the_load_clients_own_fields_are_refused() -> None:
    assert set(RESERVED) | {"stream_options"} == RESERVED_FIELDS
    for name in RESERVED_FIELDS:
        error = refusal(request={name: 1})
        assert error.where == f"server.request.{name}"
        assert "(value: 1)" in error.what
    accept(request={"ignore_eos": True, "temperature": 0})


BAD_URLS = [
    "https://h:1", "ftp://h", "h:8000", "http://", "http://h:99999", "http://h:x", "http://u:p@h:1",
    "http://u@h:1", "http://h:1?a=b", "http://h:1/#x", "http://h:1/a b", "http://[::1", "",
]  # fmt: skip


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_the_client_refuses_is_refused_at_planning(url: str) -> None:
    with pytest.raises(SpecError):
        parse_target(url, "/v1/completions")
    assert refusal(attach=url).where == "server.attach"


@pytest.mark.parametrize("url", ["http://h", "http://10.0.0.9:8000/v1/", "http://[::1]:80"])
def test_a_plain_url_is_taken(url: str) -> None:
    parse_target(url, "/v1/completions")
    accept(attach=url)


@pytest.mark.parametrize(
    "keys", [{"attach": "http://h:1"}, {"engine": "llamacpp"}], ids=["attached", "no NCCL"]
)
def test_paths_are_required_only_where_a_log_of_nccl_can_show_them(keys: dict[str, Any]) -> None:
    assert refusal(transport={"inter": "NET/IB"}, **keys).where == "server.transport"
    accept(transport={"inter": "NET/IB"})


@pytest.mark.parametrize(
    "required",
    [
        {}, {"inter": "IB"}, {"inter": "SHM"}, {"inter": "NET/"}, {"intra": "NVLink"},
        {"hcas": []}, {"hcas": ["mlx5_0:1"]}, {"gdr": "yes please"}, {"network": "IB"},
        {"gdr": "yes"}, {"gdr": 1}, {"inter": "P2P/IPC"}, {"inter": "P2P/CUMEM"},
    ],
)  # fmt: skip
def test_a_requirement_that_no_log_could_meet_is_refused(required: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ServerSpec.model_validate({"engine": "vllm", "transport": required})


@pytest.mark.parametrize("required", [{"inter": "P2P/MNNVL"}, {"gdr": False}])
def test_a_requirement_that_a_log_may_meet_is_taken(required: dict[str, Any]) -> None:
    accept(transport=required)


def test_credentials_of_a_url_are_not_told() -> None:
    assert "s3cr3t" not in str(refusal(attach="http://user:s3cr3t@h:1"))
    assert "s3cr3t" not in str(refusal(attach="https://user:s3cr3t@h:1"))


@pytest.mark.parametrize("bind", ["", "a b", "h/x", "0.0.0.0;ls", "x\n", "[::]"])
def test_what_cannot_be_bound_is_refused(bind: str) -> None:
    assert repr(bind) in refusal(bind=bind).what


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "fe80::1", "node-1.lan"])
def test_addresses_and_names_can_be_bound(bind: str) -> None:
    accept(bind=bind)


def patch(target: str, root: str, kind: str = "file") -> list[dict[str, str]]:
    return [{"id": "p", "source": "s", "target": target, "root": root, "kind": kind}]


@pytest.mark.parametrize(
    ("target", "root"),
    [
        ("/a/b", "/c"), ("/a/../etc/x", "/a"), ("/ab/x", "/a"), ("/a", "/a"), ("../x", "w"),
        ("w/../../x", "w"), ("", "w"),
    ],
)  # fmt: skip
def test_a_target_outside_its_root_is_refused(target: str, root: str) -> None:
    assert refusal(patches=patch(target, root)).where == "server.patches.p.target"


@pytest.mark.parametrize(
    ("target", "root", "kind"),
    [("/a/b", "/a", "file"), ("/a/x/../b", "/a", "file"), ("/a/", "/a", "folder"),
     ("w/x", "w", "file"), ("/b/x", "/", "file"), ("..x/y", "..x", "file")],
)  # fmt: skip
def test_a_target_inside_its_root_is_taken(target: str, root: str, kind: str) -> None:
    accept(patches=patch(target, root, kind))


def campaign(**keys: Any) -> dict[str, Any]:
    return {
        "run": "r",
        "nodes": [{"id": "n"}],
        "model": {"name": "m", "path": "/m", "context": 100},
        "server": {"engine": "vllm"},
        "cases": [{"id": "c", "isl": 10, "osl": 1, "concurrency": 1}],
        "phases": [{"id": "phase1", "cases": ["c"]}],
        **keys,
    }


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"server": {"engine": "vllm", "args": {"a": "x\0y"}}}, "server.args.a"),
        ({"server": {"engine": "vllm", "args": {"a\0": "x"}}}, "server.args.a\\x00"),
        ({"server": {"engine": "vllm", "env": {"A": "x\0"}}}, "server.env.A"),
        ({"server": {"engine": "vllm", "cwd": "/\0"}}, "server.cwd"),
        ({"model": {"name": "m", "path": "/m\0", "context": 100}}, "model.path"),
        ({"freeze": {"files": ["/a", "/\0"]}}, "freeze.files.1"),
        ({"title": "\ud800"}, "title"),
    ],
)
def test_text_that_no_process_can_be_given_is_refused(keys: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(parse_campaign(campaign(**keys)))
    assert error.value.where == where


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        ({"server": {"engine": "vllm", "env": {"HF_TOKEN": "x"}}}, "server.env.HF_TOKEN"),
        ({"nodes": [{"id": "n", "env": {"HF_TOKEN": "x"}}]}, "nodes.n.env.HF_TOKEN"),
        (
            {
                "variables": [{"id": "k", "keys": ["args"]}],
                "variants": [{"id": "v", "variable": "k", "set": {"args.api-key": "x"}}],
            },
            "variants.v.set.args.api-key",
        ),
    ],
    ids=["server", "node", "variant"],
)
def test_every_place_of_a_campaign_is_looked_at(keys: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(parse_campaign(campaign(**keys)))
    assert error.value.where == where
