"""Output of NVIDIA's profilers: the summaries of Nsight Systems, the metrics of Nsight Compute."""

from servemap.parsers.frame import Kind
from servemap.parsers.profilers.ncu import parse_ncu
from servemap.parsers.profilers.nsys_stats import parse_nsys_stats

KINDS: tuple[Kind, ...] = (
    Kind(
        "nsys-stats",
        parse_nsys_stats,
        "nsys stats --format csv REPORT, nsys stats REPORT, nsys profile --stats=true COMMAND",
        "the reports of Nsight Systems 2023.4 (their column names) and recorded output",
    ),
    Kind(
        "ncu",
        parse_ncu,
        "ncu --csv --page raw COMMAND, ncu --csv --page details COMMAND",
        "Nsight Compute's command line guide and the section files of version 2024.1",
    ),
)
