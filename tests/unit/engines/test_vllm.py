import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.engines.base import Placement, RankMemory, python_env
from servemap.engines.log_text import GIB
from servemap.engines.module_start import module_path, python_module
from servemap.engines.vllm import Vllm
from servemap.model.errors import ConfigError
from servemap.model.server_spec import (
    ModelSpec,
    Package,
    Secret,
    ServerSpec,
    Settings,
    Topology,
)
from tests.parts import need

ENGINE = Vllm()
MODEL = ModelSpec(name="tiny", path="model", context=2048)
ALL = Settings(
    context=8192,
    max_active=16,
    memory_fraction=0.3,
    kv_dtype="fp8",
    prefix_cache=True,
    chunked_prefill=False,
    max_batched_tokens=9000,
    cuda_graph=False,
    attention_backend="FLASHINFER",
    moe_backend="triton",
    speculative_method="eagle3",
    speculative_model="/models/draft",
    speculative_tokens=3,
    tool_parser="hermes",
    reasoning_parser="qwen3",
    chat_template="chat.jinja",
)


def spec(**keys: Any) -> ServerSpec:
    return ServerSpec(engine="vllm", port=8000, **keys)


def argv(server: ServerSpec, placement: Placement | None = None) -> list[str]:
    given = placement or Placement("n1")
    return ENGINE.argv(server, MODEL, given, python="/py", workdir="/w")


def test_argv_of_one_process() -> None:
    assert argv(spec()) == [
        "/py", "-m", "vllm.entrypoints.openai.api_server", "--model", "/w/model",
        "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", "8000",
        "--max-model-len", "2048", "--enable-prompt-tokens-details",
    ]  # fmt: skip


def test_every_setting_is_spelled() -> None:
    words = argv(spec(settings=ALL))
    at = words.index("--max-model-len")
    assert words[at:-2] == [
        "--max-model-len", "8192", "--max-num-seqs", "16", "--gpu-memory-utilization", "0.3",
        "--kv-cache-dtype", "fp8", "--max-num-batched-tokens", "9000",
        "--attention-backend", "FLASHINFER", "--moe-backend", "triton",
        "--spec-method", "eagle3", "--spec-model", "/models/draft", "--spec-tokens", "3",
        "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3",
        "--chat-template", "chat.jinja",
        "--enable-prefix-caching", "--no-enable-chunked-prefill", "--enforce-eager",
    ]  # fmt: skip
    assert set(ALL.model_dump()) == set(Settings.model_fields)
    assert "--enforce-eager" not in argv(spec(settings=Settings(cuda_graph=True)))


def test_sizes_and_the_rest_of_the_arguments() -> None:
    words = argv(
        spec(
            topology=Topology(tp=4, ep=4),
            args={"tool-call-parser": "qwen3_coder", "enable_prompt_tokens_details": False},
        )
    )
    assert words[words.index("--tensor-parallel-size") + 1] == "4"
    assert "--enable-expert-parallel" in words
    assert "--pipeline-parallel-size" not in words
    assert words[-3:] == ["--tool-call-parser", "qwen3_coder", "--no-enable-prompt-tokens-details"]
    assert "--enable-prompt-tokens-details" not in words


def test_ranks_of_several_nodes_meet_at_the_head_and_only_it_answers() -> None:
    server = spec(nodes=["a", "b"], topology=Topology(tp=2))
    head = argv(server, Placement("a", 0, 2, "10.0.0.1", "10.0.0.1", 29511))
    worker = argv(server, Placement("b", 1, 2, "10.0.0.2", "10.0.0.1", 29511))
    assert head[:5] == ["/py", "-m", "vllm.entrypoints.cli.main", "serve", "/w/model"]
    at = worker.index("--nnodes")
    assert worker[at : at + 9] == [
        "--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--master-port", "29511",
        "--headless",
    ]  # fmt: skip
    assert "--headless" not in head
    assert argv(spec(topology=Topology(dp=2)))[2:4] == ["vllm.entrypoints.cli.main", "serve"]


def test_variables_that_a_measurement_needs_and_those_of_the_spec() -> None:
    assert ENGINE.defaults(Placement("b", 1, 2, "10.0.0.2", "10.0.0.1")) == {
        "SPT_NOENV": "1",
        "PYTHONFAULTHANDLER": "1",
        "VLLM_HOST_IP": "10.0.0.2",
        "VLLM_SERVER_DEV_MODE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
    }
    secret = Secret(secret="HF_TOKEN")
    env = python_env(spec(env={"NCCL_DEBUG": "WARN", "HF_TOKEN": secret}), "/w")
    assert env == {"PYTHONUNBUFFERED": "1", "NCCL_DEBUG": "WARN", "HF_TOKEN": secret}


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"topology": Topology(tp=2, ep=4)}, "server.topology.ep"),
        ({"args": {"tensor_parallel_size": 2}}, "server.args.tensor_parallel_size"),
        ({"args": {"port": 1}}, "server.args.port"),
        ({"args": {"headless": True}}, "server.args.headless"),
        (
            {"args": {"max-num-seqs": 3}, "settings": Settings(max_active=4)},
            "server.args.max-num-seqs",
        ),
        (
            {"args": {"enforce-eager": True}, "settings": Settings(cuda_graph=True)},
            "server.args.enforce-eager",
        ),
        (
            {"args": {"no-enable-prefix-caching": True}, "settings": Settings(prefix_cache=True)},
            "server.args.no-enable-prefix-caching",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_key(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        argv(spec(**keys))
    assert error.value.where == key


def test_nodes_that_cannot_share_the_processes_evenly_are_refused() -> None:
    with pytest.raises(ConfigError, match="tp x pp x dp is 3, which 2 nodes cannot share"):
        argv(spec(topology=Topology(tp=3)), Placement("a", 0, 2))


def test_what_is_asked_comes_from_settings_arguments_and_sizes() -> None:
    server = spec(
        topology=Topology(tp=2),
        settings=Settings(max_active=4),
        args={"max-model-len": 1024, "enforce-eager": True, "enable_chunked_prefill": False},
    )
    assert ENGINE.asked(server, MODEL) == {
        "context": 1024, "max_active": 4, "cuda_graph": False, "chunked_prefill": False,
        "tp": 2, "dp": 1, "pp": 1, "ep": 1,
    }  # fmt: skip
    assert argv(server).count("--max-model-len") == 1
    assert ENGINE.asked(spec(), MODEL)["context"] == 2048


@pytest.mark.parametrize("given", ["auto", -1, "32k"])
def test_a_context_that_the_engine_chooses_is_held_against_the_models(given: Any) -> None:
    server = spec(args={"max-model-len": given})
    assert ENGINE.asked(server, MODEL)["context"] == 2048
    assert "2048" not in argv(server)


# In the form of vLLM 0.32.0, shortened.
LOG = """\
servemap: starting {"module": "/root/engine/vllm/__init__.py"}
(APIServer pid=5) INFO 11-29 10:00:00 [utils.py:253] non-default args: {'model': '/w/model', \
'max_model_len': 2048, 'max_num_seqs': 16, 'gpu_memory_utilization': 0.3}
(APIServer pid=5) INFO 11-29 10:00:01 [scheduler.py:230] Chunked prefill is enabled with \
max_num_batched_tokens=4096.
(EngineCore pid=6) INFO 11-29 10:00:02 [core.py:134] Initializing a V1 LLM engine (v0.32.0) with \
config: model='/w/model', dtype=torch.bfloat16, max_seq_len=2048, load_format=dummy, \
tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, \
enforce_eager=False, kv_cache_dtype=fp8, enable_prefix_caching=True, enable_chunked_prefill=True, \
compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL: 2>}, \
kernel_config=KernelConfig(moe_backend='auto')
(Worker_TP1 pid=8) INFO 11-29 10:00:03 [x.py:1] Model loading took 1.5 GiB memory and 2 seconds
(Worker_TP0 pid=7) \x1b[32mINFO\x1b[0m 11-29 10:00:03 [x.py:1] Using FLASH_ATTN attention backend \
out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].
(Worker_TP0 pid=7) INFO 11-29 10:00:03 [x.py:1] Using 'MARLIN' Fp8 MoE backend out of potential \
backends: ['MARLIN'].
(Worker_TP0 pid=7) INFO 11-29 10:00:03 [x.py:1] Model loading took 1.25 GiB memory and 2 seconds
(EngineCore pid=6) INFO 11-29 10:00:04 [x.py:1] GPU KV cache size: 94,135 tokens, Maximum \
concurrency for 2,048 tokens per request: 45.96x
(Worker_TP0 pid=7) INFO 11-29 10:00:04 [x.py:1] Available KV cache memory: 10.00 GiB
(Worker_TP0 pid=7) INFO 11-29 10:00:05 [x.py:1] Graph capturing finished in 9 secs, took 0.50 GiB
(Worker_TP0 pid=7) INFO 11-29 10:00:05 [x.py:1] Free memory on device (78/79 GiB) on startup. \
Desired GPU memory utilization is (0.9, 71 GiB). Actual usage is 1.75 GiB for consumed memory \
(weights + non-torch), 2.00 GiB for peak activation, and 0.50 GiB for CUDAGraph memory. Replace
"""
METRICS = (
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="16",cache_dtype="fp8_e4m3",enable_prefix_caching="False",'
    'engine="0",gpu_memory_utilization="0.25",num_gpu_blocks="100"} 1.0\n'
)


def test_read_back_of_a_log() -> None:
    found = ENGINE.read_back(LOG, {"data": [{"id": "tiny", "max_model_len": 2048}]}, {})
    assert (found.engine_version, found.model_names, found.context) == ("0.32.0", ("tiny",), 2048)
    assert found.module_path == "/root/engine/vllm/__init__.py"
    assert found.notes == ()
    assert found.settings == {
        "context": 2048, "tp": 2, "pp": 1, "dp": 1, "ep": 1, "kv_dtype": "fp8",
        "prefix_cache": True, "chunked_prefill": True, "cuda_graph": True, "moe_backend": "MARLIN",
        "attention_backend": "FLASH_ATTN", "max_active": 16, "max_batched_tokens": 4096,
        "memory_fraction": 0.3, "kv_tokens": 94135, "dtype": "bfloat16", "load_format": "dummy",
    }  # fmt: skip


DRAFTING = """\
(APIServer pid=5) INFO 11-29 10:00:00 [utils.py:253] non-default args: {'model': '/w/model', \
'chat_template': 'chat.jinja', 'enable_auto_tool_choice': True, 'tool_call_parser': 'hermes', \
'speculative_config': {'model': '/w/draft', 'num_speculative_tokens': 3}}
(EngineCore pid=6) INFO 11-29 10:00:02 [core.py:134] Initializing a V1 LLM engine (v0.32.0) with \
config: model='/w/model', speculative_config=SpeculativeConfig(METHOD), max_seq_len=2048, \
structured_outputs_config=StructuredOutputsConfig(backend='auto', reasoning_parser='qwen3')
"""


@pytest.mark.parametrize(
    ("printed", "model", "tokens"),
    [
        ("method='eagle3', model='/w/draft', num_spec_tokens=3", "/w/draft", 3),
        ("method='ngram', model=None, num_spec_tokens=5", None, 5),
    ],
)
def test_drafting_and_parsers_are_read_back(printed: str, model: str | None, tokens: int) -> None:
    said = ENGINE.read_back(DRAFTING.replace("METHOD", printed), None, {}).settings
    assert said["speculative_method"] == printed.split("'")[1]
    assert said.get("speculative_model") == model
    assert said["speculative_tokens"] == tokens
    assert said["tool_parser"] == "hermes"
    assert said["reasoning_parser"] == "qwen3"
    assert said["chat_template"] == "chat.jinja"


def test_a_parser_of_tool_calls_is_used_and_not_only_loaded() -> None:
    asked = Settings(tool_parser="hermes")
    assert argv(spec(settings=asked)).count("--enable-auto-tool-choice") == 1
    denied = argv(spec(settings=asked, args={"enable-auto-tool-choice": False}))
    assert "--enable-auto-tool-choice" not in denied
    assert "--enable-auto-tool-choice" not in argv(spec())


def test_what_the_metrics_say_is_in_force_rather_than_what_the_log_says() -> None:
    found = ENGINE.read_back(LOG, None, {"metrics": METRICS, "version": {"version": "0.33"}})
    assert found.engine_version == "0.33"
    said = found.settings
    assert (said["prefix_cache"], said["kv_dtype"], said["memory_fraction"], said["kv_tokens"]) == (
        False, "fp8_e4m3", 0.25, 1600
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("Using XFormers backend.", "attention_backend", "XFormers"),
        ("Using Flash Attention backend on V1 engine.", "attention_backend", "Flash Attention"),
        ("Using AttentionBackendEnum.FLASH_ATTN backend.", "attention_backend", "FLASH_ATTN"),
        ("Cannot use FLASH_ATTN backend on CPU.", "attention_backend", "CPU_ATTN"),
        ("Skipping CUDA graph capture. To turn on", "cuda_graph", False),
        ("CPU KV cache size: 8,192 tokens", "kv_tokens", 8192),
    ],
)
def test_one_line_of_a_log(line: str, key: str, value: Any) -> None:
    log = f"INFO 07-14 10:00:00 selector.py:115] {line}\n"
    assert ENGINE.read_back(log, None, {}).settings == {key: value}


@pytest.mark.parametrize("line", ["Using 'A' NvFp4 MoE backend out of x", "Using uvloop backends"])
def test_other_backends_are_not_the_one_of_attention(line: str) -> None:
    assert "attention_backend" not in ENGINE.read_back(line, None, {}).settings


@pytest.mark.parametrize(
    ("config", "graphs"),
    [
        ("enforce_eager=True", False),
        ("enforce_eager=False", True),
        ("enforce_eager=False, c={'cudagraph_mode': <CUDAGraphMode.NONE: 0>}", False),
        ('enforce_eager=False, c={"cudagraph_mode":0,"use_cudagraph":false}', False),
        ('enforce_eager=False, c={"cudagraph_mode":1,"use_cudagraph":true}', True),
    ],
)
def test_graphs_or_eager(config: str, graphs: bool) -> None:
    log = f"Initializing an LLM engine (v0.6.3) with config: {config}, max_seq_len=9"
    found = ENGINE.read_back(log, None, {})
    assert (found.engine_version, found.settings) == ("0.6.3", {"context": 9, "cuda_graph": graphs})


@pytest.mark.parametrize(
    "args",
    [
        "{'max_num_seqs': 8, 'profiler_config': ProfilerConfig(profiler='torch', x={'y': 1})}",
        "{'model': '/m', 'max_num_seqs': 8, 'gpu_memory_uti",
        "{'a': {'max_num_seqs': 8, 'b': <X.Y: 1>}, 'max_num_seqs': 9}",
    ],
)
def test_arguments_with_objects_among_them_or_cut_off(args: str) -> None:
    found = ENGINE.read_back(f"INFO non-default args: {args}\n", None, {})
    assert found.settings == {"max_active": 8}


def test_a_fallback_is_a_note() -> None:
    log = (
        "INFO 07-14 selector.py:1] Cannot use FlashAttention-2 backend because the package "
        "vllm_flash_attn is not found.\nUsing XFormers backend.\n"
    )
    (note,) = ENGINE.read_back(log, None, {}).notes
    assert "Cannot use FlashAttention-2 backend" in note


def test_memory_of_each_rank() -> None:
    assert ENGINE.memory(LOG) == (
        RankMemory("Worker_TP0", GIB * 5 // 4, 10 * GIB, GIB // 2, GIB * 5 // 2),
        RankMemory("Worker_TP1", GIB * 3 // 2),
    )


@pytest.mark.parametrize(
    ("lines", "memory"),
    [
        (
            "(EngineCore pid=2) Auto set (4.0/23.5) GiB for KV cache on node 0, with 7.0 GiB "
            "requested memory for the worker. 1.5 GiB memory was consumed by non-kv usages.\n"
            "(EngineCore pid=2) Model loading took 0.5 GiB memory and 1 seconds\n",
            RankMemory("EngineCore", GIB // 2, 4 * GIB, None, GIB),
        ),
        (
            "(EngineCore pid=2) Explicitly set (1.0/23.55) GiB for KV cache on node 0.\n",
            RankMemory("EngineCore", None, GIB),
        ),
        (
            "INFO 07-14 worker.py:241] the current vLLM instance can use\nINFO model weights take "
            "17.00GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes "
            "1.50GiB; the rest of the memory reserved for KV Cache is 2.00GiB.\n",
            RankMemory("engine", 17 * GIB, 2 * GIB, None, GIB * 7 // 4),
        ),
    ],
)
def test_memory_in_other_words(lines: str, memory: RankMemory) -> None:
    assert ENGINE.memory(lines) == (memory,)


PIECES = [line for line in LOG.splitlines() if line] + [
    "config: ",
    "non-default args: {",
    "=",
    "\r",
]


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text()), max_size=6).map("".join),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(METRICS[:90]),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["version", "data"]), inner)
        ),
        max_leaves=4,
    ),
    st.integers(0, len(LOG)),
)
@settings(max_examples=60, deadline=None)
def test_garbage_never_raises(text: str, answer: Any, cut: int) -> None:
    for log in (text, LOG[:cut] + text, LOG[cut:]):
        found = ENGINE.read_back(log, answer, {"version": answer, "metrics": answer})
        json.dumps([found.settings, found.notes])
        ENGINE.memory(log)


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        (
            "001_vllm0251_laguna_ok_then_sigterm", "0.25.1",
            {"context": 65536, "max_active": 32, "memory_fraction": 0.89, "kv_tokens": 94135,
             "attention_backend": "FLASH_ATTN", "cuda_graph": True},
        ),
        ("002_vllm0251_int4_kv_too_small_fail", "0.25.1", {"context": 262144, "cuda_graph": True}),
        ("004_vllm0251_truncated_early", "0.25.1", {"max_active": 32}),
        (
            "006_vllm0251_gemma_ok", "0.25.1",
            {"max_batched_tokens": 2496, "attention_backend": "TRITON_ATTN", "kv_tokens": 3912140},
        ),
        (
            "011_vllm085_model_404", "0.8.5.post1",
            {"context": 32768, "attention_backend": "Flash Attention", "kv_tokens": 32832,
             "max_batched_tokens": 2048, "prefix_cache": True, "chunked_prefill": True},
        ),
        ("012_vllm013_ok", "0.13.0", {"quantization": "awq", "dtype": "float16", "tp": 1}),
        ("014_vllm0102_app_err_tail", "0.10.2", {"context": 6144, "kv_tokens": 94784}),
        ("029_dennis_7b_1gpu_log", "0.10.1.1", {"max_batched_tokens": 2048, "kv_tokens": 93872}),
    ],
)  # fmt: skip
def test_recorded_logs(name: str, version: str, said: dict[str, Any]) -> None:
    log = Path(need("corpus"), "server_logs", f"{name}.log").read_text(errors="replace")
    found = ENGINE.read_back(log, None, {})
    assert found.engine_version == version
    assert {key: found.settings.get(key) for key in said} == said


def test_recorded_memory() -> None:
    log = Path(need("corpus"), "server_logs", "014_vllm0102_app_err_tail.log").read_text()
    (rank,) = ENGINE.memory(log)
    assert [
        round((size or 0) / GIB, 2)
        for size in (rank.weights_bytes, rank.kv_bytes, rank.graphs_bytes, rank.rest_bytes)
    ] == [56.93, 8.68, 0.69, 5.65]


def test_recorded_metrics() -> None:
    metrics = Path(need("corpus"), "own", "vllm_metrics_idle.txt").read_text()
    assert ENGINE.read_back("", None, {"metrics": metrics}).settings == {
        "memory_fraction": 0.3, "kv_dtype": "auto", "prefix_cache": True, "kv_tokens": 524288,
        "block_size": 128,
    }  # fmt: skip


def test_a_named_package_is_said_by_the_process_that_imported_it(tmp_path: Path) -> None:
    """Also a process that the module spawns finds it again, as with `python -m`."""
    folder = tmp_path / "copies" / "fake_engine"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "serve.py").write_text(
        "import multiprocessing, sys\n"
        "def work(): print('child of', __name__, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], flush=True)\n"
        "    one = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    one.start(); one.join(); sys.exit(one.exitcode)\n"
    )
    package = Package(name="fake_engine", root=str(tmp_path / "copies"))
    words = python_module(sys.executable, "fake_engine.serve", package)
    done = subprocess.run(
        [*words, "--port", "1"],
        env={"PYTHONPATH": package.root},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert module_path(done.stdout) == str(folder / "__init__.py")
    assert done.stdout.splitlines()[1:] == ["['--port', '1']", "child of __mp_main__"]
    assert python_module("/py", "x.y", None) == ["/py", "-m", "x.y"]
