"""The load under which Nsight Systems collects: the case's own, until the window is over."""

from typing import Any

from servemap.engines.profiling import Asked, Profiler
from servemap.engines.registry import get_adapter
from servemap.measure.capture_load import LONGEST_S, capture_spec
from servemap.measure.nsight.window import LEAD_S
from servemap.model.replay import replayed
from servemap.server.context import Context
from servemap.server.launch.served import Served

_NOBODY = Profiler(
    start_with=lambda *_: {}, body=lambda _: {}, ranks=lambda _: 0, rank_of=lambda *_: None
)
_NOTHING = Asked(0, "", "")


def nsys_load(
    context: Context,
    case: dict[str, Any],
    variant: str,
    case_id: str,
    served: Served,
    load_id: str,
    seconds: float,
) -> dict[str, Any]:
    """Return the load client's spec: when the time has come it says so, and asks no server.

    Args:
        context: of the campaign with the start for captures.
        case: the resolved case.
        variant: the start.
        case_id: the case's id.
        served: the server.
        load_id: what the client repeats in its record.
        seconds: how long is collected; the load lasts at least so long, and what surrounds it.
    """
    server = context.server(variant)
    spec = capture_spec(
        case,
        endpoints=get_adapter(server).endpoints(served.url),
        url=served.url,
        model=context.plan.campaign.model.model_dump(mode="json"),
        request=dict(server.request),
        load_id=load_id,
        seed=f"{context.run}/capture/{variant}/{case_id}/{load_id}",
        profiler=_NOBODY,
        asked=_NOTHING,
        replay=replayed(context.plan.campaign, case_id),
    )
    kept = {key: spec["profile"][key] for key in ("segment", "after_s", "settled")}
    least_s = LEAD_S + seconds + LONGEST_S
    return {
        **spec,
        "min_window_s": max(spec["min_window_s"], least_s),
        "profile": {**kept, "outside": True},
    }
