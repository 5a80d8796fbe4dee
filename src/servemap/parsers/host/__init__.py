"""Output of host tools: sysstat, perf, numastat, and monitors that write JSON lines."""

from servemap.parsers.frame import Kind
from servemap.parsers.host.numastat import parse_numastat

KINDS: tuple[Kind, ...] = (
    Kind(
        "numastat",
        parse_numastat,
        "numastat, numastat -n, numastat -p PID",
        "numastat(8); drivers/base/node.c of Linux for the counters of numastat without options",
    ),
)
