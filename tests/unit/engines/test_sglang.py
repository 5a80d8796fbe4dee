import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.engines.base import Placement, RankMemory
from servemap.engines.log_text import GIB
from servemap.engines.sglang import SGLang
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ModelSpec, ServerSpec, Settings, Topology
from tests.parts import need

ENGINE = SGLang()
MODEL = ModelSpec(name="tiny", path="/models/tiny", context=2048)


def spec(**keys: Any) -> ServerSpec:
    return ServerSpec(engine="sglang", port=30000, **keys)


def argv(server: ServerSpec, placement: Placement | None = None) -> list[str]:
    given = placement or Placement("n1")
    return ENGINE.argv(server, MODEL, given, python="/py", workdir="/w")


def test_argv_of_one_process() -> None:
    assert argv(spec()) == [
        "/py", "-m", "sglang.launch_server", "--model-path", "/models/tiny",
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", "30000",
        "--context-length", "2048", "--enable-metrics", "--enable-cache-report",
    ]  # fmt: skip


def test_every_setting_is_spelled() -> None:
    given = Settings(
        context=8192, max_active=16, memory_fraction=0.8, kv_dtype="fp8_e4m3", prefix_cache=False,
        chunked_prefill=True, max_batched_tokens=4096, cuda_graph=False,
        attention_backend="triton", moe_backend="triton", speculative_method="EAGLE",
        speculative_model="/models/draft", speculative_tokens=4, tool_parser="qwen25",
        reasoning_parser="qwen3", chat_template="chat.jinja",
    )  # fmt: skip
    words = argv(spec(settings=given, args={"trust-remote-code": True, "enable-metrics": True}))
    assert words[words.index("--context-length") :] == [
        "--context-length", "8192", "--max-running-requests", "16",
        "--mem-fraction-static", "0.8", "--kv-cache-dtype", "fp8_e4m3",
        "--chunked-prefill-size", "4096", "--attention-backend", "triton",
        "--moe-runner-backend", "triton", "--speculative-algorithm", "EAGLE",
        "--speculative-draft-model-path", "/models/draft", "--speculative-num-draft-tokens", "4",
        "--tool-call-parser", "qwen25", "--reasoning-parser", "qwen3",
        "--chat-template", "chat.jinja", "--disable-radix-cache", "--disable-cuda-graph",
        "--enable-cache-report", "--trust-remote-code", "--enable-metrics",
    ]  # fmt: skip
    assert set(given.model_dump(exclude_none=True)) == set(Settings.model_fields)
    words = argv(spec(settings=Settings(chunked_prefill=False)))
    assert words[words.index("--chunked-prefill-size") + 1] == "-1"


def test_two_nodes_meet_on_the_address_of_the_head() -> None:
    server = spec(nodes=["a", "b"], topology=Topology(tp=16, dp=2, ep=16))
    words = argv(server, Placement("b", 1, 2, "10.0.0.2", "10.0.0.1", 29511))
    at = words.index("--tp-size")
    assert words[at : at + 12] == [
        "--tp-size", "16", "--dp-size", "2", "--ep-size", "16",
        "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:29511",
    ]  # fmt: skip
    six = argv(server, Placement("b", 1, 2, "fd00::2", "fd00::1", 29511))
    assert "[fd00::1]:29511" in six
    assert ENGINE.defaults(Placement("a"))["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"args": {"tp": 2}}, "server.args.tp"),
        ({"args": {"dist_init_addr": "x:1"}}, "server.args.dist_init_addr"),
        (
            {
                "args": {"chunked-prefill-size": 4096},
                "settings": Settings(max_batched_tokens=8192),
            },
            "server.args.chunked-prefill-size",
        ),
        (
            {"args": {"chunked-prefill-size": 4096}, "settings": Settings(chunked_prefill=False)},
            "server.args.chunked-prefill-size",
        ),
        (
            {"settings": Settings(chunked_prefill=False, max_batched_tokens=8192)},
            "server.settings.max_batched_tokens",
        ),
        (
            {"args": {"disable-radix-cache": True}, "settings": Settings(prefix_cache=True)},
            "server.args.disable-radix-cache",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_key(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        argv(spec(**keys))
    assert error.value.where == key


def test_nodes_that_cannot_share_the_processes_evenly_are_refused() -> None:
    with pytest.raises(ConfigError, match="tp x pp is 3, which 2 nodes cannot share"):
        argv(spec(topology=Topology(tp=3)), Placement("a", 0, 2))


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ({"chunked-prefill-size": 4096}, {"max_batched_tokens": 4096}),
        ({"chunked-prefill-size": -1}, {"chunked_prefill": False}),
        ({"disable_cuda_graph": True, "context-length": 9}, {"cuda_graph": False, "context": 9}),
    ],
)
def test_what_is_asked_by_free_arguments(args: dict[str, Any], asked: dict[str, Any]) -> None:
    sizes = {"tp": 1, "dp": 1, "pp": 1, "ep": 1}
    found = ENGINE.asked(spec(args=args), MODEL)
    assert found == {"context": 2048} | asked | sizes
    assert argv(spec(args=args)).count("--context-length") == 1


# In the form of SGLang 0.5, shortened.
LOG = """\
[2026-11-29 10:00:00] server_args=ServerArgs(model_path='/m', dtype='auto', quantization=None, \
context_length=4096, kv_cache_dtype='auto', mem_fraction_static=0.85, max_running_requests=50, \
chunked_prefill_size=8192, max_prefill_tokens=16384, page_size=1, disable_radix_cache=False, \
tp_size=2, dp_size=2, pp_size=1, ep_size=1, attention_backend='flashinfer', \
moe_runner_backend='auto', disable_cuda_graph=False)
[2026-11-29 10:00:01 TP1] Load weight begin. avail mem=70.00 GB
[2026-11-29 10:00:01 TP0] Load weight begin. avail mem=70.00 GB
[2026-11-29 10:00:02 TP0] Load weight end. elapsed=1 s, type=X, avail mem=60.00 GB, \
mem usage=10.00 GB.
[2026-11-29 10:00:03 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1000, \
K size: 4.00 GB, V size: 4.00 GB
[2026-11-29 10:00:04 TP0] Capture cuda graph end. Time elapsed: 3 s. mem usage=1.50 GB. avail
[2026-11-29 10:00:04 TP0] Capture target verify CUDA graph end. elapsed=3.00 s, mem usage=0.50 GB
[2026-11-29 10:00:05 TP0] max_total_num_tokens=1000, chunked_prefill_size=8192, \
max_prefill_tokens=16384, max_running_requests=24, context_len=4096, available_gpu_mem=49.00 GB
"""
INFO = {
    "version": "0.5.23",
    "context_length": 4096,
    "tp_size": 2,
    "dp_size": 1,
    "max_running_requests": 12,
    "disable_radix_cache": True,
    "chunked_prefill_size": -1,
    "max_prefill_tokens": 16384,
    "attention_backend": "triton",
    "decode_attention_backend": "flashinfer",
    "prefill_attention_backend": None,
    "cuda_graph_config": {"decode": {"backend": "disabled"}},
    "max_total_num_tokens": 777,
    "model_path": ["x"],
}


def test_read_back_of_a_log() -> None:
    found = ENGINE.read_back(LOG, None, {})
    assert found.engine_version is None
    assert found.settings == {
        "context": 4096, "tp": 2, "dp": 2, "pp": 1, "ep": 1, "memory_fraction": 0.85,
        "max_active": 48, "kv_dtype": "auto", "attention_backend": "flashinfer",
        "moe_backend": "auto", "page_size": 1, "dtype": "auto", "prefix_cache": True,
        "chunked_prefill": True, "max_batched_tokens": 8192, "cuda_graph": True, "kv_tokens": 1000,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["server_info", "get_server_info"])
def test_read_back_of_the_servers_answer_under_either_name(name: str) -> None:
    assert ENGINE.endpoints("http://x:1").info[name] == f"http://x:1/{name}"
    found = ENGINE.read_back("", {"data": [{"id": "tiny", "max_model_len": 4096}]}, {name: INFO})
    assert (found.engine_version, found.model_names, found.context) == ("0.5.23", ("tiny",), 4096)
    assert found.settings == {
        "context": 4096, "tp": 2, "dp": 1, "max_active": 12, "prefix_cache": False,
        "chunked_prefill": False, "max_batched_tokens": 16384, "cuda_graph": False,
        "attention_backend": "triton+flashinfer", "kv_tokens": 777,
    }  # fmt: skip


def test_memory_of_each_rank() -> None:
    assert ENGINE.memory(LOG) == (
        RankMemory("TP0", 10 * GIB, 8 * GIB, 2 * GIB, GIB),
        RankMemory("TP1"),
    )


def test_a_changed_mind_is_a_note() -> None:
    log = "[2025-12-31 09:49:48] WARNING server_args.py:1826: Cuda graph is disabled because x\n"
    (note,) = ENGINE.read_back(log, None, {}).notes
    assert note.endswith("Cuda graph is disabled because x")


PIECES = [*LOG.splitlines(), "server_args=ServerArgs(", "max_total_num_tokens=", "\r"]


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text()), max_size=6).map("\n".join),
    st.dictionaries(
        st.sampled_from(sorted(INFO)),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text()
        | st.dictionaries(st.just("decode"), st.none() | st.dictionaries(st.text(), st.none())),
    )
    | st.lists(st.none())
    | st.text(),
    st.integers(0, len(LOG)),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_garbage_never_raises(text: str, answer: Any, cut: int) -> None:
    for log in (text, LOG[:cut] + text, LOG[cut:]):
        found = ENGINE.read_back(log, answer, {"server_info": answer})
        json.dumps([found.settings, found.notes])
        ENGINE.memory(log)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "007_sglang_int4_ok",
            {"context": 65536, "max_active": 48, "attention_backend": "flashinfer",
             "kv_tokens": 185897, "cuda_graph": True, "max_batched_tokens": 8192},
        ),
        ("009_sglang_capture_hang_2", {"memory_fraction": 0.88, "cuda_graph": True}),
        (
            "017_sglang_ascend_pd_prefill_error",
            {"tp": 32, "ep": 32, "prefix_cache": False, "chunked_prefill": False,
             "cuda_graph": False, "attention_backend": "ascend"},
        ),
    ],
)  # fmt: skip
def test_recorded_logs(name: str, said: dict[str, Any]) -> None:
    log = Path(need("corpus"), "server_logs", f"{name}.log").read_text(errors="replace")
    found = ENGINE.read_back(log, None, {})
    assert {key: found.settings.get(key) for key in said} == said


def test_recorded_memory() -> None:
    """A draft model counts with the model; of the two pools, each holds keys and values."""
    folder = Path(need("corpus"), "server_logs")
    (rank,) = ENGINE.memory((folder / "007_sglang_int4_ok.log").read_text())
    sizes = (rank.weights_bytes, rank.kv_bytes, rank.graphs_bytes, rank.rest_bytes)
    assert [round((size or 0) / GIB, 2) for size in sizes] == [69.14, 33.18, 6.29, 0.53]
    ranks = ENGINE.memory((folder / "017_sglang_ascend_pd_prefill_error.log").read_text())
    assert [rank.rank for rank in ranks] == [f"TP{n} EP{n}" for n in range(16)]


# Of a server without a card that was started here with `--device cpu --context-length 2048
# --max-total-tokens 32768`; the answer is shortened to what is read, the log to its first requests.
RECORDED = Path(__file__).with_name("recorded")


def test_what_it_recorded_of_itself_without_a_card() -> None:
    """Nothing was said of graphs and of requests at once: the arguments' word is not enough."""
    log = (RECORDED / "sglang_0.5.23_cpu.log").read_text()
    info = json.loads((RECORDED / "sglang_0.5.23_cpu_server_info.json").read_text())
    printed = {
        "context": 2048, "tp": 1, "dp": 1, "pp": 1, "ep": 1, "memory_fraction": 0.716,
        "max_active": 4096, "kv_dtype": "auto", "attention_backend": "torch_native",
        "moe_backend": "auto", "page_size": 1, "dtype": "float32", "prefix_cache": True,
        "chunked_prefill": True, "max_batched_tokens": 4096, "cuda_graph": True,
        "kv_tokens": 32768,
    }  # fmt: skip
    assert ENGINE.read_back(log, None, {}).settings == printed
    said = printed | {"cuda_graph": False}
    for text in (log, ""):
        assert ENGINE.read_back(text, None, {"server_info": info}).settings == said
    found = ENGINE.read_back(log, None, {"server_info": info})
    assert found.engine_version == "0.5.23"
    assert found.notes == (
        "The current platform does not support Intel AMX, will fallback to torch_native backend.",
    )
    (rank,) = ENGINE.memory(log)
    assert rank == RankMemory("TP0", kv_bytes=2 * round(0.06 * GIB))


@pytest.mark.parametrize("states", [None, {}, [], [None], [{"decode_cuda_graph_bs": None}]])
def test_schedulers_that_say_nothing_change_nothing(states: Any) -> None:
    found = ENGINE.read_back("", None, {"server_info": {**INFO, "internal_states": states}})
    assert found.settings == ENGINE.read_back("", None, {"server_info": INFO}).settings
