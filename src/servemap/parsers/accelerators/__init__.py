"""Output of accelerators' tools: nvidia-smi, DCGM, and what other vendors have for them."""

from servemap.parsers.accelerators.amd_smi import parse_amd_smi
from servemap.parsers.accelerators.boxes import (
    parse_ixsmi,
    parse_mx_smi,
    parse_nvidia_table,
)
from servemap.parsers.accelerators.dcgm import (
    parse_dcgm_csv,
    parse_dcgm_exporter,
    parse_dcgmi_discovery,
    parse_dcgmi_dmon,
)
from servemap.parsers.accelerators.npu_smi import parse_npu_smi
from servemap.parsers.accelerators.nvidia_csv import parse_csv
from servemap.parsers.accelerators.nvidia_dmon import parse_dmon
from servemap.parsers.accelerators.nvidia_query import parse_query
from servemap.parsers.accelerators.nvidia_topology import parse_nvlink, parse_topo
from servemap.parsers.accelerators.nvidia_xml import parse_xml
from servemap.parsers.accelerators.rocm_smi import parse_rocm_smi
from servemap.parsers.accelerators.xpu_smi import parse_xpu_smi
from servemap.parsers.exposition import parse_exposition_text
from servemap.parsers.frame import Kind

_RECORDED = "recorded output of drivers 466 to 595"

KINDS: tuple[Kind, ...] = (
    Kind("nvidia-smi-csv", parse_csv, "nvidia-smi --query-gpu=FIELDS --format=csv", _RECORDED),
    Kind("nvidia-smi-dmon", parse_dmon, "nvidia-smi dmon, nvidia-smi pmon", _RECORDED),
    Kind("nvidia-smi-topo", parse_topo, "nvidia-smi topo -m", _RECORDED),
    Kind("nvidia-smi-nvlink", parse_nvlink, "nvidia-smi nvlink -s", _RECORDED),
    Kind("nvidia-smi-q", parse_query, "nvidia-smi -q", _RECORDED),
    Kind("nvidia-smi-xml", parse_xml, "nvidia-smi -q -x", "nvsmi_device_v10.dtd to v12.dtd"),
    Kind("nvidia-smi-table", parse_nvidia_table, "nvidia-smi", _RECORDED),
    Kind("dcgmi-dmon", parse_dcgmi_dmon, "dcgmi dmon -e FIELDS", "recorded output"),
    Kind("dcgmi-discovery", parse_dcgmi_discovery, "dcgmi discovery -l", "output of DCGM 3"),
    Kind(
        "dcgm-exporter",
        parse_dcgm_exporter,
        "curl http://NODE:9400/metrics",
        "dcgm-exporter's README; Prometheus' text exposition",
    ),
    Kind("dcgm-csv", parse_dcgm_csv, "a range query of Prometheus", "recorded exports"),
    Kind(
        "prometheus",
        parse_exposition_text,
        "curl http://NODE:PORT/metrics",
        "Prometheus' text exposition, read with prometheus_client",
    ),
    Kind(
        "rocm-smi",
        parse_rocm_smi,
        "rocm-smi -a --json, rocm-smi --showuse --showtemp --csv",
        "recorded output of ROCm 3 to 6.1",
    ),
    Kind(
        "amd-smi",
        parse_amd_smi,
        "amd-smi static, amd-smi metric --json, amd-smi metric --csv",
        "recorded output of ROCm 6",
    ),
    Kind("ixsmi", parse_ixsmi, "ixsmi", "recorded output of IX-ML 4.3"),
    Kind(
        "npu-smi",
        parse_npu_smi,
        "npu-smi info, npu-smi info -t common -i 0, npu-smi info -t usages -i 0",
        "recorded output of npu-smi 22.0 and 24.1; for -t, output in the sources of "
        "gpustack/runtime and the tests of Ascend/msserviceprofiler",
    ),
    Kind("mx-smi", parse_mx_smi, "mx-smi", "recorded output of mx-smi 2.2"),
    Kind(
        "xpu-smi",
        parse_xpu_smi,
        "xpu-smi, xpu-smi discovery, xpu-smi stats -d 0, xpu-smi dump -d 0 -m 0",
        "recorded output of XPU-SMI 2.0; Intel's manual of xpu-smi for the other forms",
    ),
)
