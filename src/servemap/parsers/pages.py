"""Kinds whose whole text is of one time: how each is parsed, and what its rows are."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from servemap.parsers.accelerators.amd_smi import parse_amd_smi
from servemap.parsers.accelerators.boxes import parse_ixsmi, parse_mx_smi
from servemap.parsers.accelerators.npu_smi import parse_npu_smi
from servemap.parsers.accelerators.rocm_smi import parse_rocm_smi
from servemap.parsers.accelerators.xpu_smi import parse_xpu_smi
from servemap.parsers.cells import key
from servemap.parsers.clean import clean
from servemap.parsers.engine_log import parse_engine_log
from servemap.parsers.frame import Extract
from servemap.parsers.host.numastat import parse_numastat
from servemap.parsers.host.perf_stat import parse_perf_stat
from servemap.parsers.host.sysstat import parse_mpstat, parse_pidstat, parse_sar
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.kernel_counters import parse_numa_nodes, parse_tcp_counters
from servemap.parsers.network.ethtool import parse_ethtool_statistics
from servemap.parsers.network.hca_counters import may_grow, parse_hca_counters
from servemap.parsers.network.rdma_statistic import parse_rdma_statistic
from servemap.parsers.pressure import parse_pressure
from servemap.parsers.values import text

Row = Mapping[str, Any]


class Page(NamedTuple):
    """A kind of page.

    Args:
        parse: from cleaned text to an extract; raises ParseError only.
        rows: the rows in an extract's data, each of one entity.
        begins: where the text is printed line by line, whether a line begins a page; None where the
            lines stand for themselves.
    """

    parse: Callable[[str], Extract]
    rows: Callable[[Mapping[str, Any]], Iterable[Row]]
    begins: Callable[[str], bool] | None = None


def _list(*names: str) -> Callable[[Mapping[str, Any]], Iterable[Row]]:
    """Return what yields the entries of these lists, blocks in them flat: `usage.gfx_percent`."""

    def rows(data: Mapping[str, Any]) -> Iterator[Row]:
        for name in names:
            for entry in data.get(name) or []:
                yield dict(_flat(entry, ""))

    return rows


def _flat(block: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, item in block.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{before}{name}.")
        else:
            yield f"{before}{name}", item


def _ports(data: Mapping[str, Any]) -> Iterator[Row]:
    for device in data["devices"]:
        for port in device["ports"]:
            # Of one that stopped, the rate is not known: it would look like none.
            growing = {name: n for name, n in port["counters"].items() if may_grow(name, n)}
            yield {**growing, **port["hw_counters"], **port, "device": device["name"]}


def _cards(data: Mapping[str, Any]) -> Iterator[Row]:
    for name, card in data["cards"].items():
        yield {**card["fields"], **card, "gpu": name.removeprefix("card")}


def _tables(data: Mapping[str, Any]) -> Iterator[Row]:
    for table in data.get("tables") or []:
        yield from table["rows"]


def _events(data: Mapping[str, Any]) -> Iterator[Row]:
    """Yield one row: each event's value, and as EVENT.UNIT what perf derives of it."""
    row: dict[str, Any] = {}
    for event in data["events"]:
        # `cycles:u` where only this user's part may be counted.
        name = key(event["event"].partition(":")[0])
        if event["value"] is not None:
            row[name] = event["value"]
        if event["metric"] is not None and event["metric_unit"]:
            row[f"{name}.{key(event['metric_unit'])}"] = event["metric"]
    yield row


_OF_ONE = re.compile(r"Per-node process memory usage \(in MBs\) for PID (\d{1,10}) .*")
_PROCESS = re.compile(r"(\d{1,10})_.*bytes")


def _process_memory(data: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the memory of each process on each node, of `numastat -p`."""
    for table in data["tables"]:
        one = _OF_ONE.fullmatch(table["title"] or "")
        for node, values in table["nodes"].items():
            if node == "total":
                continue
            if one:
                found = {one[1]: values.get("total_bytes")}
            else:
                found = {m[1]: v for label, v in values.items() if (m := _PROCESS.fullmatch(label))}
            for pid, value in found.items():
                yield {"pid": pid, "node": node, "bytes": value}


def _counters(data: Mapping[str, Any]) -> Iterator[Row]:
    for block in data["blocks"]:
        yield block["counters"]


def _links(data: Mapping[str, Any]) -> Iterator[Row]:
    for link in data["links"]:
        yield {**link["counters"], "device": link["device"], "port": link["port"]}


def _log_rows(data: Mapping[str, Any]) -> Iterator[Row]:
    for sample in data["samples"]:
        rank = sample["rank"]
        yield {
            **sample["figures"],
            "phase": sample["phase"],
            "rank": key(rank) if rank else "server",
        }


def _is_blank(line: str) -> bool:
    return not line.strip()


PAGES: dict[str, Page] = {
    "hca-counters": Page(parse_hca_counters, _ports),
    "pressure": Page(parse_pressure, _list("rows")),
    "numa-nodes": Page(parse_numa_nodes, _list("rows")),
    "tcp-counters": Page(parse_tcp_counters, _list("rows")),
    "amd-smi": Page(parse_amd_smi, _list("gpus")),
    "rocm-smi": Page(parse_rocm_smi, _cards),
    "ixsmi": Page(parse_ixsmi, _list("gpus")),
    "mx-smi": Page(parse_mx_smi, _list("gpus")),
    "npu-smi": Page(parse_npu_smi, _list("npus")),
    "xpu-smi": Page(parse_xpu_smi, _list("gpus")),
    "mpstat": Page(parse_mpstat, _tables, _is_blank),
    "pidstat": Page(parse_pidstat, _tables, _is_blank),
    "sar": Page(parse_sar, _tables, _is_blank),
    "perf-stat": Page(parse_perf_stat, _events),
    "numastat": Page(parse_numastat, _process_memory),
    "ethtool-statistics": Page(parse_ethtool_statistics, _counters),
    "rdma-statistic": Page(parse_rdma_statistic, _links),
    "engine-log": Page(parse_engine_log, _log_rows),
}
"""What reads a text that is of one time, by kind."""


def as_pages(lines: Iterable[JsonLine], kind: Page) -> Iterator[JsonLine]:
    """Yield records of whole pages: those that are pages already, and printed lines put together.

    A page is of the time at which its first line came. Sysstat begins each round with a blank line
    and its headings, and what stands before the first one is no round; lines of other kinds are
    pages of their own.
    """
    begins = kind.begins
    page: list[JsonLine] | None = None
    for line in lines:
        said = text(line.value.get("line"))
        if said is None:
            yield line
        elif begins is None:
            yield _page([line])
        elif begins(said):
            if page:
                yield _page(page)
            page = []
        elif page is not None:
            page.append(line)
    if page:
        yield _page(page)


def _page(lines: Sequence[JsonLine]) -> JsonLine:
    first = lines[0]
    printed = (one_line(line.value["line"]) for line in lines)
    return JsonLine(first.line, {**first.value, "text": "".join(f"{one}\n" for one in printed)})


def one_line(said: str) -> str:
    """Return a cleaned line of a tool as one line, whatever was in it."""
    return clean(said).replace("\n", " ")
