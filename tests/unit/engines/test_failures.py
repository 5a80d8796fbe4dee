from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from servemap.engines.failures import Finding, Signature, explain, load_signatures
from tests.parts import need


def brief(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.role, finding.failure) for finding in findings]


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
        "model_corrupt",
        2,
    )
    assert "not within the file bounds" in cause.line
    assert cause.remedy
    assert (consequence.role, consequence.line_number) == ("consequence", 3)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1",
            [("cause", "port_taken")],
        ),
        (
            "llamaserve: error: cannot listen on 127.0.0.1 port 1: Address already in use",
            [("cause", "port_taken")],
        ),
        (
            "llamaserve: error: cannot listen on 10.9.9.9 port 1: Cannot assign requested address",
            [("cause", "address")],
        ),
        (
            "E gguf_init_from_file: failed to open GGUF file 'nope.gguf' (No such file)",
            [("cause", "model_missing")],
        ),
        ("E gguf_init_from_reader: failed to read magic", [("cause", "model_corrupt")]),
        ("E llama_model_load: unknown model architecture: 'q9'", [("cause", "model_unsupported")]),
        (
            "E ggml_backend_buft_alloc_buffer_n: failed to allocate CPU buffer of size 16384000000",
            [("cause", "oom")],
        ),
        (
            "E srv send_error: request (900 tokens) exceeds the available context size (512)",
            [("request", "context")],
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", [("cause", "oom")]),
        ("RuntimeError: CUDA error: out of memory", [("cause", "oom")]),
        ("RuntimeError: CUDA error: an illegal memory access", [("cause", "cuda")]),
        ("/usr/bin/python3: No module named llamaserve", [("cause", "module_missing")]),
        ("Ignore import error when loading x: No module named 'mindspore'", []),
        ("Killed", [("cause", "killed")]),
        ("INFO: 14 requests Killed by operator", []),
        ("\x1b[1;36mKilled\x1b[0;0m", [("cause", "killed")]),
        ("llamaserve: ready {}", []),
    ],
)
def test_single_lines(line: str, found: list[tuple[str, str]]) -> None:
    assert brief(explain(line)) == found


def test_a_crash_notice_after_sigterm_is_no_failure() -> None:
    dead = "EngineDeadError: EngineCore encountered an issue."
    assert brief(explain(dead)) == [("consequence", "engine_failed")]
    assert brief(explain(f"trigger received signal=SIGTERM\n{dead}")) == [("stop", "stopped")]


def test_a_capture_that_ended_is_no_failure() -> None:
    begin, end = "Capture x CUDA graph begin. bs=[1]", "Capture x CUDA graph end. 3 s"
    assert brief(explain(f"{begin}\n{end}")) == []
    (finding,) = explain(f"{begin}\n{end}\n{begin}\n  0%|")
    assert (finding.failure, finding.line_number) == ("capture", 3)


@given(st.text())
def test_any_text_can_be_explained(text: str) -> None:
    for finding in explain(text):
        assert 1 <= finding.line_number <= text.count("\n") + 1


def test_the_table_is_complete() -> None:
    classes = {signature.failure for signature in load_signatures()}
    assert classes >= {
        "oom", "port_taken", "model_missing", "model_corrupt", "context", "cuda", "killed",
    }  # fmt: skip


def test_a_wrong_pattern_is_refused() -> None:
    entry = {"id": "x", "class": "x", "role": "cause", "means": "m", "remedy": "r"}
    with pytest.raises(ValidationError, match="not a regular expression"):
        Signature.model_validate({**entry, "pattern": "("})


EXPECTED = {
    "001_vllm0251_laguna_ok_then_sigterm": [("stop", "stopped")],
    "002_vllm0251_int4_kv_too_small_fail": [
        ("cause", "kv_memory"),
        ("consequence", "engine_failed"),
    ],
    "004_vllm0251_truncated_early": [],
    "006_vllm0251_gemma_ok": [("stop", "stopped")],
    "007_sglang_int4_ok": [("stop", "stopped")],
    "009_sglang_capture_hang_2": [("cause", "capture")],
    "011_vllm085_model_404": [],
    "012_vllm013_ok": [],
    "014_vllm0102_app_err_tail": [],
    "019_fail_tool_parser": [("cause", "bad_argument")],
    "021_fail_max_num_batched_tokens": [("cause", "bad_argument")],
    "022_fail_no_kv_blocks": [("cause", "kv_memory")],
    "024_fail_port_in_use": [("cause", "port_taken")],
    "026_sglang_prefill_decode_lines": [],
    "029_dennis_7b_1gpu_log": [],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_logs_of_real_servers(name: str) -> None:
    text = Path(need("corpus"), "server_logs", f"{name}.log").read_text("utf-8", errors="replace")
    assert brief(explain(text)) == EXPECTED[name]
