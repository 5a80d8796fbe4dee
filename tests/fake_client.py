"""A made-up Python whose `vllm bench serve` measures nothing: it writes what a test asks for.

`make(folder, MODE)` gives the path for a campaign's `clients.vllm-bench.python`. MODE is one of
MODES, or `by-osl`, where the output length of the case chooses one. `slow` goes on once there is
a file `go` beside it.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

PROBED = {
    "version": "0.0.fake",
    "python": "3.11.7",
    "perf_counter": "clock_gettime(CLOCK_MONOTONIC)",
}
BEGIN = "Starting main benchmark run..."
END = "============ Serving Benchmark Result ============"

MODES = ("ok", "dies", "cut", "hang", "slow", "all-failed", "one-failed", "disagrees", "no-stamps")


def make(folder: Path, mode: str = "ok") -> Path:
    """Write the interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"python-{mode}"
    root = Path(__file__).parents[1]
    path.write_text(
        f"#!{sys.executable}\n"
        f"import sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from tests.fake_client import main\nsys.exit(main({mode!r}, sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    return path


def result(
    count: int, isl: int, osl: int, start_s: float, duration_s: float, failed: int = 0
) -> dict[str, Any]:
    """Return a result as `vllm bench serve --save-detailed` writes it, of equal requests.

    The first `failed` ones failed. TTFT is a fifth of the duration, the rest are equal gaps.
    """
    ttft = duration_s / 5
    gap = (duration_s - ttft) / max(osl - 1, 1)
    good = count - failed
    latency = ttft + gap * (osl - 1)
    one = {"ttft": ttft, "itl": gap, "tpot": gap, "e2el": latency}
    statistics = {
        f"{name}_{series}_ms": value * 1000 if good else 0.0
        for series, value in one.items()
        for name in ("mean", "median", "p99")
    }
    return {
        "backend": "vllm",
        "request_rate": "inf",
        "num_prompts": count,
        "duration": duration_s,
        "completed": good,
        "failed": failed,
        "total_input_tokens": good * isl,
        "total_output_tokens": good * osl,
        "request_throughput": good / duration_s,
        "output_throughput": good * osl / duration_s,
        "total_token_throughput": good * (isl + osl) / duration_s,
        "input_lens": [isl] * count,
        "output_lens": [0] * failed + [osl] * good,
        "ttfts": [0.0] * failed + [ttft] * good,
        "itls": [[] for _ in range(failed)] + [[gap] * (osl - 1) for _ in range(good)],
        "latencies": [0.0] * failed + [latency] * good,
        "start_times": [start_s] * count,
        "queue_times": [0.0] * count,
        "errors": ["Traceback\nOSError: no way"] * failed + [""] * good,
        **statistics,
    }


def main(mode: str, argv: list[str]) -> int:
    """Be the interpreter of an environment that has the client, more or less."""
    if argv[0] == "-c":
        print(json.dumps(PROBED))
        return 0
    given = dict(pairwise(argv))
    out = Path(given["--result-dir"], given["--result-filename"])
    count = int(given["--num-prompts"])
    isl, osl = int(given["--random-input-len"]), int(given["--random-output-len"])
    if mode == "by-osl":
        mode = MODES[osl - 2]
    print("INFO something before")
    print(BEGIN)
    start_s, duration_s = time.perf_counter(), 0.2
    if mode == "hang":
        time.sleep(600)
    if mode == "slow":
        while not Path(sys.argv[0]).with_name("go").exists():
            time.sleep(0.05)
    if mode == "dies":
        print("ValueError: this is why", file=sys.stderr)
        return 3
    time.sleep(duration_s)
    failed = {"one-failed": 1, "all-failed": count}.get(mode, 0)
    record = result(count, isl, osl, start_s, duration_s, failed)
    if mode == "disagrees":
        record["mean_ttft_ms"] *= 1.01
    if mode == "no-stamps":
        del record["start_times"], record["queue_times"]
    text = json.dumps(record)
    out.write_text(text[: len(text) // 2] if mode == "cut" else text)
    print(END)
    return 0
