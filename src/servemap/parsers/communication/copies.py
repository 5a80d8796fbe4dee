"""Programs that copy between host and cards: gpu_copy, hipBusBandwidth, bandwidthTest."""

import re
from typing import Any

from servemap.parsers.cells import number, scaled
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_END = r"(?:cpu|gpu\d{1,4}|gpu_all)"
_COPY = re.compile(
    rf"(?P<source>{_END})_(?P<way>to|and)_(?P<target>{_END})(?:_(?P<operation>read|write))?"
    r"_by_(?P<by>sm|dma)(?:_under_numa(?P<numa>\d{1,4}))?"
)
_STATISTICS = ("median", "mean", "stddev", "min", "max")
_UNITS = {"GB/sec": ("bytes_per_s", 1e9), "ms": ("s", 1e-3), "us": ("s", 1e-6)}
_SIZE = re.compile(r"\+?(\d{1,12})(By|kB)")
_BUS_DEVICE = re.compile(r"Device:(.{1,200}?)\s+Mem=.{0,200}")
_CUDA = re.compile(
    r"bandwidthTest-(\w{1,10})(?:-(\w{1,20}))?, Bandwidth = (\S{1,40}) (GB/s|MB/s)"
    r", Time = (\S{1,40}) s, Size = (\d{1,20}) bytes(?:, NumDevsUsed = (\d{1,4}))?"
)


def parse_gpu_copy(text: str) -> Extract:
    """Bandwidth between host and cards by path, of superbench's gpu_copy.

    `copies`: `name`, `source` and `target` (`cpu`, `gpu0`, `gpu_all`), `bidirectional`, `operation`
    (`read` or `write` of the other card's memory, else null), `by` (`sm`: a kernel, `dma`: a copy
    engine), `numa_node` of the host's memory, `bandwidth_bytes_per_s`.

    Raises:
        ParseError: there is no such line.
    """
    copies: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    for line, row in ended(text, skipped):
        name, _, rest = row.strip().partition(" ")
        found, value = _COPY.fullmatch(name), number(rest)
        if found is None or value is None:
            skipped.append(Skipped(line, "no path with a bandwidth"))
            continue
        copies.append(
            {
                "name": name,
                "source": found["source"],
                "target": found["target"],
                "bidirectional": found["way"] == "and",
                "operation": found["operation"],
                "by": found["by"],
                "numa_node": int(found["numa"]) if found["numa"] else None,
                "bandwidth_bytes_per_s": scaled(value, 1e9),
            }
        )
    if not copies:
        raise foreign("gpu-copy", "path such as gpu0_to_gpu1_write_by_sm")
    return Extract({"copies": copies}, skipped)


def parse_hip_bandwidth(text: str) -> Extract:
    """Bandwidth and time of copies by size, of HIP's hipBusBandwidth.

    `device` and `rows`: `test`, `size_bytes` (kB are of 1024 bytes, as bandwidth and time of the
    tool's own rows show), and `median`, `mean`, `stddev`, `min`, `max`, each ending with
    `_bytes_per_s` or `_s`.

    Raises:
        ParseError: there is no row.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    device: str | None = None
    for line, row in ended(text, skipped):
        if found := _bus_row(row.split()):
            rows.append(found)
        elif named := _BUS_DEVICE.fullmatch(row.strip()):
            device = named[1].strip()
        elif row.split()[:3] != ["test", "atts", "units"]:
            skipped.append(Skipped(line, "no row of this table"))
    if not rows:
        raise foreign("hip-bandwidth", "row with a size, a unit and five values")
    return Extract({"device": device, "rows": rows}, skipped)


def _bus_row(words: list[str]) -> dict[str, Any] | None:
    if len(words) != 3 + len(_STATISTICS) or words[2] not in _UNITS:
        return None
    size, (suffix, factor) = _SIZE.fullmatch(words[1]), _UNITS[words[2]]
    values = [number(word) for word in words[3:]]
    if size is None or None in values:
        return None
    return {
        "test": words[0],
        "size_bytes": int(size[1]) * (1024 if size[2] == "kB" else 1),
        **{
            f"{name}_{suffix}": scaled(value, factor)
            for name, value in zip(_STATISTICS, values, strict=True)
        },
    }


def parse_cuda_bandwidth(text: str) -> Extract:
    """Bandwidth of copies by size, of the CUDA samples' bandwidthTest --csv.

    `rows`: `direction` (`H2D`, `D2H`, `D2D`), `memory` (`Pinned`, `Paged`, else null),
    `size_bytes`, `bandwidth_bytes_per_s`, `devices`. The time is printed with too few digits to be
    of use.

    Raises:
        ParseError: there is no row.
    """
    rows: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    for line, row in ended(text, skipped):
        found = _CUDA.fullmatch(row.strip())
        value = number(found[3]) if found else None
        if found and value is not None:
            rows.append(
                {
                    "direction": found[1],
                    "memory": found[2],
                    "size_bytes": int(found[6]),
                    "bandwidth_bytes_per_s": scaled(value, 1e9 if found[4] == "GB/s" else 1e6),
                    "devices": int(found[7]) if found[7] else None,
                }
            )
        elif not _is_remark(row.strip()):
            skipped.append(Skipped(line, "no row of bandwidthTest"))
    if not rows:
        raise foreign("cuda-bandwidth", "line that begins with bandwidthTest-")
    return Extract({"rows": rows}, skipped)


def _is_remark(line: str) -> bool:
    return not line.strip(".") or line.startswith(
        ("[CUDA Bandwidth Test]", "Running on", "Device ", "Shmoo Mode", "Quick Mode", "Range Mode",
         "Result = ", "NOTE:")
    )  # fmt: skip
