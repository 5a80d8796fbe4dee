"""Rules that join several keys: what does not fit together is refused before anything starts."""

import re
from pathlib import Path
from typing import Any

import pytest

from servemap.model.campaign import Campaign
from servemap.model.checks import RESERVED_NAMES, check
from servemap.model.errors import ConfigError
from servemap.model.load import assemble, parse_campaign, read_yaml

ROOT = Path(__file__).parents[3]


def campaign(**keys: Any) -> Campaign:
    """A small campaign with two nodes, a variable and three variants; `keys` replace its own."""
    base: dict[str, Any] = {
        "run": "r",
        "nodes": [{"id": "n1"}, {"id": "n2", "role": "worker"}],
        "model": {"name": "m", "path": "/m", "context": 4096},
        "scale": {"tokens_per_k": 1000},
        "server": {"engine": "vllm", "args": {"a": 1}, "settings": {"max_active": 4}},
        "variables": [{"id": "batch", "keys": ["settings.max_active", "args", "topology"]}],
        "variants": [
            {"id": "baseline"},
            {"id": "small", "variable": "batch", "set": {"settings.max_active": 2}},
            {"id": "flag", "variable": "batch", "set": {"args.new": True, "topology.tp": 2}},
        ],
        "cases": [
            {"id": "one", "isl": "4K", "osl": 96, "concurrency": 1},
            {
                "id": "mix",
                "kind": "mixed",
                "background": {"isl": 10, "osl": 10, "concurrency": 2},
                "inject": {"isl": "2K", "osl": 1, "after_s": 1},
            },
        ],
        "baselines": [{"id": "net", "kind": "tcp"}],
        "phases": [
            {"id": "phase0", "baselines": ["net"]},
            {"id": "phase1", "requires": ["phase0"], "cases": ["one", "mix"]},
        ],
    }
    return parse_campaign({**base, **keys})


def test_a_sound_campaign_passes() -> None:
    check(campaign())


FIXED = {"isl": 1, "osl": 1, "concurrency": 1}
PHASE = {"id": "phase1", "cases": ["one"]}


@pytest.mark.parametrize(
    ("keys", "says", "where"),
    [
        pytest.param(
            {"cases": [{"id": "one", **FIXED}, {"id": "one", **FIXED}]},
            "id 'one' is used 2 times",
            "cases.one",
            id="duplicate case",
        ),
        pytest.param(
            {"variants": [{"id": "b"}, {"id": "b"}]},
            "id 'b' is used 2 times",
            "variants.b",
            id="duplicate variant",
        ),
        pytest.param(
            {"nodes": [{"id": "n1"}, {"id": "n1", "role": "worker"}]},
            "id 'n1' is used 2 times",
            "nodes.n1",
            id="duplicate node",
        ),
        pytest.param(
            {"phases": [PHASE, PHASE]},
            "id 'phase1' is used 2 times",
            "phases.phase1",
            id="duplicate phase",
        ),
        pytest.param(
            {"variables": [{"id": "batch", "keys": ["args"]}] * 2},
            "id 'batch' is used 2 times",
            "variables.batch",
            id="duplicate variable",
        ),
        pytest.param(
            {"baselines": [{"id": "net", "kind": "tcp"}] * 2},
            "id 'net' is used 2 times",
            "baselines.net",
            id="duplicate baseline",
        ),
        pytest.param(
            {"nodes": [{"id": "n1", "role": "worker"}]},
            "0 nodes have the role head",
            "nodes",
            id="no head",
        ),
        pytest.param(
            {"nodes": [{"id": "n1"}, {"id": "n2"}]},
            "2 nodes have the role head",
            "nodes",
            id="two heads",
        ),
        pytest.param(
            {
                "nodes": [
                    {"id": "n1", "address": "Node.example"},
                    {"id": "n2", "role": "worker", "address": "node.example"},
                ]
            },
            "nodes 'n1' and 'n2' have the address node.example",
            "nodes.n2.address",
            id="one address twice",
        ),
        pytest.param(
            {
                "model": {"name": "m", "path": "/m", "context": 4096},
                "nodes": [
                    {"id": "n1", "address": "10.0.0.1", "host": "h", "transport": "ssh"},
                    {
                        "id": "n2",
                        "address": "10.0.0.2",
                        "host": "h",
                        "transport": "ssh",
                        "role": "worker",
                    },
                ],
            },
            "nodes 'n1' and 'n2' have the same way by ssh, h port 22",
            "nodes.n2.host",
            id="one way twice",
        ),
        pytest.param(
            {"nodes": [{"id": "n1", "python": "/usr/bin/python3.8"}]},
            "python is for ssh, and the node is reached as local",
            "nodes.n1.python",
            id="interpreter of the agent on a local node",
        ),
        pytest.param(
            {
                "nodes": [
                    {"id": "n1", "address": "10.0.0.1"},
                    {"id": "n2", "role": "worker", "address": "10.0.0.2"},
                ],
                "server": {"engine": "vllm", "nodes": ["n1", "n2"], "port": 29500},
            },
            "clients and ranks would meet on the same port of the head, 29500",
            "server.master_port",
            id="ports that collide",
        ),
        pytest.param(
            {"server": {"engine": "vllm", "nodes": ["n3"]}},
            "there is no node 'n3'",
            "server.nodes",
            id="unknown node",
        ),
        pytest.param(
            {"cases": [{"id": "one", "isl": "4K", "osl": 97, "concurrency": 1}]},
            "ISL 4K + OSL 97 is 4097 tokens, more than the model's context 4096",
            "cases.one.isl",
            id="too long",
        ),
        pytest.param(
            {"cases": [{"id": "one", **FIXED, "fallback": {"isl": "5K"}}]},
            "ISL 5K + OSL 1 is 5001 tokens",
            "cases.one.fallback.isl",
            id="fallback too long",
        ),
        pytest.param(
            {
                "cases": [
                    {
                        "id": "mix",
                        "kind": "mixed",
                        "background": FIXED,
                        "inject": {"isl": "4K", "osl": 200, "after_s": 1},
                    }
                ]
            },
            "is 4200 tokens",
            "cases.mix.inject.isl",
            id="injection too long",
        ),
        pytest.param(
            {
                "cases": [
                    {
                        "id": "mix",
                        "kind": "mixed",
                        "background": {**FIXED, "isl": "5K"},
                        "inject": {"isl": 1, "osl": 1, "after_s": 1},
                    }
                ]
            },
            "is 5001 tokens",
            "cases.mix.background.isl",
            id="background too long",
        ),
        pytest.param(
            {"phases": [{"id": "phase1", "requires": []}]},
            "no phase has a case, a baseline or a capture",
            "phases",
            id="empty matrix",
        ),
        pytest.param(
            {"phases": [{"id": "phase1", "cases": ["two"]}]},
            "there is no case 'two'",
            "phases.phase1.cases",
            id="unknown case",
        ),
        pytest.param(
            {"phases": [{**PHASE, "variants": ["none"]}]},
            "there is no variant or grid 'none'",
            "phases.phase1.variants",
            id="unknown variant",
        ),
        pytest.param(
            {"phases": [{**PHASE, "baselines": ["none"]}]},
            "there is no baseline 'none'",
            "phases.phase1.baselines",
            id="unknown baseline",
        ),
        pytest.param(
            {"phases": [{**PHASE, "requires": ["phase7"]}]},
            "there is no phase 'phase7'",
            "phases.phase1.requires",
            id="unknown phase",
        ),
        pytest.param(
            {"phases": [{**PHASE, "captures": [{"case": "none"}]}]},
            "there is no case 'none'",
            "phases.phase1.captures",
            id="unknown captured case",
        ),
        pytest.param(
            {"phases": [{**PHASE, "id": "report"}]},
            "phase 'report' has the name of a rule",
            "phases.report",
            id="phase named like a rule",
        ),
        pytest.param(
            {"phases": [{**PHASE, "requires": ["b"]}, {"id": "b", "requires": ["phase1"]}]},
            "phases require each other: phase1 -> b -> phase1",
            "phases.phase1.requires",
            id="circle of phases",
        ),
        pytest.param(
            {"variants": [{"id": "v", "variable": "none", "set": {"args.a": 2}}]},
            "there is no variable 'none'",
            "variants.v",
            id="unknown variable",
        ),
        pytest.param(
            {"variants": [{"id": "v", "set": {"args.a": 2}}]},
            "sets args.a without naming a variable",
            "variants.v.variable",
            id="no variable",
        ),
        pytest.param(
            {"variants": [{"id": "v", "variable": "batch", "set": {"args.a": 1}}]},
            "is the same as the server spec",
            "variants.v.set",
            id="changes nothing",
        ),
        pytest.param(
            {"variants": [{"id": "v", "variable": "batch", "set": {"args.a": 2, "port": 1}}]},
            "changes port, which is more than its variable 'batch'",
            "variants.v.set",
            id="changes more",
        ),
        pytest.param(
            {
                "variables": [{"id": "batch", "keys": ["settings.max_a"]}],
                "variants": [{"id": "v", "variable": "batch", "set": {"settings.max_active": 3}}],
            },
            "changes settings.max_active, which is more",
            "variants.v.set",
            id="a key is no prefix",
        ),
        pytest.param(
            {"variants": [{"id": "v", "variable": "batch", "set": {"settings.no": 1}}]},
            "server has no key 'settings.no'",
            "variants.v.set.settings.no",
            id="unknown key",
        ),
        pytest.param(
            {"variants": [{"id": "v", "variable": "batch", "set": {"topology.tp": 0}}]},
            "variant 'v': server.topology.tp: must be ",
            "variants.v.set",
            id="value that does not fit",
        ),
        pytest.param(
            {"server": {"engine": "vllm", "attach": "http://h:1", "args": {"a": 1}}},
            "changes a server that is only attached to",
            "variants.small",
            id="variant of an attached server",
        ),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], says: str, where: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(campaign(**keys))
    assert says in error.value.what
    assert error.value.where == where
    assert error.value.remedy


def test_a_name_that_repeats_itself_is_refused_before_snakemake_does() -> None:
    check(campaign(run="a" * 19))
    check(campaign(run="ab" * 19))
    check(campaign(run="a" * 30 + "b"))
    for name in ("a" * 20, "b" + "a" * 63, "ab1" * 20):
        with pytest.raises(ConfigError, match="20 times or more: Snakemake refuses"):
            check(campaign(run=name))


def test_every_rule_name_is_reserved() -> None:
    rules = {
        name
        for file in (ROOT / "workflow/rules").glob("*.smk")
        for name in re.findall(r"^\s*(?:rule|checkpoint)\s+(\w+)\s*:", file.read_text(), re.M)
    }
    assert rules
    assert rules <= RESERVED_NAMES


def test_the_demo_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    check(parse_campaign(assemble(read_yaml(Path("config/config.yaml")))))
