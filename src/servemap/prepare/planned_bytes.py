"""How many bytes a campaign will write, on each node and here: an estimate from above.

The sizes were measured on the embedded demo: a request's line of `requests.jsonl` takes 650 bytes
and 27 for each event of its stream; derived files take 0.6 of the raw ones. They are rounded up.
Of a window that is filled with whole waves (`min_window_s`) the number of requests is not known
before; it is taken as if each stream got TOKENS_PER_S.
"""

from collections.abc import Iterable

from servemap.measure.collect import chosen_collectors
from servemap.measure.status import PlannedRepeat
from servemap.model.base import tokens
from servemap.model.cases import (
    CaseSpec,
    ChatCase,
    CurveCase,
    FixedCase,
    PrefixCase,
    RateCase,
    ReplayCase,
    SearchCase,
)
from servemap.model.curves import arrivals_at, points_of, whole_waves
from servemap.model.plan import Plan
from servemap.model.replay import trace_here
from servemap.prepare.needs import needs

REQUEST_BYTES = 800
TOKEN_BYTES = 35
TOKENS_PER_S = 200.0
RECORDED_BYTES = 120
"""Of a recorded request of a replay, or one of its hash ids, in the load's specification."""
DERIVED_SHARE = 0.6
LOG_BYTES = 20_000_000
"""Log of one server start on one node, and the small files beside it."""
OTHER_SAMPLE_BYTES = 20_000
"""A sample of a collector that the table does not know."""


def stream_bytes(osl: int, concurrency: int, prompts: int, window_s: float) -> float:
    """Return the bytes of the records of one stream of a case."""
    filled = concurrency * TOKENS_PER_S * window_s / osl
    return max(prompts, filled) * (REQUEST_BYTES + TOKEN_BYTES * osl)


def case_bytes(case: CaseSpec, per_k: int) -> float:
    """Return the bytes of the records of one repeat of a case."""
    if isinstance(case, FixedCase | PrefixCase | ChatCase):
        return stream_bytes(
            tokens(case.osl, per_k),
            case.concurrency,
            case.num_prompts or case.concurrency,
            case.min_window_s,
        )
    if isinstance(case, RateCase):
        return stream_bytes(tokens(case.osl, per_k), 1, case.num_prompts, 0)
    if isinstance(case, SearchCase):
        return case.max_probes * _probe_bytes(case, tokens(case.osl, per_k))
    if isinstance(case, CurveCase):
        return sum(case_bytes(point, per_k) for point in points_of(case))
    if isinstance(case, ReplayCase):
        trace = trace_here(case, per_k)
        if trace is None:
            return 0.0
        rows = trace.requests
        recorded = RECORDED_BYTES * (len(rows) + sum(len(row.get("blocks", ())) for row in rows))
        return recorded + sum(stream_bytes(row["osl"], 1, 1, 0) for row in rows)
    back, inject = case.background, case.inject
    control = stream_bytes(
        tokens(back.osl, per_k),
        back.concurrency,
        back.num_prompts or back.concurrency,
        back.min_window_s,
    )
    # The background runs twice, without and with the injection.
    return 2 * control + stream_bytes(tokens(inject.osl, per_k), 1, inject.count, 0)


def _probe_bytes(case: SearchCase, osl: int) -> float:
    """Return the bytes of a probe at the largest level."""
    if case.over == "rate":
        prompts = arrivals_at(case.most, case.num_prompts, case.min_window_s)
        return stream_bytes(osl, 1, prompts, 0)
    most = int(case.most)
    return stream_bytes(osl, most, whole_waves(case.num_prompts, most), case.min_window_s)


def node_bytes(plan: Plan, repeats: Iterable[PlannedRepeat]) -> dict[str, int]:
    """Return the raw bytes that the repeats which are still to be measured write on each node."""
    campaign = plan.campaign
    table = needs().collectors
    rates = {"proc": 0.0, "http": 0.0}
    for collector in chosen_collectors(campaign):
        need = table.get(collector.name)
        size = need.bytes_per_sample if need else OTHER_SAMPLE_BYTES
        rates["http" if collector.kind == "http" else "proc"] += size / collector.interval_s
    written = dict.fromkeys(plan.all_nodes(), 0.0)
    launched: set[str] = set()
    for row in repeats:
        if not row.runs:
            continue
        written[plan.load_node] += case_bytes(plan.cases[row.case], campaign.scale.tokens_per_k)
        # Only the node that the load runs on reads the engine's page.
        written[plan.load_node] += rates["http"] * row.expected_s
        for node in plan.nodes_of(row.variant):
            written[node] += rates["proc"] * row.expected_s
        if row.variant not in launched and not campaign.server.attach:
            launched.add(row.variant)
            for node in plan.nodes_of(row.variant):
                written[node] += LOG_BYTES
    return {node: round(size) for node, size in written.items()}


def results_bytes(by_node: dict[str, int]) -> int:
    """Return what the results take here: the raw files of all nodes, and what is derived."""
    return round(sum(by_node.values()) * (1 + DERIVED_SHARE))
