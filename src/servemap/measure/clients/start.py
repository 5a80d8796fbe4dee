"""From a case that names a load client of others to what the node is asked to run."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from servemap.engines.base import on_node, program
from servemap.measure.clients import aiperf, sglang_bench, vllm_bench
from servemap.measure.clients.base import Adapter, Order, seed_number

ADAPTERS: dict[str, Adapter] = {
    "vllm-bench": vllm_bench.ADAPTER,
    "sglang-bench": sglang_bench.ADAPTER,
    "aiperf": aiperf.ADAPTER,
}

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Else a client's lines would come when its buffer is full, long after they were said."""

# perf_counter tells whether the client's own stamps are of the machine's monotonic clock.
_PROBE = (
    "import importlib.metadata as m, json, platform, time; print(json.dumps({{"
    "'version': m.version({package!r}), 'python': platform.python_version(), "
    "'perf_counter': time.get_clock_info('perf_counter').implementation}}))"
)


def client_spec(
    case: Mapping[str, Any],
    load: Mapping[str, Any],
    *,
    engine: str,
    model_path: str,
    folder: str,
    workdir: str,
) -> dict[str, Any]:
    """Return the key `client` of the specification of `onnode run-client`.

    Args:
        case: the resolved case; its `client` is that of `resolve.resolved_case`.
        load: the LoadSpec of the case (see `load.load_spec`).
        engine: the server's engine.
        model_path: the campaign's `model.path`.
        folder: absolute folder on the node for the client's own files.
        workdir: absolute folder on the node that relative paths of the campaign lie in.
    """
    client = case["client"]
    adapter = ADAPTERS[client["name"]]
    python = program(client["python"], workdir)
    order = Order(
        url=load["url"],
        endpoint=load["endpoint"],
        engine=engine,
        model=load["model"],
        tokenizer=on_node(client["tokenizer"] or model_path, workdir),
        isl=case["isl"],
        osl=case["osl"],
        concurrency=case["concurrency"],
        num_prompts=case["num_prompts"],
        timeout_s=load["timeout_s"],
        seed=seed_number(load["seed"]),
        request=load["request"],
        folder=folder,
    )
    host = urlsplit(load["url"]).hostname or ""
    return {
        "name": client["name"],
        "argv": [python, *adapter.words(order), *client["args"]],
        "env": {**UNBUFFERED, "no_proxy": host, "NO_PROXY": host, **adapter.env, **client["env"]},
        "cwd": folder,
        "probe": [python, "-c", _PROBE.format(package=adapter.package)],
        "marks": dict(adapter.marks),
    }
