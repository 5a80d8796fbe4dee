"""What the campaign asks of latencies, and how it weighs tokens, in words."""

from typing import Any

from servemap.analysis.metrics import WEIGHTS
from servemap.parsers.values import mapping, number

_LIMITS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "itl_p99_s": "ITL P99"}


def say_slo(slo: dict[str, Any]) -> str:
    """Return `TTFT <= 2 s, TPOT <= 0.05 s`; `none` where no limit is declared."""
    known = [(words, number(slo.get(name))) for name, words in _LIMITS.items()]
    said = [f"{words} <= {limit:g} s" for words, limit in known if limit is not None]
    return ", ".join(said) or "none"


def say_weights(weights: dict[str, Any]) -> str:
    """Return `uncached input 2.8, cached input 0.56, output 16.8`; `none` without weights."""
    known = [(name.replace("_", " "), number(weights.get(name))) for name in WEIGHTS]
    said = [f"{words} {weight:g}" for words, weight in known if weight is not None]
    return ", ".join(said) or "none"


def asked(campaign: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the campaign's SLO and weights, each by name, as far as it has them."""
    named = [
        ("SLO", say_slo(mapping(campaign.get("slo")))),
        ("Weights of tokens", say_weights(mapping(campaign.get("weights")))),
    ]
    return [(name, said) for name, said in named if said != "none"]
