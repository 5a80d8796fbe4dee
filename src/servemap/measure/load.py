"""From a resolved case to what the load client on the head is asked to do."""

import statistics
from typing import Any
from urllib.parse import urlsplit

SHORT_WARMUP_TOKENS = 64
LONG_PREFILL_TOKENS = 16_384
"""A prompt from this length on is expensive enough to be measured, and not sent to warm up."""

CHAT_KINDS = ("chat", "tools")


def load_spec(
    case: dict[str, Any],
    *,
    url: str,
    endpoint: str,
    model: dict[str, Any],
    request: dict[str, Any],
    seed: str,
    load_id: str,
    replay: dict[str, Any] | None = None,
    flush_path: str | None = None,
) -> dict[str, Any]:
    """Return the load client's spec (LoadSpec, schema 1) of a resolved case.

    A mixed case has two segments: `control` with the background alone, `injected` with the same
    background and the injection. A replay carries the requests of its trace, so that its load.json
    is the whole record of what was asked for. All lengths are in tokens, all times in seconds.

    Args:
        case: the resolved case.
        url: base URL of the server.
        endpoint: path for completions.
        model: the campaign's model.
        request: more fields of each request's body.
        seed: decides the prompts.
        load_id: what the client repeats in its record.
        replay: the stream of a replay case (see `onnode.load_trace.replay_stream`).
        flush_path: empties the server's prefix cache; asked where the case says `cache: flush`.
    """
    return {
        "schema": 1,
        "url": url,
        "endpoint": _chat_path(endpoint) if case["kind"] in CHAT_KINDS else endpoint,
        "model": model["name"],
        "seed": seed,
        "load_id": load_id,
        "vocab": list(model["vocab"]),
        "request": request,
        "api_key_env": None,
        "timeout_s": case["request_timeout_s"],
        "case_timeout_s": case["case_timeout_s"],
        "warmup": _warmup(_shaped(case, replay)),
        "min_window_s": _steady(case).get("min_window_s", 0.0),
        "segments": _segments(case) if replay is None else [_main(replay)],
        **_chat(case),
        # vLLM takes nothing but POST, SGLang takes it as well.
        **({"flush": {"path": flush_path, "method": "POST"}} if flushes(case) else {}),
    }


def flush_path(url: str | None) -> str | None:
    """Return what a request line says of the URL that empties the cache; None where none does."""
    parts = urlsplit(url or "")
    return (f"{parts.path}?{parts.query}" if parts.query else parts.path) or None


def flushes(case: dict[str, Any]) -> bool:
    """Whether a resolved case has the prefix cache emptied before it is measured."""
    return case.get("cache") == "flush"


def _chat(case: dict[str, Any]) -> dict[str, Any]:
    if case["kind"] not in CHAT_KINDS:
        return {}
    shape = {key: case[key] for key in ("roles", "system_words")}
    return {"chat": {**shape, "tools": case.get("tools", 0)}}


def _chat_path(completions: str) -> str:
    return completions.removesuffix("/completions") + "/chat/completions"


def _steady(case: dict[str, Any]) -> dict[str, Any]:
    steady: dict[str, Any] = case["background"] if case["kind"] == "mixed" else case
    return steady


def _shaped(case: dict[str, Any], replay: dict[str, Any] | None) -> dict[str, Any]:
    """Return the case with lengths; those of a replay are the medians of its requests."""
    if replay is None:
        return case
    lengths = {
        key: statistics.median_low(request[key] for request in replay["requests"])
        for key in ("isl", "osl")
    }
    return {**case, **lengths, "concurrency": case["concurrency"] or 1}


def _warmup(case: dict[str, Any]) -> dict[str, Any] | None:
    steady = _steady(case)
    if case["warmup"] == "none":
        return None
    if case["kind"] == "prefix":
        return _prefix_warmup(case)
    if case["warmup"] == "same":
        # An open loop has no wave: one request of its shape stands for it.
        wave = steady.get("concurrency", 1)
        return {
            "isl": steady["isl"],
            "osl": steady["osl"],
            "concurrency": wave,
            "num_prompts": wave,
        }
    return {
        "isl": min(steady["isl"], SHORT_WARMUP_TOKENS),
        "osl": min(steady["osl"], SHORT_WARMUP_TOKENS),
        "concurrency": 1,
        "num_prompts": 1,
    }


def _prefix_warmup(case: dict[str, Any]) -> dict[str, Any]:
    """Return a warm-up that leaves the shared prefix in the server's cache."""
    same = case["warmup"] == "same"
    wave = case["concurrency"] if same else 1
    return {
        "isl": case["isl"],
        "osl": case["osl"] if same else min(case["osl"], SHORT_WARMUP_TOKENS),
        "concurrency": wave,
        "num_prompts": wave,
        "prefix_tokens": prefix_tokens(case),
    }


def warmup_note(name: str, case: dict[str, Any]) -> str | None:
    """Return a warning about a warm-up of expensive long prefills; None where it is none."""
    # The lengths of recorded requests are not planned.
    wave = _warmup(case) if case["warmup"] == "same" and "isl" in _steady(case) else None
    if wave is None or wave["isl"] < LONG_PREFILL_TOKENS:
        return None
    prompts = f"{wave['num_prompts']} prompts" if wave["num_prompts"] > 1 else "a prompt"
    return (
        f"case {name}: its warm-up (same) sends {prompts} of {wave['isl']} tokens before every "
        "window; `warmup: short` or `none` spares that"
    )


def prefix_tokens(case: dict[str, Any]) -> int:
    """Return how many tokens the prompts of a prefix case share; they differ in one at least."""
    isl: int = case["isl"]
    asked: int = round(case["share"] * isl)
    return min(asked, isl - 1)


def _main(stream: dict[str, Any]) -> dict[str, Any]:
    return {"name": "main", "streams": [stream]}


def _segments(case: dict[str, Any]) -> list[dict[str, Any]]:
    if case["kind"] == "rate":
        keys = ("kind", "isl", "osl", "rate_rps", "num_prompts", "arrivals", "burstiness")
        return [_main({"name": "main", **{key: case[key] for key in keys}})]
    steady = _steady(case)
    closed = {
        "kind": "closed",
        **{key: steady[key] for key in ("isl", "osl", "concurrency", "num_prompts")},
    }
    if case["kind"] == "prefix":
        closed["prefix_tokens"] = prefix_tokens(case)
    if case["kind"] != "mixed":
        return [_main({"name": "main", **closed})]
    inject = case["inject"]
    times = [
        inject["after_s"] + index * (inject["every_s"] or 0.0) for index in range(inject["count"])
    ]
    background = {"name": "background", **closed}
    injected = {
        "name": "injected",
        "kind": "at",
        "isl": inject["isl"],
        "osl": inject["osl"],
        "at_s": times,
    }
    return [
        {"name": "control", "streams": [background]},
        {"name": "injected", "streams": [background, injected]},
    ]


def fallback_case(case: dict[str, Any]) -> dict[str, Any] | None:
    """Return the case at its fall-back lengths, or None where it has none."""
    fallback = case.get("fallback")
    if not fallback:
        return None
    lengths = {key: fallback[key] for key in ("isl", "osl") if fallback[key] is not None}
    return {**case, **lengths, "fallback": None}


def fallback_reason(case: dict[str, Any], classes: dict[str, int]) -> str | None:
    """Return the class of error for which the fall-back lengths are due, or None."""
    return next(iter(sorted(set(classes) & set((case.get("fallback") or {}).get("on", [])))), None)
