"""Output of host tools: sysstat, perf, numastat, and monitors that write JSON lines."""

from servemap.parsers.frame import Kind
from servemap.parsers.host.iostat import parse_iostat
from servemap.parsers.host.numastat import parse_numastat
from servemap.parsers.host.perf_stat import parse_perf_stat
from servemap.parsers.host.sadf import parse_sadf
from servemap.parsers.host.superbench import parse_superbench_monitor
from servemap.parsers.host.sysstat import parse_mpstat, parse_pidstat, parse_sar

_SYSSTAT = "sysstat's manual pages and recorded output of versions 10 to 12.7"

KINDS: tuple[Kind, ...] = (
    Kind("mpstat", parse_mpstat, "mpstat -P ALL 1, mpstat -o JSON 1 1", _SYSSTAT),
    Kind("pidstat", parse_pidstat, "pidstat -u -r -h 1, pidstat -o JSON 1 1", _SYSSTAT),
    Kind("sar", parse_sar, "sar -u -n DEV 1", _SYSSTAT),
    Kind("sadf", parse_sadf, "sadf -j, sadf -x, sadf -d, sadf -p", _SYSSTAT),
    Kind("iostat", parse_iostat, "iostat -x 1, iostat -o JSON 1 1", _SYSSTAT),
    Kind(
        "numastat",
        parse_numastat,
        "numastat, numastat -n, numastat -p PID",
        "numastat(8); drivers/base/node.c of Linux for the counters of numastat without options",
    ),
    Kind(
        "perf-stat",
        parse_perf_stat,
        "perf stat -x, COMMAND, perf stat -j COMMAND, perf stat COMMAND",
        "perf-stat(1), section CSV FORMAT",
    ),
    Kind(
        "superbench-monitor",
        parse_superbench_monitor,
        "sb run with its monitor on",
        "superbench/monitor of SuperBench",
    ),
)
