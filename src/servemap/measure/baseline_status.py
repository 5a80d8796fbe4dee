"""What stands on disk for every planned baseline, and what measuring it should take."""

from dataclasses import dataclass
from itertools import permutations
from math import prod

from servemap.model import results
from servemap.model.attempts import State, read_json, read_records, state
from servemap.model.baselines import BaselineSpec, CollectiveBaseline, TcpBaseline
from servemap.parsers.values import integer
from servemap.server.context import Context

REUSED_S = 1.0
PAIR_S = 1.0
"""What a pair of nodes takes beside its two halves of TCP, round trips and bytes."""
PART_S = 30.0
"""Guess for one part of a collective, or the copies of one node: its start and all sizes."""


@dataclass(frozen=True)
class PlannedBaseline:
    """One planned baseline and what is on disk for it; `measured`: its time is that of a record."""

    name: str
    kind: str
    state: State
    tries: int
    expected_s: float
    measured: bool

    @property
    def runs(self) -> bool:
        """Whether the next execution measures it."""
        return self.state not in ("done", "gave_up")


def planned_baselines(context: Context, *phases: str) -> list[PlannedBaseline]:
    """Return the baselines of some phases (all if none is named) in the planned order."""
    return [_planned(context, name) for name in context.plan.items(*phases).baselines]


def part_count(baseline: BaselineSpec, nodes: int) -> int:
    """Return how many measurements, one after the other, a baseline of some nodes consists of.

    Ordered pairs of nodes (TCP; one over the loopback of a single node), nodes (copies), or values
    of the sweep, for each node where these are measured by themselves.
    """
    if isinstance(baseline, TcpBaseline):
        return len(list(permutations(range(nodes), 2))) or 1
    if isinstance(baseline, CollectiveBaseline):
        values = prod(len(given) for given in baseline.sweep.values())
        return values * (nodes if baseline.nodes == "each" else 1)
    return nodes


def _planned(context: Context, name: str) -> PlannedBaseline:
    spec = context.plan.baselines[name]
    records = read_records(results.baseline_history(context.run, name))
    sha256 = context.plan.spec_sha256("baseline", name)
    stands = state(records, sha256, context.policy.max_attempts)
    output = results.run_dir(context.run) / "baselines" / f"{name}.json"
    if stands == "done" and not output.exists():
        stands = "missing"
    past_s = _past_s(context, name, sha256)
    return PlannedBaseline(
        name,
        spec.kind,
        stands,
        len(records),
        _guess_s(spec, len(context.plan.all_nodes())) if past_s is None else past_s,
        past_s is not None,
    )


def _past_s(context: Context, name: str, sha256: str) -> float | None:
    """Return what this very baseline took last time; None where that is not known."""
    record = read_json(results.run_dir(context.run) / "baselines" / f"{name}.json") or {}
    begun, ended = integer(record.get("started_ns")), integer(record.get("ended_ns"))
    same = record.get("status") == "ok" and record.get("spec_sha256") == sha256
    return (ended - begun) / 1e9 if same and begun is not None and ended is not None else None


def _guess_s(spec: BaselineSpec, nodes: int) -> float:
    if spec.reuse_from is not None:
        return REUSED_S
    if isinstance(spec, TcpBaseline):
        return part_count(spec, nodes) * (2 * spec.seconds + PAIR_S)
    return part_count(spec, nodes) * min(spec.timeout_s, PART_S)
