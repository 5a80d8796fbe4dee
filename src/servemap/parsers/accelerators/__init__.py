"""Output of accelerators' tools: nvidia-smi, DCGM, and what other vendors have for them."""

from servemap.parsers.accelerators.nvidia_csv import parse_csv
from servemap.parsers.accelerators.nvidia_dmon import parse_dmon
from servemap.parsers.accelerators.nvidia_query import parse_query
from servemap.parsers.accelerators.nvidia_topology import parse_nvlink, parse_topo
from servemap.parsers.accelerators.nvidia_xml import parse_xml
from servemap.parsers.frame import Kind

_RECORDED = "recorded output of drivers 466 to 595"

KINDS: tuple[Kind, ...] = (
    Kind("nvidia-smi-csv", parse_csv, "nvidia-smi --query-gpu=FIELDS --format=csv", _RECORDED),
    Kind("nvidia-smi-dmon", parse_dmon, "nvidia-smi dmon, nvidia-smi pmon", _RECORDED),
    Kind("nvidia-smi-topo", parse_topo, "nvidia-smi topo -m", _RECORDED),
    Kind("nvidia-smi-nvlink", parse_nvlink, "nvidia-smi nvlink -s", _RECORDED),
    Kind("nvidia-smi-q", parse_query, "nvidia-smi -q", _RECORDED),
    Kind("nvidia-smi-xml", parse_xml, "nvidia-smi -q -x", "nvsmi_device_v10.dtd to v12.dtd"),
)
