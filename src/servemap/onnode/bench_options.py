"""The options of `bench`, and the specification that they ask for."""

import argparse
import json
import math
import os
from typing import Any, Dict, List, Optional, Tuple

from .checked import SpecError
from .load_spec import LoadSpec, load_spec, parse_spec
from .load_trace import Caps, least_s, read_trace, replay_stream

LONGEST_S = 9_999_999.0
"""Most that a specification takes as a time."""


def option_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options; what was not given is not there."""
    parser = argparse.ArgumentParser(
        prog="servemap bench",
        description="Send streaming completions to an OpenAI-compatible server and record them.",
        epilog="--curve 1,4,16 runs it at each of these concurrencies, into a folder each. "
        "--search runs it again and again, for the largest concurrency or rate that meets an SLO: "
        "servemap bench --search --help.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="folder for the results")
    add("--spec", metavar="FILE", help="a load specification; takes the place of what follows")
    add("--url", help="http://HOST:PORT of the server")
    add("--model", help="the served model's name")
    add(
        "--endpoint",
        help="path of the endpoint (/v1/completions, or that for chat)",
    )
    add("--chat", metavar="ROLES", help="chat messages, e.g. system,user (a prompt of token ids)")
    add("--tools", type=int, metavar="N", help="tool schemas in each chat request (0)")
    add("--isl", type=int, metavar="N", help="prompt tokens (128)")
    add("--prefix-share", type=float, metavar="S", help="part of the ISL that all prompts share")
    add("--osl", type=int, metavar="N", help="output tokens (128)")
    add("--concurrency", type=int, metavar="N", help="requests in flight (1)")
    add("--rate", type=float, metavar="R", help="open loop: requests per second on average")
    add("--arrivals", metavar="P", help="poisson, gamma or constant, with --rate (poisson)")
    add("--burstiness", type=float, metavar="B", help="shape of gamma gaps; below 1: more bursty")
    add("--trace", metavar="FILE", help="replay its requests: at their times, or --concurrency")
    add("--isl-cap", type=int, metavar="N", help="cut a trace's prompts to N tokens")
    add("--osl-cap", type=int, metavar="N", help="cut a trace's answers to N tokens")
    add("--speed", type=float, metavar="X", help="play a trace's times X times as fast (1)")
    add("--think", metavar="T", help="pauses of a closed loop: keep, compress or none (keep)")
    add("--think-factor", type=float, metavar="F", help="part of a pause that compress leaves")
    add("--timestamp-s", type=float, metavar="S", help="seconds of a trace's timestamp unit")
    add("--block-tokens", type=int, metavar="N", help="tokens of a block with a hash id")
    add("--inject", metavar="ISL:OSL", help="run once alone, then with such requests beside it")
    add("--inject-at", metavar="S,...", help="seconds after the start at which one is sent")
    add("--num-prompts", type=int, metavar="N", help="requests (ten times the concurrency)")
    add("--warmup", type=int, metavar="N", help="requests before the window (the concurrency)")
    add("--flush", metavar="PATH", help="POST this after the warm-up: empties the prefix cache")
    add("--seed", help="decides the prompts (a new one each run)")
    add("--vocab", metavar="LO:HI", help="token ids to draw from, HI excluded (300:4000)")
    add("--request", metavar="JSON", help='extra body fields ({"ignore_eos":true})')
    add("--timeout", type=float, metavar="S", help="longest a request may take (600)")
    add("--min-window", type=float, metavar="S", help="repeat whole waves for this long (0)")
    add("--api-key-env", metavar="NAME", help="environment variable that holds a bearer token")
    return parser


def read_options(options: Dict[str, Any]) -> Tuple[LoadSpec, Optional[Dict[str, Any]]]:
    """Return the checked specification, and its JSON where the options made it."""
    path = options.pop("spec", None)
    if path is None:
        raw = spec_from_options(options)
        return parse_spec(raw), raw
    if options:
        given = ", ".join("--" + name.replace("_", "-") for name in sorted(options))
        raise SpecError(f"--spec says everything; remove {given}")
    return load_spec(path), None


def spec_from_options(options: Dict[str, Any]) -> Dict[str, Any]:
    """Build a LoadSpec with one stream from the options that were given."""
    for name in ("url", "model"):
        if name not in options:
            raise SpecError(f"--{name} is missing; give it, or --spec FILE")
    _check_loop(options)
    rate = options.get("rate")
    concurrency = options.get("concurrency", 1)
    prompts = options.get("num_prompts", 10 * concurrency)
    timeout = options.get("timeout", 600.0)
    window = options.get("min_window", 0.0)
    warmup = options.get("warmup", concurrency)
    shape = {"isl": options.get("isl", 128), "osl": options.get("osl", 128)}
    if "prefix_share" in options:
        if not 0 <= options["prefix_share"] < 1:
            given = options["prefix_share"]
            raise SpecError(f"--prefix-share: {given} is refused: give a share from 0 to below 1")
        # The warm-up has the same prefix, so that it is there when the window begins.
        shape["prefix_tokens"] = round(options["prefix_share"] * shape["isl"])
    stream = {"name": "main", "kind": "closed", **shape, "concurrency": concurrency}
    stream["num_prompts"] = prompts
    # Long enough for every wave, warm-up included, to run into its time limit.
    waves = sum(math.ceil(count / max(concurrency, 1)) for count in (prompts, warmup))
    if rate is not None:
        stream = {"name": "main", "kind": "rate", **shape, "rate_rps": rate, "num_prompts": prompts}
        stream.update({key: options[key] for key in ("arrivals", "burstiness") if key in options})
        waves = warmup + 1
        window = prompts / rate if rate > 0 else 0.0
    elif "trace" in options:
        stream = _replay(options)
        requests = stream["requests"]
        waves = warmup + (len(requests) if "concurrency" in options else 1)
        window = least_s(requests, options.get("concurrency"))
    segments = _segments(stream, options)
    waves *= len(segments)
    if "tools" in options and "chat" not in options:
        raise SpecError("--tools: are for chat requests; give --chat user too")
    chat = None
    if "chat" in options:
        chat = {"roles": options["chat"].split(","), "tools": options.get("tools", 0)}
    path = "/v1/completions" if chat is None else "/v1/chat/completions"
    return {
        "schema": 1,
        "url": options["url"],
        "endpoint": options.get("endpoint", path),
        **({} if chat is None else {"chat": chat}),
        **({"flush": {"path": options["flush"]}} if "flush" in options else {}),
        "model": options["model"],
        "seed": options.get("seed", os.urandom(8).hex()),
        "vocab": _vocab(options.get("vocab", "300:4000")),
        "request": _json(options.get("request", '{"ignore_eos":true}')),
        "api_key_env": options.get("api_key_env"),
        "timeout_s": timeout,
        "case_timeout_s": min(timeout * (waves + 1) + window, LONGEST_S),
        "warmup": {**shape, "concurrency": concurrency, "num_prompts": warmup} if warmup else None,
        "min_window_s": options.get("min_window", 0.0),
        "segments": segments,
    }


def _segments(stream: Dict[str, Any], options: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return the load alone, or, with an injection, alone first and then with it."""
    if "inject" not in options:
        return [{"name": "main", "streams": [stream]}]
    if "inject_at" not in options:
        raise SpecError("--inject: give --inject-at too: when its requests are sent")
    isl, _, osl = options["inject"].partition(":")
    try:
        lengths = {"isl": int(isl), "osl": int(osl)}
    except ValueError as error:
        given = options["inject"]
        raise SpecError(f"--inject: {given!r} is refused: give ISL:OSL, e.g. 4096:1") from error
    try:
        times = [float(word) for word in options["inject_at"].split(",")]
    except ValueError as error:
        given = options["inject_at"]
        raise SpecError(f"--inject-at: {given!r} is refused: give seconds, e.g. 2,4.5") from error
    background = {**stream, "name": "background"}
    injected = {"name": "injected", "kind": "at", **lengths, "at_s": times}
    return [
        {"name": "control", "streams": [background]},
        {"name": "injected", "streams": [background, injected]},
    ]


def _replay(options: Dict[str, Any]) -> Dict[str, Any]:
    closed = "concurrency" in options
    for name, goes in (("speed", not closed), ("think", closed)):
        if name in options and not goes:
            loop = "without --concurrency" if closed else "with --concurrency"
            raise SpecError(f"--{name}: goes {loop}; remove it")
    speed = options.get("speed", 1.0)
    if not 0 < speed < math.inf:
        raise SpecError(f"--speed: {speed} is refused: give more than 0")
    for name in ("isl_cap", "osl_cap", "num_prompts", "timestamp_s", "block_tokens"):
        if name in options and not 0 < options[name] < math.inf:
            given = name.replace("_", "-")
            raise SpecError(f"--{given}: {options[name]} is refused: give more than 0")
    trace = read_trace(
        options["trace"],
        Caps(
            options.get("isl_cap"),
            options.get("osl_cap"),
            options.get("num_prompts"),
            options.get("timestamp_s"),
            speed,
            _think(options) if closed else 0.0,
            options.get("block_tokens"),
        ),
    )
    if not closed and not all("at_s" in request for request in trace.requests):
        raise SpecError("--trace: not every request has a time; give --concurrency")
    return replay_stream(trace, os.path.basename(options["trace"]), options.get("concurrency"))


def _think(options: Dict[str, Any]) -> float:
    """Return what a pause is multiplied by."""
    think, factor = options.get("think", "keep"), options.get("think_factor")
    if think not in ("keep", "compress", "none"):
        raise SpecError(f"--think: {think} is refused: give keep, compress or none")
    if (factor is not None) != (think == "compress"):
        raise SpecError("--think-factor: goes with --think compress, and only with that")
    if factor is not None and not 0 < factor < 1:
        raise SpecError(f"--think-factor: {factor} is refused: give more than 0 and less than 1")
    return {"keep": 1.0, "none": 0.0}.get(think, factor or 0.0)


# Options of one kind of load, and what they are refused with where another one is asked for.
_ONLY = {
    "rate": ("arrivals", "burstiness"),
    "trace": (
        "isl_cap",
        "osl_cap",
        "speed",
        "think",
        "think_factor",
        "timestamp_s",
        "block_tokens",
    ),
    "inject": ("inject_at",),
}
_NEVER = {
    "rate": ("concurrency", "min_window", "prefix_share", "trace"),
    "trace": ("isl", "osl", "min_window", "prefix_share", "chat"),
    "inject": ("rate", "trace", "prefix_share", "chat"),
}


def _check_loop(options: Dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    for kind, names in _ONLY.items():
        for name in names:
            if name in options and kind not in options:
                raise SpecError(f"--{name.replace('_', '-')}: goes with --{kind}; give that too")
    for kind, names in _NEVER.items():
        for name in names:
            if name in options and kind in options:
                raise SpecError(
                    f"--{name.replace('_', '-')}: does not go with --{kind}; remove one"
                )
    if ("burstiness" in options) != (options.get("arrivals") == "gamma"):
        raise SpecError("--burstiness: goes with --arrivals gamma, and only with that")


def _vocab(text: str) -> List[int]:
    low, _, high = text.partition(":")
    try:
        return [int(low), int(high)]
    except ValueError as error:
        raise SpecError(f"--vocab: {text!r} is refused: give LO:HI, e.g. 300:4000") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SpecError(f"--request: is not JSON ({error})") from error
