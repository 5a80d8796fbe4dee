from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servemap.engines.failures import (
    Finding,
    Signature,
    explain,
    is_idle,
    load_signatures,
    memory_error,
)
from servemap.engines.unknown import explain_unknown
from tests.parts import need

Expected = list[tuple[str, str]]


def brief(findings: list[Finding]) -> Expected:
    return [(finding.role, finding.id) for finding in findings]


# One made-up log for each signature; what stands around the words that count is our own.
EXAMPLES = {
    "llamacpp-model-unreadable": "gguf: failed to open GGUF file 'nope.gguf'",
    "llamacpp-model-incomplete": "gguf: failed to read magic",
    "llamacpp-model-not-gguf": "gguf: invalid magic characters 'abcd'",
    "llamacpp-model-unknown": "load: unknown model architecture: 'q9'",
    "llamacpp-load-failed": "init: exiting due to model loading error",
    "llamacpp-port": "start: couldn't bind HTTP server socket, port: 1",
    "llamacpp-address": "llamaserve: error: cannot listen on 10.9.9.9 port 1: "
    "Cannot assign requested address",
    "llamacpp-memory": "alloc: failed to allocate CPU buffer of size 16384000000",
    "llamacpp-option": "llamaserve: error: unrecognized arguments: --x",
    "llamacpp-stopped": "llamaserve: stopped by SIGTERM",
    "llamacpp-request-context": "request (900 tokens) exceeds the available context size (512)",
    "script-crlf": "./made_up.sh: line 11: $'\\r': command not found",
    "unknown-option": "made_up.py: error: unrecognized arguments: --num-scheduler-steps 4",
    "tool-parser": "KeyError: 'invalid tool call parser: mine (chose from { hermes })'",
    "reasoning-parser": "KeyError: 'invalid reasoning parser: mine (chose from { qwen3 })'",
    "batched-tokens": "E: max_num_batched_tokens (8192) is smaller than max_model_len (100000).",
    "context-above-model": "  Value error, User-specified max_model_len (9) is greater than the "
    "derived max_model_len (8)",
    "more-ranks-than-cards": "World size (4) is larger than the number of available GPUs (1)",
    "uneven-split": "heads (14) must be divisible by tensor parallel size (4).",
    "cpu-binding": "AssertionError: Not enough allowed NUMA nodes to bind threads of 2 workers",
    "multi-step-backend": "E: Multi-Step not supported for attention backend: xformers.",
    "backend-wrapper": "    self._w = BatchDecodeWithPagedKVCacheWrapper(\n"
    "TypeError: 'NoneType' object is not callable",
    "no-accelerator": "RuntimeError: Failed to infer device type",
    "dtype-unsupported": "E: Bfloat16 is only supported on GPUs with compute capability of 8.0",
    "cache-above-memory": "ValueError: Available memory on node 3 (1.5/4.0 GiB) on kv cache "
    "allocation is less than requested memory for kv (9.0 GiB).",
    "cards-held": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB. "
    "Process 7 has 30.01 GiB memory in use.",
    "capture-memory": "Capturing the model for CUDA graphs.\n"
    "torch.cuda.OutOfMemoryError: Tried to allocate 256 MiB. GPU 1",
    "kv-too-small": "ValueError: To serve at least one request with the model's max seq len (9)",
    "kv-none": "ValueError: No available memory for the cache blocks",
    "accelerator-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB",
    "host-memory": "made-up: terminate called after throwing std::bad_alloc",
    "capture-failed": "Exception: Capture cuda graph failed: a kernel synchronised",
    "accelerator-error": "RuntimeError: CUDA error: an illegal memory access",
    "port-taken": "ERROR: error while attempting to bind on address ('::', 1): "
    "address already in use",
    "address": "ERROR: error while attempting to bind on address ('10.9.9.9', 1): "
    "cannot assign requested address",
    "no-interface": "NCCL WARN Bootstrap : no socket interface found",
    "ranks-unreachable": "The client socket has timed out after 600s while trying to connect to "
    "(head, 1)",
    "rdma-error": "made-up:1 NCCL WARN Call to ibv_modify_qp failed",
    "collective-timeout": "[Rank 1] Watchdog caught collective operation timeout: ALLREDUCE",
    "collective-error": "DistBackendError: NCCL error in: made_up.cpp:1",
    "architecture": "ValueError: Model architectures ['Q9'] are not supported for now.",
    "model-code": "Please pass the argument `trust_remote_code=True` to allow it",
    "tokenizer": "OSError: Can't load tokenizer for '/m'. If you were trying",
    "model-files": "OSError: /m does not appear to have a file named config.json",
    "model-weights": "safetensors_rust.SafetensorError: incomplete",
    "interpreter-missing": "supervise: cannot start the server: [Errno 2] No such file: '/x'",
    "module-missing": "/usr/bin/python3: No module named llamaserve",
    "package-metadata": "PackageNotFoundError: No package metadata was found for vllm",
    "import-broken": "ImportError: /x/_C.so: undefined symbol: _ZN3c10",
    "compiler-missing": "made_up.c:1: fatal error: Python.h: No such file or directory",
    "disk-full": "OSError: [Errno 28] No space left on device",
    "killed": "Killed",
    "crashed": "Fatal Python error: Segmentation fault",
    "worker-died": "(EngineCore pid=7) ERROR Worker proc VllmWorker-1 died unexpectedly (exit "
    "code: None), shutting down executor.",
    "capture-hang": "Capturing CUDA graph shapes:   3%",
    "capture-cut": "Capture cuda graph begin. This can take minutes.",
    "ranks-hang": "Init torch distributed begin.",
    "ranks-awaited": "Waiting for 0 local, 1 remote core engine proc(s) to start.",
    "weights-hang": "Loading safetensors checkpoint shards:   0% Completed",
    "worker-hang": "No available shared memory broadcast block found in 60 seconds.",
    "engine-slow": "TimeoutError: Timed out waiting for engine core processes to start.",
    "vllm-core-failed": "RuntimeError: Engine core initialization failed.",
    "sglang-child-failed": "Received sigquit. It usually means the child failed.",
    "stopped": "trigger received signal=SIGTERM",
    "request-context": "This made-up maximum context length is 512 tokens",
    "request-model": "NotFoundError: The model `made-up` does not exist.",
}
HANGS = {signature.id for signature in load_signatures() if signature.process == "alive"}


def test_each_signature_has_an_example() -> None:
    assert EXAMPLES.keys() == {signature.id for signature in load_signatures()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_signature_names_its_example_and_no_other_does(name: str) -> None:
    signature = next(one for one in load_signatures() if one.id == name)
    for engine in signature.engines or ("vllm",):
        (finding,) = explain(EXAMPLES[name], engine, alive=name in HANGS)
        assert (finding.id, finding.failure) == (name, signature.failure)
        assert finding.line in EXAMPLES[name]
        assert finding.means.endswith((".", ")"))


def test_the_table_knows_what_the_studies_met() -> None:
    """Configuration, memory, backend, network, hang, dependency and model all have entries."""
    classes = {signature.failure for signature in load_signatures()}
    assert classes == {
        "configuration", "memory", "backend", "network", "hang", "dependency", "model", "host",
        "crash", "stopped",
    }  # fmt: skip


LLAMACPP_TRUNCATED = """\
0.00.005.492 I srv    load_model: loading model 'trunc.gguf'
0.00.006.757 E llama_model_load: error loading model: tensor 'blk.1.attn_output.weight' data is \
not within the file bounds, model is corrupted or incomplete
0.00.008.078 E srv          init: exiting due to model loading error
llamaserve: error: llama.cpp could not start with model file /m/trunc.gguf (3000000 bytes) and \
context 8192; its own lines above say why
"""


def test_cause_comes_before_its_consequence_with_line_and_remedy() -> None:
    cause, consequence = explain(LLAMACPP_TRUNCATED)
    assert (cause.id, cause.failure, cause.line_number) == (
        "llamacpp-model-incomplete",
        "model",
        2,
    )
    assert "not within the file bounds" in cause.line
    assert cause.remedy
    assert (consequence.role, consequence.line_number) == ("consequence", 3)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("RuntimeError: CUDA error: out of memory", ["accelerator-memory"]),
        ("CUDA_ERROR_OUT_OF_MEMORY", ["accelerator-memory"]),
        ("/bin/bash^M: bad interpreter: No such file or directory", ["script-crlf"]),
        ("/usr/bin/env: \u2018python3\\r\u2019: No such file or directory", ["script-crlf"]),
        ("./x.sh: 2: \r: not found", ["script-crlf"]),
        ("error while attempting to bind: [Errno 1] x", []),
        (
            "Multi-Step + Chunked-Prefill not supported for attention backend",
            ["multi-step-backend"],
        ),
        ("TypeError: 'NoneType' object is not callable", []),
        ("INFO Free memory on device (78.8/79.2 GiB) on startup. Desired is 0.9", []),
        ("ValueError: Free memory on device cuda:0 (3/15 GiB) on startup is less", ["cards-held"]),
        ("Process 7 has 30.01 GiB memory in use.", []),
        ("Ignore import error when loading x: No module named 'mindspore'", []),
        ("Ignore import error when loading x: ImportError: cannot import name 'Y'", []),
        ("Warning: User-specified context_length (9) is greater than the derived one", []),
        ('"GET /Killed HTTP/1.1" 200 No space left on device', []),
        ("INFO: 14 requests Killed by operator", []),
        ("\x1b[1;36mKilled\x1b[0;0m", ["killed"]),
        ("llamaserve: ready {}", []),
    ],
)  # fmt: skip
def test_single_lines(line: str, found: list[str]) -> None:
    assert [finding.id for finding in explain(line)] == found


CAPTURE = (
    "INFO 07-14 10:00 model_runner.py:1434] Capturing the model for CUDA graphs.\n"
    "[W CUDAGraph.cpp:145] Warning: Waiting for pending NCCL work to finish before starting graph "
    "capture.\n"
)
# The failures that the users met, in the lines that their servers wrote; values are made up.
USERS: dict[str, tuple[str, bool, str, str]] = {
    "context larger than the batched-token budget without chunked prefill": (
        "ValueError: max_num_batched_tokens (4096) is smaller than max_model_len (50000). This "
        "effectively limits the maximum sequence length to max_num_batched_tokens",
        False,
        "batched-tokens",
        "configuration",
    ),
    "multi-step scheduling not supported by the attention backend": (
        "INFO selector.py:115] Using XFormers backend.\n"
        "ValueError: Multi-Step not supported for attention backend: xformers. Set "
        "VLLM_ATTENTION_BACKEND to a value from ['FLASH_ATTN', 'FLASHINFER'].",
        False,
        "multi-step-backend",
        "backend",
    ),
    "an attention backend whose wrapper failed to import": (
        "Traceback (most recent call last):\n"
        '  File "/x/vllm/attention/backends/flashinfer.py", line 5, in _get_decode_wrapper\n'
        "    self._decode_wrapper = BatchDecodeWithPagedKVCacheWrapper(\n"
        "TypeError: 'NoneType' object is not callable",
        False,
        "backend-wrapper",
        "dependency",
    ),
    "unknown tool-call parser because an unpatched package was imported": (
        "KeyError: 'invalid tool call parser: mine (chose from { hermes,internlm,mistral })'",
        False,
        "tool-parser",
        "configuration",
    ),
    "graph capture that never ends": (CAPTURE, True, "capture-hang", "hang"),
    "out of memory while capturing graphs": (
        CAPTURE + "torch.cuda.OutOfMemoryError: Tried to allocate 128MiB. GPU 3",
        False,
        "capture-memory",
        "memory",
    ),
    "out of memory because another server still holds the cards": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 1 has a "
        "total capacity of 31.98 GiB of which 12.00 MiB is free. Process 4711 has 30.01 GiB memory "
        "in use.",
        False,
        "cards-held",
        "memory",
    ),
    "CRLF in a script": (
        "./patches.sh: line 3: $'\\r': command not found\n"
        "./patches.sh: line 17: syntax error: unexpected end of file",
        False,
        "script-crlf",
        "configuration",
    ),
}


@pytest.mark.parametrize("what", USERS)
def test_the_failures_that_the_users_met(what: str) -> None:
    log, alive, name, failure = USERS[what]
    noise = "INFO 07-14 09:59 api_server.py:712] vLLM API server version 0.6.3\n"
    end = "" if alive else "\nRuntimeError: Engine process failed to start."
    found = explain(f"{noise}{log}{end}", "vllm", alive=alive)
    assert (found[0].id, found[0].failure, found[0].role) == (name, failure, "cause")
    assert found[0].remedy


def test_a_tool_parser_that_is_missing_points_to_the_unpatched_copy() -> None:
    (found,) = explain(
        USERS["unknown tool-call parser because an unpatched package was imported"][0]
    )
    assert "an unpatched copy" in found.means
    assert "server.package" in found.remedy


def test_another_engines_words_do_not_count() -> None:
    assert explain("failed to read header", "vllm") == []
    assert brief(explain("failed to read header", "llamacpp")) == [
        ("cause", "llamacpp-model-incomplete")
    ]


def test_a_crash_notice_after_sigterm_is_no_failure() -> None:
    dead = "EngineDeadError: EngineCore encountered an issue."
    assert brief(explain(dead)) == [("consequence", "vllm-core-failed")]
    assert brief(explain(f"trigger received signal=SIGTERM\n{dead}")) == [("stop", "stopped")]


BEGIN, END = "Capture x CUDA graph begin. bs=[1]", "Capture x CUDA graph end. 3 s"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory."


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-29 [request_logger.py:66] Received request cmpl-1: prompt: '{}', params: P(n=1)",
        "DEBUG 11-29 [request_logger.py:56] Request cmpl-1 details: prompt: '{}', prompt_embeds",
        "INFO 11-29 [x.py:9] Generated response cmpl-1 (streaming delta): output: '{}', finish",
        "[2026-11-29 20:00:00] Receive: obj=GenerateReqInput(text='{}')",
        "[2026-11-29 20:00:00] Finish: obj=GenerateReqInput(text='a'), out={{'text': '{}'}}",
    ],
)
def test_what_a_request_or_its_answer_says_is_no_failure(line: str) -> None:
    """Each signature's own words, asked of a healthy server that logs its requests."""
    for example in EXAMPLES.values():
        for said in example.splitlines():
            assert explain(line.format(said)) == [], said
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert memory_error(line.format(memory), "vllm") is None
    assert explain_unknown(line.format("KeyError: 'a'")).errors == []


@pytest.mark.parametrize("level", ["WARNING 11-29", "[2026] Warning:", "WARNING:x:"])
def test_a_package_that_an_engine_warns_of_and_does_without_is_no_cause(level: str) -> None:
    for said in (
        "ModuleNotFoundError: No module named 'x'",
        "ImportError: libx.so: cannot open shared object file: No such file or directory",
        "ImportError: cannot import name 'x'",
    ):
        assert explain(f"{level} Failed to import y: {said}") == []
        assert len(explain(said)) == 1


def test_a_capture_that_ended_is_no_failure() -> None:
    for alive in (True, False):
        assert explain(f"{BEGIN}\n{END}", alive=alive) == []
    (finding,) = explain(f"{BEGIN}\n{END}\n{BEGIN}\n  0%|")
    assert (finding.id, finding.line_number) == ("capture-cut", 3)


def test_a_capture_without_end_hangs_where_the_process_lives() -> None:
    assert brief(explain(BEGIN, "sglang", alive=True)) == [("cause", "capture-hang")]
    assert brief(explain(BEGIN, "sglang")) == [("cause", "capture-cut")]
    told = f"{BEGIN}\ntrigger received signal=SIGTERM"
    assert brief(explain(told)) == [("stop", "stopped")], "it was stopped there"


def test_memory_that_ends_in_a_capture_is_told_from_memory_that_ends_elsewhere() -> None:
    assert brief(explain(f"{BEGIN}\n{MEMORY}")) == [("cause", "capture-memory")]
    assert brief(explain(f"{BEGIN}\n{END}\n{MEMORY}")) == [("cause", "accelerator-memory")]
    assert brief(explain(f"{BEGIN}\n{END}\n{BEGIN}\n{MEMORY}")) == [("cause", "capture-memory")]
    assert brief(explain(f"{MEMORY}\n{BEGIN}\n{END}")) == [("cause", "accelerator-memory")]


def test_of_a_progress_bar_the_state_that_counts_is_shown() -> None:
    bar = "\r".join(f"Capturing CUDA graphs: {done} {'#' * done}" for done in range(90))
    (finding,) = explain(bar, alive=True)
    assert finding.line == "Capturing CUDA graphs: 0"


def test_what_repeats_while_a_server_waits_is_no_progress() -> None:
    assert is_idle(EXAMPLES["worker-hang"], "vllm")
    assert not is_idle(EXAMPLES["worker-hang"], "llamacpp")
    assert is_idle(EXAMPLES["ranks-awaited"], "sglang")
    assert not is_idle(EXAMPLES["capture-hang"], "vllm")


@given(st.text(), st.booleans())
def test_any_text_can_be_explained(text: str, alive: bool) -> None:
    for finding in explain(text, alive=alive):
        assert 1 <= finding.line_number <= text.count("\n") + 1


lines = st.sampled_from([*EXAMPLES.values(), END, "INFO: nothing of note", ""])


@given(st.lists(lines, max_size=8), st.booleans())
def test_each_line_has_one_finding_and_causes_come_first(said: list[str], alive: bool) -> None:
    found = explain("\n".join(said), alive=alive)
    numbers = [finding.line_number for finding in found]
    assert len(set(numbers)) == len(numbers)
    roles = ["cause", "consequence", "stop", "request"]
    keys = [(roles.index(finding.role), finding.line_number) for finding in found]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"patterns": ["("]}, "not a regular expression"),
        ({"patterns": []}, "at least 1 item"),
        ({"class": "oom"}, "configuration"),
        ({"engines": ["trt"]}, "llamacpp"),
        ({"pattern": "x"}, "Extra inputs"),
    ],
)
def test_a_wrong_entry_is_refused(change: dict[str, object], says: str) -> None:
    entry = {
        "id": "x", "class": "host", "role": "cause", "patterns": ["x"], "means": "m", "remedy": "r",
    }  # fmt: skip
    Signature.model_validate(entry)
    with pytest.raises(ValidationError, match=says):
        Signature.model_validate({**entry, **change})


CORPUS: dict[str, Expected] = {
    "001_vllm0251_laguna_ok_then_sigterm": [("stop", "stopped")],
    "002_vllm0251_int4_kv_too_small_fail": [
        ("cause", "kv-too-small"),
        ("consequence", "vllm-core-failed"),
    ],
    "004_vllm0251_truncated_early": [],
    "006_vllm0251_gemma_ok": [("stop", "stopped")],
    "007_sglang_int4_ok": [("stop", "stopped")],
    "009_sglang_capture_hang_2": [("cause", "capture-cut")],
    "011_vllm085_model_404": [("request", "request-model")],
    "012_vllm013_ok": [],
    "014_vllm0102_app_err_tail": [("request", "request-context")],
    "016_sglang_ascend_pd_router_error": [],
    "017_sglang_ascend_pd_prefill_error": [],
    "019_fail_tool_parser": [("cause", "tool-parser")],
    "021_fail_max_num_batched_tokens": [("cause", "batched-tokens")],
    "022_fail_no_kv_blocks": [("cause", "kv-none")],
    "024_fail_port_in_use": [("cause", "port-taken")],
    "026_sglang_prefill_decode_lines": [],
    "027_sglang_old_decode_variants": [],
    "029_dennis_7b_1gpu_log": [],
}


def corpus_log(name: str) -> str:
    path = Path(need("corpus"), "server_logs", f"{name}.log")
    return path.read_bytes().decode("utf-8", "replace")


@pytest.mark.parametrize("name", CORPUS)
def test_logs_of_real_servers(name: str) -> None:
    engine = "sglang" if "sglang" in name else "vllm"
    assert brief(explain(corpus_log(name), engine)) == CORPUS[name]
    assert brief(explain(corpus_log(name))) == CORPUS[name], "nor do other engines' words"


def test_every_log_of_the_corpus_is_judged() -> None:
    logs = Path(need("corpus"), "server_logs").glob("*.log")
    assert {path.stem for path in logs} == CORPUS.keys()


def test_colours_are_removed_and_words_in_brackets_are_not() -> None:
    log = "\x1b[0;36m(W)\x1b[m [0;31mERROR[0m [multiproc.py:1] std::bad_alloc"
    (finding,) = explain(log)
    assert finding.line == "(W) ERROR [multiproc.py:1] std::bad_alloc"
