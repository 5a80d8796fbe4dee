"""Collectives through torch.distributed of the engine's own interpreter, started by torchrun."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from servemap.measure.baselines.perf_commands import LOGGED
from servemap.measure.baselines.perf_readings import choice, chosen_by_size
from servemap.measure.baselines.tool import Ended, Measured, NodeCommand, Part, Tool, not_once
from servemap.measure.baselines.words import why_failed
from servemap.model.baselines import size_bytes
from servemap.parsers.communication.nccl_log import read_log
from servemap.parsers.communication.torch_ranks import (
    RankLines,
    collective_rows,
    parse_rank_lines,
)
from servemap.parsers.values import text
from servemap.server.gates.transport_paths import connected

SCRIPT = "torch_ranks.py"
SILENCE_S = 120.0
"""How long a rank waits for another in one operation."""
LAUNCHER = "torch.distributed.run"


def torch_commands(part: Part) -> list[NodeCommand]:
    """Return torchrun's command for each node: static rendezvous at the first, no restarts."""
    spec = part.spec
    master = part.places[0].address
    source = resources.files(__package__).joinpath(SCRIPT).read_text(encoding="utf-8")
    found = []
    for rank, place in enumerate(part.places):
        plan = {
            "operations": list(spec.operations),
            "sizes": [size_bytes(size) for size in spec.sizes],
            "iterations": spec.iterations,
            "warmup": spec.warmup,
            "timeout_s": min(SILENCE_S, spec.timeout_s),
            "address": place.address,
        }
        script = f"{place.folder}/{SCRIPT}"
        argv = [
            place.python, "-m", LAUNCHER,
            f"--nnodes={len(part.places)}", f"--node-rank={rank}",
            f"--nproc-per-node={place.ranks}", "--max-restarts=0",
            f"--master-addr={master}", f"--master-port={part.port}",
            f"--local-addr={place.address}",
            script, json.dumps(plan, separators=(",", ":")),
        ]  # fmt: skip
        env = {
            "PYTHONUNBUFFERED": "1",
            # What torchrun sets by itself, with a warning, where there are several ranks.
            "OMP_NUM_THREADS": "1",
            **LOGGED,
        }
        found.append(NodeCommand(place.node, argv, env, {script: source}))
    return found


def read_torch(part: Part, ended: Mapping[str, Ended]) -> Measured:
    """Return what the ranks said, judged."""
    lines = parse_rank_lines("\n".join(one.log for one in ended.values()))
    rows, incomplete = collective_rows(lines, part.world)
    problems = why_failed(part, ended, lines)
    if not problems:
        problems = incomplete or not_once(part, rows)
    if not problems:
        problems = [
            f"{row['operation']} of {row['size_bytes']} bytes: "
            + (
                "not all values were checked"
                if row["wrong"] is None
                else f"{row['wrong']} values are wrong"
            )
            for row in rows
            if row["wrong"] != 0
        ]
    first = lines.hello.get(0, {})
    logs = {node: one.log for node, one in ended.items()}
    seen = connected(logs)
    return Measured(
        rows=[] if problems else _with_choices(rows, logs),
        ranks=_ranks(part, lines),
        versions={
            name: version
            for name in ("torch", "nccl", "cuda", "python")
            if (version := text(first.get(name))) is not None
        },
        backend=text(first.get("backend")),
        problems=problems,
        extra={"transport": seen.whole_record()} if seen.paths or seen.ranks else {},
    )


def _with_choices(rows: list[dict[str, Any]], logs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return rows with what NCCL chose for each size (see `perf_readings.choice`).

    One process runs all operations, so a choice without its operation's name counts for none.
    """
    said = [read_log(log, []).algorithms for log in logs.values()]
    named = [{one: n for one, n in log.items() if one.collective is not None} for log in said]
    chosen = {
        operation: chosen_by_size(operation, named)
        for operation in {str(row["operation"]) for row in rows}
    }
    return [{**row, **choice(chosen[row["operation"]].get(row["size_bytes"], []))} for row in rows]


def _ranks(part: Part, lines: RankLines) -> list[dict[str, Any]]:
    """Return who each rank is; torchrun numbers them node by node."""
    nodes = [place.node for place in part.places for _ in range(place.ranks)]
    keys = ("host", "local_rank", "pid", "device", "name", "interface")
    return [
        {"rank": rank, "node": node, **{key: lines.hello.get(rank, {}).get(key) for key in keys}}
        for rank, node in enumerate(nodes)
    ]


TORCH = Tool(torch_commands, read_torch)
