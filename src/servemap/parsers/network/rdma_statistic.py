"""rdma statistic show: the counters of every RDMA link, as text or as JSON (rdma -j)."""

import re
from typing import Any

from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import integer, is_json, items, mapping, string
from servemap.parsers.records import Skipped

_LINK = re.compile(r"([\w.-]{1,64})/(\d{1,4}|-)")
_NAME = re.compile(r"[a-z_][\w.-]{0,99}")
_COUNT = re.compile(r"\d{1,20}")


def parse_rdma_statistic(text: str) -> Extract:
    """Hardware counters of every RDMA link.

    `links`: `device`, `port` (null for a whole device), `counters` by name. A counter whose value
    was cut off is skipped.

    Raises:
        ParseError: there is no link.
    """
    if is_json(text):
        return _from_json(text)
    links: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    cut = 0 if text[-1:].isspace() else cut_line(text)
    for line, row in numbered(text):
        words = row.split()
        if line == cut:
            skipped.append(Skipped(line, f"a last word that may be cut: {words.pop()[:80]}"))
        if not words:
            continue
        named = _LINK.fullmatch(words[1]) if words[0] == "link" and len(words) > 1 else None
        if named:
            port = None if named[2] == "-" else int(named[2])
            links.append({"device": named[1], "port": port, "counters": {}})
            words = words[2:]
        elif words[0] == "link" or not links or not _are_counters(words):
            skipped.append(Skipped(line, "no link, or no counters of one"))
            continue
        if left := _read_counters(links[-1]["counters"], words):
            skipped.append(Skipped(line, f"no counter with a value: {' '.join(left[:3])[:80]}"))
    if not links:
        raise foreign("rdma-statistic", "line that begins with link DEVICE/PORT")
    return Extract({"links": links}, skipped)


def _are_counters(words: list[str]) -> bool:
    """Whether a line that names no link has names and values in turn; a last name may be cut."""
    return all(map(_NAME.fullmatch, words[::2])) and all(map(_COUNT.fullmatch, words[1::2]))


def _read_counters(counters: dict[str, int], words: list[str]) -> list[str]:
    """Read names and values in turn; return the words that are neither."""
    names, counts = words[::2], words[1::2]
    if (
        len(names) == len(counts)
        and all(map(_COUNT.fullmatch, counts))
        and (all(map(_NAME.fullmatch, names)))
    ):
        counters.update(zip(names, map(int, counts), strict=True))
        return []
    left: list[str] = []
    at = 0
    while at < len(words):
        if at + 1 < len(words) and _NAME.fullmatch(words[at]) and _COUNT.fullmatch(words[at + 1]):
            counters[words[at]] = int(words[at + 1])
            at += 2
        else:
            left.append(words[at])
            at += 1
    return left


def _from_json(text: str) -> Extract:
    document = read_document("rdma-statistic", text)
    links = []
    for entry in map(mapping, items(document.value)):
        if device := string(entry.get("ifname")):
            counts = {
                name: count
                for name, said in entry.items()
                if name not in ("ifindex", "port") and (count := integer(said)) is not None
            }
            links.append({"device": device, "port": integer(entry.get("port")), "counters": counts})
    if not links:
        raise foreign("rdma-statistic", "list of links with an ifname")
    return Extract({"links": links}, document.skipped)
