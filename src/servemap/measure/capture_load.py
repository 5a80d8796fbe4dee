"""The load under which a profile is taken: a case's own, with the profile at a known time in it."""

from typing import Any

from servemap.engines.base import Endpoints
from servemap.engines.profiling import Asked, Profiler
from servemap.measure.load import flush_path, load_spec

LONGEST_S = 60.0
"""How long the load goes on where the profile does not become whole."""

BEGUN_S = 0.2
"""After this the first requests are with the server."""


def capture_spec(
    case: dict[str, Any],
    *,
    endpoints: Endpoints,
    url: str,
    model: dict[str, Any],
    request: dict[str, Any],
    load_id: str,
    seed: str,
    profiler: Profiler,
    asked: Asked,
    replay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the load client's spec of a capture.

    Warm-up and load are the case's. Of a mixed case only the part with the injection is run, and
    the profile begins with it; in all others it begins once the first wave is through its prefill,
    or at once where the output is one token. The load ends when the traces are whole.

    Args:
        case: the resolved case.
        endpoints: of the server; it has those of a profiler.
        url: base URL of the server.
        model: the campaign's model.
        request: more fields of each request's body.
        load_id: what the client repeats in its record.
        seed: decides the prompts.
        profiler: the engine's.
        asked: the profile.
        replay: the stream of a replay case.
    """
    own = {key: value for key, value in case.items() if key != "client"}
    spec = load_spec(
        own,
        url=url,
        endpoint=endpoints.completions.removeprefix(url),
        model=model,
        request=request,
        seed=seed,
        load_id=load_id,
        replay=replay,
        flush_path=flush_path(endpoints.cache_flush),
    )
    segment = spec["segments"][-1]
    mixed = case["kind"] == "mixed"
    return {
        **spec,
        "segments": [segment],
        "min_window_s": max(spec["min_window_s"], LONGEST_S),
        "profile": {
            "segment": segment["name"],
            "after_s": case["inject"]["after_s"] if mixed else BEGUN_S,
            "settled": not mixed and case.get("osl") != 1,
            "start": (endpoints.profile_start or "").removeprefix(url),
            "body": profiler.body(asked),
            "stop": (endpoints.profile_stop or "").removeprefix(url),
            # By stage it may be at the other one when that which was asked for is there.
            "stop_always": profiler.stop_always or asked.stage is not None,
        },
    }
