"""Output of programs that measure or log communication between cards and between nodes."""

from servemap.parsers.communication.nccl_tests import parse_nccl_tests
from servemap.parsers.frame import Kind

KINDS: tuple[Kind, ...] = (
    Kind(
        "nccl-tests",
        parse_nccl_tests,
        "all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf, all_reduce_perf -J FILE",
        "src/common.cu and src/util.cu of nccl-tests 2.0 to 2.19, src/common.cu of rccl-tests",
    ),
)
