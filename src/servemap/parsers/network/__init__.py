"""Output of tools that look at network interfaces and RDMA devices of a node."""

from servemap.parsers.frame import Kind
from servemap.parsers.network.ethtool import parse_ethtool, parse_ethtool_statistics
from servemap.parsers.network.gids import parse_show_gids
from servemap.parsers.network.hca_counters import parse_hca_counters
from servemap.parsers.network.ibstat import parse_ibstat
from servemap.parsers.network.ibv_devinfo import parse_ibv_devinfo
from servemap.parsers.network.rdma_statistic import parse_rdma_statistic

KINDS: tuple[Kind, ...] = (
    Kind(
        "ethtool-statistics",
        parse_ethtool_statistics,
        "ethtool -S INTERFACE",
        "ethtool(8); the names are of the driver",
    ),
    Kind("ethtool", parse_ethtool, "ethtool INTERFACE", "ethtool(8)"),
    Kind(
        "hca-counters",
        parse_hca_counters,
        "grep -H . /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer,*counters/*}",
        "Documentation/ABI/stable/sysfs-class-infiniband of Linux",
    ),
    Kind(
        "rdma-statistic",
        parse_rdma_statistic,
        "rdma statistic show, rdma -j statistic show",
        "rdma/stat.c of iproute2",
    ),
    Kind("ibstat", parse_ibstat, "ibstat", "infiniband-diags/ibstat.c of rdma-core"),
    Kind(
        "ibv-devinfo",
        parse_ibv_devinfo,
        "ibv_devinfo, ibv_devinfo -v",
        "libibverbs/examples/devinfo.c of rdma-core",
    ),
    Kind("show-gids", parse_show_gids, "show_gids", "recorded output of MLNX OFED's script"),
)
