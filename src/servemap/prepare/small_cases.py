"""A small set of cases that fits a server's limits: a first look, not a study."""

from typing import Any

SHORT = 256
PROMPT = 1024
LONG = 16_384
STREAMS = 8


def small_cases(context: int, max_active: int | None = None) -> list[dict[str, Any]]:
    """Return cases, as a campaign writes them, whose every request fits.

    Args:
        context: longest sequence (tokens) that the server takes; 2 at least.
        max_active: requests that it runs at once, None where that is not known.
    """
    streams = min(STREAMS, max_active or STREAMS)
    prompt = min(PROMPT, max(1, context // 2))
    part = min(SHORT, max(1, context // 2))
    cases = [
        case("prefill_latency_c1", prompt, 1, 1, num_prompts=8, warmup="same"),
        case("decode_latency_c1", part, part, 1, num_prompts=4),
    ]
    if streams > 1:
        cases.append(
            case(f"decode_throughput_c{streams}", part, part, streams, num_prompts=2 * streams)
        )
    if context > 4 * PROMPT:
        long = min(LONG, context // 2)
        cases.append(case("long_prefill_latency_c1", long, 1, 1, warmup="none"))
    return cases


def case(name: str, isl: int, osl: int, concurrency: int, **more: Any) -> dict[str, Any]:
    """Return one case of fixed lengths."""
    return {"id": name, "isl": isl, "osl": osl, "concurrency": concurrency, **more}
