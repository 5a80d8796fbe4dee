from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.engines.attached import AttachedServer
from servemap.engines.base import Effective
from servemap.engines.sglang import SGLang
from servemap.engines.vllm import Vllm
from servemap.model.server_spec import ModelSpec, ServerSpec, Settings, Topology
from servemap.server.gates.readback import agrees, compare, read_back
from tests.parts import need

MODEL = ModelSpec(name="m", path="/m", context=245000)


def checks(asked: dict[str, Any], said: dict[str, Any]) -> dict[str, tuple[bool | None, str]]:
    found = compare(asked, Effective(settings=said))
    assert all(check.remedy for check in found if check.ok is False)
    return {check.name: (check.ok, check.evidence) for check in found}


def test_what_is_as_asked_is_one_line() -> None:
    found = checks({"context": 4096, "cuda_graph": True}, {"context": 4096, "cuda_graph": True})
    assert found == {"settings": (True, "as asked: context 4096, cuda_graph True")}


@pytest.mark.parametrize(
    ("key", "asked", "said", "evidence"),
    [
        ("context", 245000, 100000, "asked 245000, got 100000"),
        ("attention_backend", "FLASH_ATTN", "XFormers", "asked FLASH_ATTN, got XFormers"),
        ("cuda_graph", True, False, "asked True, got False"),
        ("memory_fraction", 0.95, 0.9, "asked 0.95, got 0.9"),
        ("kv_dtype", "fp8", "auto", "asked fp8, got auto"),
        ("tp", 4, 1, "asked 4, got 1"),
    ],
)
def test_what_differs_is_a_failed_check_with_both_values(
    key: str, asked: Any, said: Any, evidence: str
) -> None:
    found = checks({key: asked, "max_active": 2}, {key: said, "max_active": 2})
    assert found == {
        f"settings.{key}": (False, evidence),
        "settings": (True, "as asked: max_active 2"),
    }


def test_what_the_server_does_not_say_has_no_answer() -> None:
    found = checks({"context": 8, "moe_backend": "triton"}, {"context": 9})
    assert found == {
        "settings": (
            None,
            "as asked: context 9; asked, and not said by the server: moe_backend triton",
        )
    }
    assert checks({}, {"context": 9}) == {}


def test_lines_that_say_something_else_is_done_are_shown() -> None:
    note = "Cannot use FlashAttention-2 backend because it is not installed"
    (check,) = compare({}, Effective(notes=(note,)))
    assert (check.name, check.ok, check.evidence) == ("settings.note", None, note)


@pytest.mark.parametrize(
    ("key", "asked", "said"),
    [
        ("attention_backend", "FLASH_ATTN", "Flash Attention"),
        ("attention_backend", "flash-attn", "FLASH_ATTN"),
        ("moe_backend", "flashinfer_cutlass", "FlashInfer CUTLASS"),
        ("kv_dtype", "fp8", "fp8_e4m3"),
        ("memory_fraction", 0.3, 0.30000001),
        ("context", 4096, 4352),
    ],
)
def test_other_spellings_are_the_same(key: str, asked: Any, said: Any) -> None:
    assert agrees(key, asked, said)


@pytest.mark.parametrize(
    ("key", "asked", "said"),
    [
        ("cuda_graph", True, 1),
        ("cuda_graph", False, "False"),
        ("max_active", 64, 65),
        ("attention_backend", "fp8", "fp8_e4m3"),
    ],
)
def test_what_only_looks_alike_is_not_the_same(key: str, asked: Any, said: Any) -> None:
    assert not agrees(key, asked, said)


# In the forms of vLLM 0.6 and 0.8.5, which the study met; all values are made up.
VLLM_LOG = """\
INFO 07-14 10:00:00 api_server.py:651] args: Namespace(max_model_len=245000)
INFO 07-14 10:00:01 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: \
model='/m', dtype=torch.float16, max_seq_len={context}, tensor_parallel_size=4, \
enforce_eager={eager}, kv_cache_dtype=auto
{lines}
"""


def gate(
    settings: Settings, *lines: str, context: int = 245000, eager: bool = False
) -> dict[str, tuple[bool | None, str]]:
    """What the gate says of a vLLM with such a log and such an answer to /v1/models."""
    log = VLLM_LOG.format(context=context, eager=eager, lines="\n".join(lines))
    answer = {"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": context}]}
    server = ServerSpec(engine="vllm", settings=settings, topology=Topology(tp=4))
    found = read_back(Vllm(), server, MODEL, Vllm().read_back(log, answer, {}))
    assert all(check.remedy for check in found if check.ok is False)
    return {check.name: (check.ok, check.evidence) for check in found}


def test_a_context_that_was_cut_down_fails_the_gate() -> None:
    found = gate(Settings(context=245000), context=100000)
    assert found["settings.context"] == (False, "asked 245000, got 100000")
    assert "settings.context" not in gate(Settings(context=245000))


FELL_BACK = (
    "INFO 07-14 10:00:02 selector.py:247] Cannot use FlashAttention-2 backend because the "
    "vllm.vllm_flash_attn package is not found. Make sure that vllm_flash_attn was built",
    "INFO 07-14 10:00:02 selector.py:115] Using XFormers backend.",
)


def test_a_backend_that_fell_back_fails_the_gate_where_one_was_asked_for() -> None:
    found = gate(Settings(attention_backend="FLASH_ATTN"), *FELL_BACK)
    assert found["settings.attention_backend"] == (False, "asked FLASH_ATTN, got XFormers")
    assert "Cannot use FlashAttention-2 backend" in found["settings.note"][1]
    named = "INFO 07-14 10:00:02 selector.py:115] Using Flash Attention backend."
    assert "settings.attention_backend" not in gate(Settings(attention_backend="FLASH_ATTN"), named)


def test_a_backend_that_fell_back_unasked_is_a_result_without_an_answer() -> None:
    found = gate(Settings(), *FELL_BACK)
    assert "settings.attention_backend" not in found
    ok, evidence = found["settings.note"]
    assert ok is None
    assert "Cannot use FlashAttention-2 backend" in evidence


@pytest.mark.parametrize(
    "line",
    [
        "WARNING 07-14 10:00:01 config.py:383] CUDA graph is not supported on ROCm yet; "
        "fallback to the eager mode.",
        "WARNING 07-14 10:00:01 config.py:500] CUDA graph is not supported for m; enforcing eager.",
    ],
)
def test_eager_mode_that_was_forced_fails_the_gate(line: str) -> None:
    found = gate(Settings(cuda_graph=True), line, eager=True)
    assert found["settings.cuda_graph"] == (False, "asked True, got False")
    assert "eager" in found["settings.note"][1]
    assert "settings.cuda_graph" not in gate(Settings(cuda_graph=True))
    assert "settings.cuda_graph" not in gate(Settings(cuda_graph=False), eager=True)


def sglang(info: dict[str, Any], settings: Settings) -> dict[str, tuple[bool | None, str]]:
    """The same of a SGLang with such an answer to its own question."""
    server = ServerSpec(engine="sglang", settings=settings)
    found = read_back(SGLang(), server, MODEL, SGLang().read_back("", None, {"server_info": info}))
    return {check.name: (check.ok, check.evidence) for check in found}


@pytest.mark.parametrize(
    ("settings", "said", "name", "evidence"),
    [
        (
            Settings(context=245000),
            {"context_length": 100000, "max_total_num_tokens": 100000},
            "settings.context",
            "asked 245000, got 100000",
        ),
        (
            Settings(attention_backend="flashinfer"),
            {"attention_backend": "triton"},
            "settings.attention_backend",
            "asked flashinfer, got triton",
        ),
        (
            Settings(cuda_graph=True),
            {"disable_cuda_graph": True},
            "settings.cuda_graph",
            "asked True, got False",
        ),
    ],
)
def test_the_same_three_of_sglang(
    settings: Settings, said: dict[str, Any], name: str, evidence: str
) -> None:
    assert sglang(said, settings)[name] == (False, evidence)


def real(name: str, settings: Settings) -> dict[str, tuple[bool | None, str]]:
    """What the gate says of a recorded log of a real server, had it been asked for these."""
    text = Path(need("corpus"), "server_logs", f"{name}.log").read_text(errors="replace")
    adapter = SGLang() if "sglang" in name else Vllm()
    server = ServerSpec(engine="sglang" if "sglang" in name else "vllm", settings=settings)
    found = read_back(adapter, server, MODEL, adapter.read_back(text, None, {}))
    return {check.name: (check.ok, check.evidence) for check in found}


@pytest.mark.parametrize(
    ("log", "settings", "name", "evidence"),
    [
        ("012_vllm013_ok", Settings(), "settings.context", "asked 245000, got 8192"),
        (
            "011_vllm085_model_404",
            Settings(attention_backend="XFORMERS"),
            "settings.attention_backend",
            "asked XFORMERS, got Flash Attention",
        ),
        (
            "017_sglang_ascend_pd_prefill_error",
            Settings(cuda_graph=True),
            "settings.cuda_graph",
            "asked True, got False",
        ),
    ],
)
def test_real_servers_that_do_something_else(
    log: str, settings: Settings, name: str, evidence: str
) -> None:
    found = real(log, settings)
    assert found[name] == (False, evidence)
    if name == "settings.cuda_graph":
        assert "Cuda graph is disabled" in found["settings.note"][1]


def test_a_real_server_that_does_what_it_was_asked() -> None:
    asked = Settings(context=8192, attention_backend="FLASH_ATTN", cuda_graph=True)
    found = real("012_vllm013_ok", asked)
    assert [name for name, (ok, _) in found.items() if ok is False] == []


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(max_size=3), VALUES), st.dictionaries(st.text(max_size=3), VALUES))
def test_each_asked_setting_is_told_once(asked: dict[str, Any], said: dict[str, Any]) -> None:
    found = compare(asked, Effective(settings=said))
    failed = [check.name for check in found if check.ok is False]
    assert len(failed) == len(set(failed)) <= len(asked)
    assert {f"settings.{key}" for key in asked if key in said} >= set(failed)
    same = compare(asked, Effective(settings=asked))
    assert [check.ok for check in same] == ([True] if asked else [])


def test_started_and_attached_servers_are_held_to_what_was_asked_of_them() -> None:
    server = ServerSpec(engine="vllm", settings=Settings(max_active=4))
    small = Effective(settings={"context": 100000, "max_active": 4, "tp": 1})
    assert [check.name for check in read_back(Vllm(), server, MODEL, small)] == [
        "settings.context", "settings",
    ]  # fmt: skip
    # Whether a foreign server's context suffices, another gate says.
    (check,) = read_back(AttachedServer(Vllm()), server, MODEL, small)
    assert (check.name, check.ok) == ("settings", True)
