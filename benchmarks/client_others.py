"""The load clients of others against the same emitter, on one core as ours is.

Their commands are those that servemap runs them with. A request is found in the emitter's log by
its text, or by its X-Request-Id where the client keeps that. Interpreters that have them are named
by SERVEMAP_VLLM, SERVEMAP_SGLANG and SERVEMAP_AIPERF; one that is not named is not measured.
"""

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.client_load import emitting, events_per_s, spread, timed
from servemap.measure.clients.base import Adapter, Order
from servemap.measure.clients.start import ADAPTERS, UNBUFFERED
from servemap.parsers.clients import sglang_bench, vllm_bench
from servemap.parsers.clients.registry import read_run

INTERPRETERS = {
    "vllm-bench": "SERVEMAP_VLLM",
    "sglang-bench": "SERVEMAP_SGLANG",
    "aiperf": "SERVEMAP_AIPERF",
}
RESULTS = {"vllm-bench": vllm_bench.RESULT, "sglang-bench": sglang_bench.RESULT}
DIGITS = 5
"""So many tokens of an answer tell its number; see client_emitter.c."""

Json = dict[str, Any]


def named() -> dict[str, str]:
    """Return the interpreters that the environment names, by client."""
    found = {name: os.environ.get(variable, "") for name, variable in INTERPRETERS.items()}
    return {name: python for name, python in found.items() if python}


def number_of(text: str) -> int:
    """Return the number that the emitter wrote into an answer: hex digits, lowest first."""
    return sum(int(digit, 16) << (4 * place) for place, digit in enumerate(text.split()[:DIGITS]))


def measure(
    name: str,
    program: Path,
    folder: Path,
    tokenizer: Path,
    streams: int,
    gap_ms: float,
    tokens: int,
) -> Json:
    """Measure a client of others once: all streams started together, one wave.

    Args:
        name: as in `INTERPRETERS`.
        program: the emitter.
        folder: new, for all files.
        tokenizer: folder with a tokenizer.
        streams: requests.
        gap_ms: between two tokens of a stream.
        tokens: of each answer.

    Raises:
        RuntimeError: it failed, or not every request succeeded.
    """
    out = folder / "out"
    out.mkdir(parents=True)
    log = folder / "server.jsonl"
    adapter: Adapter = ADAPTERS[name]
    with emitting(program, log, gap_ms) as url:
        order = Order(
            url=url,
            endpoint="/v1/completions",
            engine="vllm",
            model="reference",
            tokenizer=str(tokenizer),
            isl=16,
            osl=tokens,
            concurrency=streams,
            num_prompts=streams,
            timeout_s=60,
            seed=1,
            request={"ignore_eos": True},
            folder=str(out),
        )
        env = {**os.environ, **UNBUFFERED, "NO_PROXY": "127.0.0.1", **adapter.env}
        for variable in ("PYTHONPATH", "PYTHONPYCACHEPREFIX"):
            env.pop(variable, None)
        argv = [named()[name], *adapter.words(order)]
        code, wall_s, cpu_s, _ = timed(argv, env, folder / "lines")
    if code:
        raise RuntimeError(f"{name} ended with {code}: {(folder / 'lines').read_text()[-800:]}")
    run = read_run(name, out)
    if sum(call.error is None for call in run.calls) != streams:
        raise RuntimeError(f"{name}: not every request succeeded")
    served = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    if name in RESULTS:
        record = json.loads((out / RESULTS[name]).read_text().splitlines()[0])
        own = [served[number_of(text)] for text in record["generated_texts"]]
    else:
        by_id = {line["id"]: line for line in served}
        own = [by_id[call.id] for call in run.calls]
    ttft: list[float] = []
    gaps: list[float] = []
    for call, line in zip(run.calls, own, strict=True):
        sent = line["t_ns"]
        if call.ttft_s is None or len(call.gaps_s) != len(sent) - 1:
            raise RuntimeError(f"{name}: {len(call.gaps_s)} gaps of {len(sent)} chunks")
        ttft.append(call.ttft_s * 1e3 - (sent[0] - line["received_ns"]) / 1e6)
        gaps += [gap * 1e3 - (sent[i + 1] - sent[i]) / 1e6 for i, gap in enumerate(call.gaps_s)]
    first = min(line["received_ns"] for line in own)
    last = max(line["t_ns"][-1] for line in own)
    return {
        "streams": streams,
        "gap_ms": gap_ms,
        "events_per_s": events_per_s(own),
        "ttft_error_ms": spread(ttft),
        "gap_error_ms": spread([abs(gap) for gap in gaps]),
        "server_late_ms": spread(
            [
                (t - due) / 1e6
                for line in own
                for t, due in zip(line["t_ns"], line["due_ns"], strict=True)
            ]
        ),
        "overhead_s": round(wall_s - (last - first) / 1e9, 3),
        "process_cpu_s": round(cpu_s, 3),
        "load_average": round(os.getloadavg()[0], 2),
    }
