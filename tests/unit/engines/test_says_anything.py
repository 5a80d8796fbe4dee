"""Whatever a server's log and answers say of its settings can be stored and compared."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from servemap.engines import sglang_log
from servemap.engines.base import Attachable
from servemap.engines.llamacpp import LlamaCpp
from servemap.engines.sglang import SGLang
from servemap.engines.vllm import Vllm
from servemap.model.files import parse_json
from servemap.server.gates.readback import compare

ASKED = {"context": 100, "max_active": 4, "memory_fraction": 0.5, "kv_dtype": "fp8", "tp": 2}
ODD = ["1e999", "-1e999", "nan", "inf", "9" * 400, "b'x'", "{1, 2}", "2j", "[1e999]", '"\\ud83d"']


def stored(adapter: Attachable, log: str, models: Any, info: dict[str, Any]) -> dict[str, Any]:
    found = adapter.read_back(log, models, info)
    json.dumps(asdict(found), allow_nan=False)
    for check in compare(ASKED, found):
        json.dumps(check.record(), allow_nan=False)
    return found.settings


@pytest.mark.parametrize("word", ODD)
def test_vllms_log_and_metrics(word: str) -> None:
    log = (
        f"Initializing a V1 LLM engine (v1) with config: max_seq_len={word}, dtype={word}\n"
        f"non-default args: {{'max_num_seqs': {word}, 'gpu_memory_utilization': {word}}}\n"
    )
    metrics = f'vllm:cache_config_info{{gpu_memory_utilization="{word}",cache_dtype="{word}"}} 1'
    stored(Vllm(), log, None, {"metrics": metrics})
    stored(Vllm(), log, None, {})


@pytest.mark.parametrize("word", ODD)
def test_sglangs_log_and_answer(word: str) -> None:
    names = sorted({*sglang_log._READ})
    log = f"server_args={{{', '.join(f'{name!r}: {word}' for name in names)}}}"
    stored(SGLang(), log, None, {})
    try:
        value = parse_json(word)
    except ValueError:
        return
    stored(SGLang(), "", {"data": [{"id": "m", "max_model_len": value}]}, {
        "server_info": dict.fromkeys(names, value) | {"internal_states": [{"a": value}]},
    })  # fmt: skip


def test_llamacpps_start_line() -> None:
    log = 'llamaserve: starting {"settings": {"context": 1e999, "n_batch": [1e999]}}'
    assert stored(LlamaCpp(), log, None, {})["context"] is None


def test_a_number_that_is_none_stays_a_word() -> None:
    metrics = 'vllm:cache_config_info{gpu_memory_utilization="nan"} 1'
    assert stored(Vllm(), "", None, {"metrics": metrics})["memory_fraction"] == "nan"
