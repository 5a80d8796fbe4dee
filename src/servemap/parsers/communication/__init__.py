"""Output of programs that measure or log communication between cards and between nodes."""

from servemap.parsers.communication.nccl_log import parse_nccl_log
from servemap.parsers.communication.nccl_tests import parse_nccl_tests
from servemap.parsers.frame import Kind

KINDS: tuple[Kind, ...] = (
    Kind(
        "nccl-tests",
        parse_nccl_tests,
        "all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf, all_reduce_perf -J FILE",
        "src/common.cu and src/util.cu of nccl-tests 2.0 to 2.19, src/common.cu of rccl-tests",
    ),
    Kind(
        "nccl-log",
        parse_nccl_log,
        "NCCL_DEBUG=INFO PROGRAM, NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING",
        "src/debug.cc, src/init.cc, src/graph and src/transport of NCCL 2.4 to 2.31 and of RCCL",
    ),
)
