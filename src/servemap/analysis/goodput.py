"""Which requests meet an SLO, over all of them at once."""

from collections.abc import Sequence

import numpy as np

from servemap.analysis.chunks import Mask
from servemap.analysis.requests import FLAG_HIDDEN, Floats, Request

ITL_P99 = "itl_p99_s"
# Of a one-token answer there is neither.
_BETWEEN_TOKENS = ("tpot_s", ITL_P99)
_BLOCK = 4096


def meeting(requests: Sequence[Request], slo: dict[str, float]) -> Mask:
    """Say of each request whether it stays within every declared limit that applies to it.

    TPOT and ITL limits do not apply to a one-token answer, nor to one whose tokens all came at one
    time: nobody waited between them. Of an answer whose first event hid many tokens, TPOT is taken
    as E2E over output tokens here, the span that its output speed has, too.

    Args:
        requests: requests that succeeded.
        slo: upper limits in seconds by `ttft_s`, `tpot_s`, `e2e_s`, `itl_p99_s`.
    """
    good = np.ones(len(requests), np.bool_)
    at_once = np.array([_without_gaps(r) for r in requests], np.bool_)
    for name, limit in slo.items():
        if name == ITL_P99:
            within, missing = _p99_within([r.itl_s for r in requests], limit)
        else:
            known = [_tpot_s(r) if name == "tpot_s" else getattr(r, name) for r in requests]
            values = np.array([np.nan if v is None else v for v in known], np.float64)
            within, missing = values <= limit, np.isnan(values)
        good &= within | (missing & at_once) if name in _BETWEEN_TOKENS else within
    return good


def _without_gaps(request: Request) -> bool:
    count = request.output_tokens
    return count == 1 or (count is not None and request.first_ns == request.last_ns)


def _tpot_s(request: Request) -> float | None:
    if request.tpot_s is not None or FLAG_HIDDEN not in request.flags or _without_gaps(request):
        return request.tpot_s
    tokens, e2e_s = request.output_tokens, request.e2e_s
    return e2e_s / tokens if e2e_s is not None and tokens else None


def _p99_within(series: Sequence[Floats], limit: float) -> tuple[Mask, Mask]:
    """Say of each series whether its P99 is at most `limit`, and whether it has no value.

    Linear interpolation puts P99 between two neighbours in order. How many values are within the
    limit tells on which side of it both lie; only where they lie on either side is it computed.
    """
    blocks = [series[at : at + _BLOCK] for at in range(0, len(series), _BLOCK)]
    parts = [_block_within(block, limit) for block in blocks]
    sizes = np.array([one.size for one in series], np.int64)
    within = np.concatenate(parts) if parts else np.empty(0, np.bool_)
    return within, sizes == 0


def _block_within(series: Sequence[Floats], limit: float) -> Mask:
    sizes = np.array([one.size for one in series], np.int64)
    owner = np.repeat(np.arange(len(series)), sizes)
    below = np.bincount(owner[np.concatenate(series) <= limit], minlength=len(series))
    rank = (sizes - 1) * 0.99
    lower = np.floor(rank).astype(np.int64)
    within: Mask = (sizes > 0) & (below >= lower + 2)
    for place in np.flatnonzero((sizes > 0) & (below == lower + 1)).tolist():
        within[place] = np.percentile(series[place], 99) <= limit
    return within
