import re

import pydantic
import pytest

from servemap.analysis.traces.classes import (
    UNMATCHED,
    check_classes,
    class_ids,
    class_kinds,
    class_of,
    kernel_classes,
)
from servemap.analysis.traces.gaps import activities
from servemap.analysis.traces.steps import Phase, read_name, step_names

NAMES = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "communication",
    "ncclSymkDevKernel_AllGather_LL": "communication",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>": "communication",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>": "communication",
    "void flashinfer::trtllm_fusion::allreduce_fusion_kernel_oneshot_lamport": "communication",
    "rcclGenericKernel": "communication",
    "gloo:all_reduce": "communication",
    "_C::shm_allreduce": "communication",
    "void deep_ep::intranode::dispatch<8, 768>": "moe_dispatch",
    "void deep_ep::internode_ll::combine<false>": "moe_combine",
    "fused_moe_kernel": "moe_experts",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1": "moe_experts",
    "void vllm::moe::topkGatingSoftmax<16, 256>": "moe_gate",
    "moe_align_block_size_kernel": "moe_gate",
    "void moe::dev::finalize::finalizeKernelVecLoad<x>": "moe_other",
    "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelNoQuant": "attention",
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>": "attention",
    "kernel_unified_attention_3d": "attention",
    "void vllm::reshape_and_cache_flash_kernel<x>": "attention",
    "deep_gemm::sm90_fp8_mqa_logits": "indexer",
    "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>": "norm_rope",
    "void vllm::rotary_embedding_kernel<c10::BFloat16, true>": "norm_rope",
    "per_token_group_quant_8bit_kernel": "quantisation",
    "void tensorrt_llm::kernels::quantize_with_block_size<flashinfer::Layout>": "quantisation",
    "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT": "gemm",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32": "gemm",
    "volta_sgemm_128x32_nt": "gemm",
    "void fbgemm_gpu::permute_2D_lengths_kernel<int>": "embedding",
    "void at::native::reduce_kernel<512, 1, ReduceOp<float, ArgMaxOps<float>": "sampling",
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>": "elementwise",
    "Memcpy DtoD (Device -> Device)": "copies",
    "Memset (Device)": "copies",
    "strange": UNMATCHED,
    "": UNMATCHED,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_its_class(name: str) -> None:
    assert class_ids()[class_of(name)] == NAMES[name]


def test_a_huge_name_is_not_searched_whole() -> None:
    assert class_ids()[class_of("x" * 2000 + "nccl")] == UNMATCHED
    assert class_ids()[class_of("moe" * 1_000_000)] == UNMATCHED


def test_each_class_is_shown_by_a_name_above() -> None:
    shown = set(NAMES.values())
    assert set(class_ids()) - shown == {"activation", "framework"}
    assert len(class_ids()) == len(class_kinds()) == len(kernel_classes()) + 1


@pytest.mark.parametrize(
    "wrong",
    [
        [{"id": "a", "means": "x", "kind": "compute", "patterns": ["("]}],
        [{"id": "a", "means": "x", "kind": "other", "patterns": ["a"]}],
        [{"id": "a", "means": "x", "kind": "compute", "patterns": []}],
        [{"id": "a", "means": "x", "kind": "compute", "patterns": ["a"], "more": 1}],
        [{"id": UNMATCHED, "means": "x", "kind": "compute", "patterns": ["a"]}],
        [{"id": "a", "means": "x", "kind": "compute", "patterns": ["a"]}] * 2,
    ],
)
def test_a_wrong_table_is_refused(wrong: object) -> None:
    with pytest.raises((pydantic.ValidationError, ValueError)):
        check_classes(wrong)


STEPS: dict[str, tuple[str, Phase, int | None, int | None]] = {
    "execute_context_1(888_788544)_generation_0(0)": ("vllm", "prefill", 1, 0),
    "execute_context_0(0)_generation_3(3)": ("vllm", "decode", 0, 3),
    "execute_context_1(3)_generation_2(2)": ("vllm", "mixed", 1, 2),
    "execute_context_0(0)_generation_0(0)": ("vllm", "idle", 0, 0),
    "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37"
    "sqsk34489)": ("vllm", "mixed", 9, 37),
    "step[EXTEND bs=15 toks=15360]": ("sglang", "prefill", 15, 0),
    "step[DECODE bs=1]": ("sglang", "decode", 0, 1),
    "step[DECODE]": ("sglang", "decode", None, None),
    "step[MIXED bs=4 toks=9]": ("sglang", "mixed", None, None),
    "step[TARGET_VERIFY bs=4]": ("sglang", "decode", 0, 4),
    "step[SOMETHING_NEW bs=4]": ("sglang", "unknown", None, None),
    "ProfilerStep#551": ("pytorch", "unknown", None, None),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_name_is_read(name: str) -> None:
    engine, *expected = STEPS[name]
    known = next(one for one in step_names() if one.engine == engine)
    assert read_name(name, known) == tuple(expected)


@pytest.mark.parametrize("name", ["", "execute_model", "step", "schedule", "my ProfilerStep#1"])
def test_another_name_is_no_step(name: str) -> None:
    assert not any(read_name(name, known) for known in step_names())


def test_host_activities_end_with_those_that_take_every_name() -> None:
    taken: set[str] = set()
    for one in activities():
        assert set(one.of) - taken, f"{one.id} can never be met"
        taken |= set() if one.patterns else set(one.of)
        for pattern in one.patterns:
            re.compile(pattern)
    assert taken == {"runtime", "operator", "python", "annotation"}
