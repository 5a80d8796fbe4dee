"""Public bug reports about load clients and gates, each met by the reference server.

An entry runs the client (or the gate) against a server that does what the report tells, asserts the
right value, and returns what was measured; `bugs_page.py` makes docs/bugs-tested.md of it. Wall
times are shown there and never asserted: what is asserted is which events count, and that nothing
was received before the server's log says it was sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ref_process import Load, load, measure, read_load, reference_server

from servemap.analysis.checks.server import check_stalled
from servemap.analysis.definitions import definitions
from servemap.analysis.verdict import default_limits
from servemap.engines.registry import get_engine
from servemap.model.server_spec import ModelSpec
from servemap.nodes.local import LocalNode
from servemap.server.gates.checks import Check, check_completion, run_gates
from servemap.server.gates.ready import wait_ready
from servemap.telemetry.align import AlignedSeries
from servemap.telemetry.catalogue import engine_metrics


@dataclass(frozen=True)
class Entry:
    """A report: its place, what the server does, the right outcome, and how that is shown."""

    id: str
    reports: str
    given: str
    right: str
    run: Callable[[Path], str]


ENTRIES: list[Entry] = []


def entry(name: str, reports: str, given: str, right: str) -> Callable[..., None]:
    def add(run: Callable[[Path], str]) -> None:
        ENTRIES.append(Entry(name, reports, given, right, run))

    return add


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def true_ms(got: Load, first: int, last: int, record: int = 0) -> str:
    """Return the time between two events of a request as the server really sent them."""
    times = got.served(got.records[record])["t_ns"]
    return ms((times[last] - times[first]) / 1e9)


def first_error(got: Load) -> str:
    return (got.records[0]["error"] or {"class": "none"})["class"]


@entry(
    "A1",
    "vllm-project/vllm#27485",
    "1 token, then 4 tokens in one event 100 ms later; usage on every chunk",
    "ITL: 4 values of a quarter of the gap each; TPOT the same",
)
def _(folder: Path) -> str:
    script = {"answer": {"ttft_ms": 100, "gap_ms": 100, "chunk": [1, 4], "usage": "continuous"}}
    got = measure(folder, script, osl=5)
    got.check_causality()
    row = got.rows[0]
    gap = float(row.chunk_gap_s[0])
    assert row.itl_s.tolist() == [gap / 4] * 4
    assert row.tpot_s is not None
    assert abs(row.tpot_s - gap / 4) < 1e-9
    assert "multi_token_chunks" in row.flags
    return f"4 x {ms(gap / 4)}, TPOT {ms(row.tpot_s)}; the gap sent: {true_ms(got, 0, 1)}"


@entry(
    "A3",
    "sierra-research/tau2-bench#503",
    "half a frame, 50 ms, the rest with two whole frames in one write, [DONE]",
    "3 frames, no error; TTFT is the time of the first whole frame",
)
def _(folder: Path) -> str:
    answer = {"ttft_ms": 20, "split": "middle", "split_ms": 50, "split_chunks": 1}
    got = measure(folder, {"answer": answer}, osl=3)
    got.check_causality()
    row, record = got.rows[0], got.records[0]
    assert (row.status, record["kinds"]) == ("ok", "tttud")
    assert row.first_ns == record["t_ns"][0] >= got.served(record)["t_ns"][0]
    assert row.ttft_s is not None
    served = got.served(record)
    true = (served["t_ns"][0] - served["received_ns"]) / 1e9
    return f"3 frames, ok; TTFT {ms(row.ttft_s)}, first whole frame sent after {ms(true)}"


@entry(
    "A4",
    "PaddlePaddle/FastDeploy#8113",
    "20 empty deltas with growing usage, then text",
    "TTFT at the first growth; time to the first text apart",
)
def _(folder: Path) -> str:
    answer = {"ttft_ms": 30, "gap_ms": 5, "hidden": 20, "usage": "continuous"}
    got = measure(folder, {"answer": answer}, osl=24)
    got.check_causality()
    row, record = got.rows[0], got.records[0]
    assert record["kinds"] == "r" * 20 + "ttttud"
    assert (row.first_ns, row.first_text_ns) == (record["t_ns"][0], record["t_ns"][20])
    assert row.chunk_tokens.tolist() == [1] * 24
    assert row.sent_ns is not None
    assert row.ttft_s is not None
    text = (record["t_ns"][20] - row.sent_ns) / 1e9
    return f"TTFT {ms(row.ttft_s)} (event 0), first text {ms(text)} (event 20)"


@entry(
    "A6",
    "sgl-project/genai-bench#81",
    "the first chunk brings 300 hidden tokens after 500 ms, 10 more follow at 20 ms",
    "marked as hidden; speed = tokens / (end - start), no TPOT",
)
def _(folder: Path) -> str:
    answer = {"ttft_ms": 500, "gap_ms": 20, "chunk": [300, 1], "usage": "continuous"}
    said = []
    for number, more in enumerate(({}, {"usage": "final", "chunk": [301, 1], "reasoning": 300})):
        got = measure(folder / str(number), {"answer": {**answer, **more}}, osl=310)
        row = got.rows[0]
        assert "hidden_first_tokens" in row.flags
        assert row.tpot_s is None
        assert row.req_output_tps is not None
        assert row.e2e_s is not None
        assert abs(row.req_output_tps - 310 / row.e2e_s) < 1e-6
        said.append(f"{row.req_output_tps:.0f} tok/s")
    return f"flag hidden_first_tokens, TPOT null, {said[0]} (usage per chunk), {said[1]} (at end)"


@entry(
    "A7",
    "sgl-project/sglang#24254",
    "max_tokens 512, stop after 37; the count on an empty finishing chunk",
    "37",
)
def _(folder: Path) -> str:
    got = measure(folder, {"answer": {"tokens": 37, "usage": "finish"}}, osl=512)
    assert got.rows[0].output_tokens == 37
    assert got.records[0]["finish_reason"] == "stop"
    assert got.figures()["tokens"]["output_actual"] == 37
    return f"{got.rows[0].output_tokens} tokens"


@entry(
    "A9",
    "sgl-project/sglang#15732, vllm-project/vllm#44708, gpustack/gpustack#4560",
    "asked 1024 prompt tokens, the server counts 1107",
    "both are there, rates use the server's, more than 1 % off is invalid",
)
def _(folder: Path) -> str:
    got = measure(folder, {"answer": {"prompt_tokens": 1107}}, isl=1024, num_prompts=3)
    tokens = got.figures()["tokens"]
    assert (tokens["input_planned"], tokens["input_actual"]) == (3 * 1024, 3 * 1107)
    figures = got.figures()
    assert abs(figures["input_tok_s"] * figures["window_s"] - 3 * 1107) < 1e-6
    check = got.checks()["input_tokens_vs_plan"]
    assert check.ok is False
    return f"planned 3072, counted 3321; invalid: {check.note}"


@entry(
    "A10",
    "CentML/flexible-inference-bench#66",
    "105 tokens of one space each",
    "105, the server's count; nothing is tokenised again",
)
def _(folder: Path) -> str:
    got = measure(folder, {"answer": {"text": " "}}, osl=105)
    row = got.rows[0]
    assert (row.output_tokens, len(row.chunk_tokens), len(row.itl_s)) == (105, 105, 104)
    return f"{row.output_tokens} tokens, {len(row.itl_s)} ITL values"


@entry(
    "A12",
    "vllm-project/vllm#57519, infiniflow/ragflow#19498",
    "10 tokens, an error event and [DONE]; the same at 0 and 1; a cut; a hang",
    "failed, each with its class; partial tokens apart from all figures",
)
def _(folder: Path) -> str:
    said = []
    for how, name in (("error_after", "stream_error"), ("cut_after", "cut")):
        for count in (0, 1, 10):
            script = {"answer": {how: count, "usage": "continuous"}}
            got = measure(folder / f"{how}{count}", script, osl=16, num_prompts=2)
            assert (got.code, first_error(got)) == (1, name)
            said.append(got)
    hang = {"answer": {"hang_after": 10}}
    said.append(measure(folder / "hang", hang, osl=16, num_prompts=2, timeout_s=0.5))
    assert [row.status for row in said[-1].rows] == ["timed_out"] * 2
    for got in said:
        figures = got.figures()
        assert (figures["ok"], figures["agg_output_tps"]) == (0, None)
        assert (figures["ttft_s"], figures["itl_s"]) == (None, None)
        assert got.checks()["error_share"].ok is False
    return "failed (stream_error), failed (cut), timed_out; 0 ok, rates and latencies null"


@entry(
    "A13",
    "gpustack/gpustack#1677",
    "every request gets 503 twice; apart from that, 10 % always 503; a kept connection that closes",
    "attempts, retries and failures apart; latency from the first try",
)
def _(folder: Path) -> str:
    twice = {"rules": [{"when": {"tries": [0, 2]}, "status": 503, "message": "busy"}]}
    got = measure(folder / "a", twice, num_prompts=5)
    assert [row.status for row in got.rows] == ["failed"] * 5
    assert [row["try"] for row in got.log] == [0] * 5
    share = {"rules": [{"when": {"share": 0.1}, "status": 503, "message": "busy"}]}
    got = measure(folder / "b", share, num_prompts=200, concurrency=4)
    refused = sum(row["status"] == 503 for row in got.log)
    assert got.client["counts"]["failed"] == refused > 0
    assert got.client["counts"]["ok"] == 200 - refused
    assert got.checks()["error_share"].ok is False
    first = f"{refused} of 200 failed, none tried again"
    # One request follows another on a kept connection, which the server drops once.
    dropped = {"rules": [{"when": {"requests": [1, 2], "tries": [0, 1]}, "drop": True}]}
    got = measure(folder / "c", dropped, num_prompts=3)
    assert [row.attempts for row in got.rows] == [1, 2, 1]
    assert got.client["counts"]["retried"] == got.figures()["retried"] == 1
    tries = [row for row in got.log if row["request"] == 1]
    assert [row["ended"] for row in tries] == ["dropped", "done"]
    assert got.records[1]["sent_ns"] <= got.served(got.records[1])["received_ns"]
    return f"{first}; 1 retry of 3, sent_ns that of the first try"


@entry(
    "A15",
    "vllm-project/vllm#52884, #53920, sgl-project/sglang#13934, LMCache/LMBenchmark#35",
    "a prefix cache; the same seed twice, then another; a warm-up before each",
    "hits seen and 1 % or more invalid; another seed and a warm-up hit nothing",
)
def _(folder: Path) -> str:
    warmup = {"isl": 64, "osl": 1, "concurrency": 2, "num_prompts": 2}
    runs = []
    with reference_server(folder, {"answer": {"cached_tokens": "prefix"}}) as (url, log):
        for number, seed in enumerate(("one", "one", "two")):
            more = {"isl": 64, "num_prompts": 8, "warmup": warmup, "seed": seed}
            runs.append(load(folder / str(number), url, log, **more))
    checks = [read_load(*one, log).checks()["unplanned_cache_hits"] for one in runs]
    assert [check.ok for check in checks] == [True, False, True]
    values = [check.value for check in checks]
    assert values == [0.0, 0.75, 0.0]
    return "hit rates {:.0%}, {:.0%} (invalid), {:.0%}".format(*values)


@entry(
    "A16",
    "modelscope/evalscope#1641",
    "the 8 requests that start together have a TTFT of 400 ms, 40 later ones 5 ms",
    "figures without the start beside those of all, and how many are left out",
)
def _(folder: Path) -> str:
    script = {
        "answer": {"ttft_ms": 5},
        "rules": [{"when": {"requests": [0, 8]}, "ttft_ms": 400}],
    }
    got = measure(folder, script, concurrency=8, num_prompts=48, osl=1)
    segment = got.segment()
    steady = segment["steady"]
    assert (steady["excluded"], steady["requests"]) == (8, 40)
    times = [row.ttft_s or 0.0 for row in sorted(got.rows, key=lambda row: row.sent_ns or 0)]
    assert min(times[:8]) >= 0.4
    assert segment["metrics"]["ttft_s"]["max"] == max(times)
    assert steady["ttft_s"]["max"] == max(times[8:])
    one = measure(folder / "one", script, concurrency=8, num_prompts=8, osl=1).segment()
    assert (one["steady"]["excluded"], one["steady"]["ttft_s"]) == (8, None)
    whole = segment["metrics"]["ttft_s"]["p99"]
    return f"TTFT P99 {ms(whole)} of all, {ms(steady['ttft_s']['p99'])} without the first 8"


@entry(
    "A18",
    "vllm-project/vllm#6531",
    "a 2-token request with a gap of 500 ms, a 200-token request at 2 ms",
    "ITL is over tokens, TPOT over requests; the definitions are stored beside the numbers",
)
def _(folder: Path) -> str:
    script = {
        "answer": {"gap_ms": 2},
        "rules": [{"when": {"requests": [0, 1]}, "gap_ms": 500, "tokens": 2}],
    }
    got = measure(folder, script, osl=200, num_prompts=2)
    figures = got.figures()
    assert (figures["itl_s"]["n"], figures["tpot_s"]["n"]) == (200, 2)
    gaps = np.concatenate([row.itl_s for row in got.rows])
    assert abs(figures["itl_s"]["mean"] - gaps.mean()) < 1e-12
    assert figures["tpot_s"]["mean"] == np.mean([row.tpot_s or 0.0 for row in got.rows])
    text = definitions()["figures"]
    assert "per token" in text["ITL"]
    assert "per request" in text["TPOT"]
    itl, tpot = figures["itl_s"]["mean"], figures["tpot_s"]["mean"]
    return f"ITL mean {ms(itl)} over 200 gaps, TPOT mean {ms(tpot)} over 2 requests"


@entry(
    "A19",
    "kubernetes-sigs/inference-perf#580",
    "60 % of the prompts are counted as 979 for 1024",
    "how many differ is in the check; over the tolerance it is invalid",
)
def _(folder: Path) -> str:
    script = {"rules": [{"when": {"requests": [0, 6]}, "prompt_tokens": 979}]}
    got = measure(folder, script, isl=1024, num_prompts=10)
    check = got.checks()["input_tokens_vs_plan"]
    assert (check.value, check.ok) == (0.6, False)
    assert sum("prompt_tokens_differ" in row.flags for row in got.rows) == 6
    return f"invalid: {check.note}"


@entry(
    "B20",
    "vllm-project/vllm#11996, #39863, #16259, #21728",
    "/health and /v1/models answer 200, completions never do; gauges say 0 running, 3 waiting",
    "not ready: only a one-token completion is; a load ends in bounded time; a stall is invalid",
)
def _(folder: Path) -> str:
    model = ModelSpec(name="reference", path="/m", context=64, vocab=(300, 4000))
    with reference_server(folder, {"answer": {"ttft_ms": 1e8}}) as (url, log):
        node = LocalNode("head", agent_dir=folder / "node")
        endpoints = get_engine("vllm").endpoints(url)
        check = check_completion(node, endpoints, model, 0.5)
        assert check.ok is False
        hung = load(folder, url, log, num_prompts=4, concurrency=2, timeout_s=0.3)
    got = read_load(*hung, log)
    assert [row.status for row in got.rows] == ["timed_out"] * 4
    with reference_server(folder / "well", {}) as (url, _):
        good = check_completion(node, get_engine("vllm").endpoints(url), model, 20)
        gates = run_gates(node, get_engine("vllm"), url, model, timeout_s=20)
    assert good.ok is True
    # Even then it is never taken for an engine.
    assert [check.name for check in gates.checks if check.ok is False] == ["model"]
    own = engine_metrics()["vllm"]
    gauges = ((own.running, 0.0), (own.waiting, 3.0))
    seconds = np.arange(61) * 10**9
    stall = [
        AlignedSeries(
            *("n", "engine_metrics", "server", name, "1", "main"),
            t_ns=seconds,
            from_ns=None,
            value=np.full(61, value),
            inside=np.ones(61, np.bool_),
        )
        for name, value in gauges
    ]
    (stalled,) = check_stalled(stall, default_limits())
    assert (stalled.value, stalled.ok) == (60.0, False)
    gate = check.evidence.rpartition(": ")[2]
    return f"gate: {gate}; load: 4 of 4 timed_out; stalled for 60 s (simulated gauges): invalid"


@entry(
    "B22",
    "vllm-project/vime#90",
    "a log that goes on at 290 s (simulated clock), ready at 340 s; one that falls silent; a death",
    "ready; given up after the longest silence; given up at once",
)
def _(_folder: Path) -> str:
    def wait(ready_s: float, silent_s: float, dead_s: float = 1e9) -> Any:
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        return wait_ready(
            lambda: Check("completion", now[0] >= ready_s, "no answer"),
            lambda: now[0] < dead_s,
            lambda: f"Capturing CUDA graphs {now[0]:.0f}\n" if now[0] < silent_s else "",
            start_timeout_s=60,
            clock=lambda: now[0],
            sleep=sleep,
        )

    slow, silent, dead = wait(340, 330), wait(1e9, 290), wait(1e9, 1e9, 100)
    assert slow.ok
    assert 340 <= slow.waited_s < 341
    assert not silent.ok
    assert 349 <= silent.waited_s < 351
    assert not dead.ok
    assert 100 <= dead.waited_s < 101
    waits = [f"{one.waited_s:.0f} s" for one in (slow, silent, dead)]
    return "ready after {}; silent: given up after {}; dead: after {}".format(*waits)


CLIENTS = "the semantics table of public clients, row"
CHAT: dict[str, Any] = {"endpoint": "/v1/chat/completions", "chat": {"roles": ["user"]}}


@entry(
    "S-a",
    f"{CLIENTS} a",
    "chat: a role-only chunk at 20 ms, content from 100 ms, 20 ms apart",
    "TTFT of the first content, one ITL value a gap",
)
def _(folder: Path) -> str:
    script = {"answer": {"role_ms": 20, "ttft_ms": 100, "gap_ms": 20}}
    got = measure(folder, script, osl=16, num_prompts=16, isl=64, concurrency=4, **CHAT)
    got.check_causality()
    for row, record in zip(got.rows, got.records, strict=True):
        assert record["kinds"] == "r" + "t" * 16 + "ud"
        assert row.first_ns == record["t_ns"][1]
        assert (row.status, len(row.itl_s)) == ("ok", 15)
    figures = got.figures()
    return f"TTFT p50 {ms(figures['ttft_s']['p50'])}, TPOT p50 {ms(figures['tpot_s']['p50'])}"


@entry(
    "S-b",
    f"{CLIENTS} b",
    "4 tokens every 100 ms, 64 in all; usage on every chunk, then at the end only",
    "ITL 25 ms; tokens 64; the gaps of 100 ms are kept apart",
)
def _(folder: Path) -> str:
    said = []
    for usage in ("continuous", "final"):
        script = {"answer": {"ttft_ms": 50, "gap_ms": 100, "chunk": 4, "usage": usage}}
        got = measure(folder / usage, script, osl=64, num_prompts=4, concurrency=4)
        for row in got.rows:
            assert row.chunk_tokens.tolist() == [4] * 16
            assert np.allclose(row.itl_s, np.repeat(row.chunk_gap_s, 4) / 4)
        figures = got.figures()
        gap, itl = figures["chunk_gap_s"]["p50"], figures["itl_s"]["p50"]
        assert figures["itl_s"]["n"] == 4 * 60
        said.append(f"ITL p50 {ms(itl)}, gap {ms(gap)}")
    return "; ".join(said)


@entry(
    "S-d",
    f"{CLIENTS} d",
    "200, [DONE] and nothing else; the same with a usage that claims tokens",
    "failed (empty), no latency, no rate",
)
def _(folder: Path) -> str:
    for number, answer in enumerate(({"tokens": 0, "usage": "none"}, {"tokens": 0})):
        got = measure(folder / str(number), {"answer": answer}, num_prompts=16, concurrency=4)
        assert {record["error"]["class"] for record in got.records} == {"empty"}
        figures = got.figures()
        assert (figures["ok"], figures["failed"]) == (0, 16)
        assert (figures["ttft_s"], figures["agg_output_tps"]) == (None, None)
    return "16 of 16 failed (empty), TTFT and tok/s null"


@entry(
    "S-e",
    f"{CLIENTS} e",
    "503 to 30 % of 40 requests",
    "as many failed as the server refused, the others ok",
)
def _(folder: Path) -> str:
    script = {"rules": [{"when": {"share": 0.3}, "status": 503, "message": "busy"}]}
    got = measure(folder, script, num_prompts=40, concurrency=4)
    refused = sum(row["status"] == 503 for row in got.log)
    figures = got.figures()
    assert (figures["ok"], figures["failed"]) == (40 - refused, refused)
    assert {record["http_status"] for record in got.records} == {200, 503}
    return f"{40 - refused} ok, {refused} failed"


@entry(
    "S-f",
    f"{CLIENTS} f",
    "every frame cut in its middle, or inside a character, the rest 3 ms later",
    "one token a frame, none lost, no error",
)
def _(folder: Path) -> str:
    for split in ("middle", "character"):
        answer = {"gap_ms": 20, "text": " é", "split": split, "split_ms": 3}
        got = measure(folder / split, {"answer": answer}, osl=16, num_prompts=4, concurrency=4)
        got.check_causality()
        assert {record["kinds"] for record in got.records} == {"t" * 16 + "ud"}
        assert {(row.status, row.output_tokens) for row in got.rows} == {("ok", 16)}
    return "16 tokens, 15 ITL values each, ok"


@entry(
    "S-g",
    f"{CLIENTS} g",
    "chat: nothing but reasoning, as reasoning_content and as reasoning",
    "counted and timed as output",
)
def _(folder: Path) -> str:
    for field in ("reasoning_content", "reasoning"):
        answer = {"ttft_ms": 20, "gap_ms": 5, "reasoning": 16, "reasoning_field": field}
        got = measure(folder / field, {"answer": answer}, osl=16, isl=64, **CHAT)
        (row,), (record,) = got.rows, got.records
        assert record["kinds"] == "k" * 16 + "ud"
        assert (row.status, row.output_tokens, row.reasoning_tokens) == ("ok", 16, 16)
        assert (row.first_ns, row.first_text_ns) == (record["t_ns"][0], None)
    return "16 tokens of reasoning, TTFT at the first, no first text"
