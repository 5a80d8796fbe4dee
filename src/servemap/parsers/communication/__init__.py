"""Output of programs that measure or log communication between cards and between nodes."""

from servemap.parsers.communication.copies import (
    parse_cuda_bandwidth,
    parse_gpu_copy,
    parse_hip_bandwidth,
)
from servemap.parsers.communication.nccl_log import parse_nccl_log
from servemap.parsers.communication.nccl_tests import parse_nccl_tests
from servemap.parsers.communication.nvbandwidth import parse_nvbandwidth
from servemap.parsers.communication.p2p_bandwidth import parse_p2p_bandwidth
from servemap.parsers.communication.perftest import parse_perftest
from servemap.parsers.frame import Kind

KINDS: tuple[Kind, ...] = (
    Kind(
        "nccl-tests",
        parse_nccl_tests,
        "all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf, "
        "all_reduce_perf -J FILE",
        "src/common.cu and src/util.cu of nccl-tests 2.0 to 2.19, src/common.cu of rccl-tests",
        reads_labels=True,
    ),
    Kind(
        "nccl-log",
        parse_nccl_log,
        "NCCL_DEBUG=INFO PROGRAM",
        "src/debug.cc, src/init.cc, src/graph and src/transport of NCCL 2.4 to 2.31 and of RCCL",
        reads_labels=True,
    ),
    Kind(
        "p2p-bandwidth",
        parse_p2p_bandwidth,
        "p2pBandwidthLatencyTest",
        "p2pBandwidthLatencyTest.cu of the CUDA samples",
    ),
    Kind(
        "nvbandwidth",
        parse_nvbandwidth,
        "nvbandwidth, nvbandwidth -j",
        "output.cpp, json_output.cpp and inline_common.h of nvbandwidth 0.1 to 0.8",
    ),
    Kind(
        "gpu-copy",
        parse_gpu_copy,
        "gpu_copy",
        "superbench's gpu_copy.cu and its recorded output",
    ),
    Kind(
        "hip-bandwidth",
        parse_hip_bandwidth,
        "hipBusBandwidth",
        "recorded output of ROCm's hipBusBandwidth",
    ),
    Kind(
        "cuda-bandwidth",
        parse_cuda_bandwidth,
        "bandwidthTest --csv",
        "bandwidthTest.cu of the CUDA samples and its recorded output",
    ),
    Kind(
        "perftest",
        parse_perftest,
        "ib_write_bw, ib_read_bw, ib_send_bw, ib_write_lat, ib_send_lat, ib_write_bw --out_json",
        "src/perftest_parameters.c and .h of perftest 4.5 to 26",
    ),
)
