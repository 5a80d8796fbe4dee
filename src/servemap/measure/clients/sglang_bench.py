"""SGLang's serving bench: command and marks, after 0.5.23 (sglang/benchmark/serving.py)."""

import json

from servemap.measure.clients.base import Adapter, Order
from servemap.parsers.clients.sglang_bench import RESULT


def words(order: Order) -> list[str]:
    """Return its command.

    `random-ids` needs no data set from elsewhere. `--model` names the tokenizer, in which it looks
    for a chat template; the served name goes to the server.
    """
    return [
        "-m", "sglang.benchmark.serving",
        "--backend", "sglang-oai" if order.engine == "sglang" else "vllm",
        "--base-url", order.url,
        "--model", order.tokenizer,
        "--served-model-name", order.model,
        "--tokenizer", order.tokenizer,
        "--dataset-name", "random-ids",
        "--random-input-len", str(order.isl),
        "--random-output-len", str(order.osl),
        "--random-range-ratio", "1.0",
        "--num-prompts", str(order.num_prompts),
        "--max-concurrency", str(order.concurrency),
        "--seed", str(order.seed),
        "--extra-request-body", json.dumps(dict(order.request)),
        "--warmup-requests", "0",
        "--ready-check-timeout-sec", "0",
        "--disable-tqdm",
        "--output-details",
        "--output-file", f"{order.folder}/{RESULT}",
    ]  # fmt: skip


ADAPTER = Adapter(
    package="sglang",
    words=words,
    marks={
        "begin": r"^Warmup completed with \d+ sequences\. Starting main benchmark run\.\.\.",
        "end": r"^=+ Serving Benchmark Result =+$",
    },
    # `await asyncio.sleep(1.0)` stands between the mark and the first request.
    pause_s=1.0,
)
