"""Command lines of whole campaigns, read by the engines' own argument parsers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.base import Placement
from servemap.engines.registry import get_engine
from servemap.model.checks import check
from servemap.model.load import load_campaign
from servemap.model.plan import Plan
from servemap.model.server_spec import ModelSpec, ServerSpec, Topology
from tests.parts import need

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
# Abbreviations are off, so that a name cut short is no name.
READ = """
import argparse, json, sys
{imports}
parser = {parser}
parser.allow_abbrev = False
for argv in json.load(sys.stdin):
    print(json.dumps(vars(parser.parse_args(argv)), default=str))
"""
SGLANG = READ.format(
    imports="from sglang.srt.server_args import ServerArgs",
    parser="argparse.ArgumentParser()\nServerArgs.add_cli_args(parser)",
)
VLLM = READ.format(
    imports="from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser",
    parser="make_arg_parser(FlexibleArgumentParser())",
)


def parsed(engine: str, program: str, argvs: list[list[str]], cwd: Path) -> list[dict[str, Any]]:
    """What the engine's parser makes of each command line."""
    done = subprocess.run(
        [need(engine), "-c", program],
        input=json.dumps(argvs),
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=480,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(argvs)
    return [json.loads(line) for line in lines]


def command_lines(file: str) -> dict[tuple[str, int], list[str]]:
    """The options of every rank of every variant of a campaign."""
    campaign = load_campaign(ROOT / file)
    check(campaign)
    plan = Plan(campaign)
    nodes = {node.id: node for node in campaign.nodes}
    found = {}
    for variant in plan.variants:
        server = ServerSpec.model_validate(plan.server_spec(variant)["server"])
        used = [nodes[name] for name in plan.nodes_of(variant)]
        for rank, node in enumerate(used):
            placement = Placement(
                node.id, rank, len(used), node.address, used[0].address, server.master_port
            )
            argv = get_engine(server.engine).argv(
                server, campaign.model, placement, python="python3", workdir="/w"
            )
            assert argv[1] == "-m"
            found[variant, rank] = argv[3:]
    return found


def test_the_two_node_example_is_complete_for_sglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    lines = command_lines("config/campaigns/dsv4pro-6000d.yaml")
    said = dict(zip(lines, parsed("sglang", SGLANG, list(lines.values()), tmp_path), strict=True))
    for (_, rank), one in said.items():
        assert (one["nnodes"], one["node_rank"]) == (2, rank)
        assert one["dist_init_addr"] == "192.0.2.5:29500"
        assert one["served_model_name"] == "DeepSeek-V4-Pro"
        assert (one["context_length"], one["mem_fraction_static"]) == (135168, 0.9)
        assert one["enable_metrics"] is one["enable_cache_report"] is True
    first = said["baseline", 0]
    assert (first["tp_size"], first["chunked_prefill_size"]) == (16, 8192)
    assert first["max_running_requests"] == 64
    other = said["tp8-pp2", 1]
    assert (other["tp_size"], other["pp_size"]) == (8, 2)
    assert said["mtp", 0]["speculative_algorithm"] == "NEXTN"
    assert said["kv-fp8", 0]["kv_cache_dtype"] == "fp8_e4m3"
    assert said["dp2-ep16", 0]["dp_size"] == 2


@pytest.mark.parametrize(
    ("engine", "program", "names"),
    [
        ("sglang", SGLANG, ("tp_size", "nnodes", "node_rank", "disable_radix_cache")),
        ("vllm", VLLM, ("tensor_parallel_size", "nnodes", "node_rank", "enforce_eager")),
    ],
)
def test_every_variant_of_its_own_campaign(
    engine: str,
    program: str,
    names: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    lines = command_lines(f"config/{engine}.yaml")
    server = ServerSpec(
        engine=engine, port=30000, nodes=["a", "b"], topology=Topology(tp=2), python="python3"
    )
    model = ModelSpec(name="tiny", path="/m", context=2048)
    for rank, node in enumerate("ab"):
        words = get_engine(server.engine).argv(
            server,
            model,
            Placement(node, rank, 2, f"10.0.0.{rank}", "10.0.0.0", 29511),
            python="python3",
            workdir="/w",
        )
        # vLLM's ranks on several nodes start by its command line, whose parser is `serve`'s.
        at = words.index("serve") + 1 if "serve" in words else 3
        lines["two nodes", rank] = words[at:]
    found = dict(zip(lines, parsed(engine, program, list(lines.values()), tmp_path), strict=True))
    assert [found["two nodes", rank][name] for rank in (0, 1) for name in names[:3]] == [
        2, 2, 0, 2, 2, 1,
    ]  # fmt: skip
    assert names[3] in found["baseline", 0]
