"""When the requests of an open-loop stream are due: an arrival process with a mean rate."""

import random
from typing import List, Tuple

PROCESSES = ["poisson", "gamma", "constant"]


def arrivals(
    process: str, rate_rps: float, burstiness: float, count: int, seed: str
) -> Tuple[float, ...]:
    """Return `count` send times in seconds, rising from 0.

    Gaps are gamma distributed with the shape `burstiness`, which is 1 for poisson (exponential
    gaps), less for more bursty and more for steadier arrivals; `constant` gaps are equal. All are
    then scaled so that their mean is exactly 1 / `rate_rps`: a few hundred draws miss it by some
    percent, which would be another load. vLLM's `bench serve` draws and scales in the same way.
    """
    if process == "constant":
        return tuple(index / rate_rps for index in range(count))
    shape = 1.0 if process == "poisson" else burstiness
    draw = random.Random(f"{seed}/arrivals")
    times: List[float] = [0.0]
    while len(times) < count:
        times.append(times[-1] + draw.gammavariate(shape, 1 / (rate_rps * shape)))
    whole = times[-1]
    scale = (count - 1) / rate_rps / whole if whole > 0 else 1.0
    return tuple(time * scale for time in times)
