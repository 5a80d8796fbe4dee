"""nvidia-smi -q -x: everything that the driver tells, as XML."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

from servemap.parsers.accelerators.nvidia_fields import field, says_failure
from servemap.parsers.accelerators.nvidia_query import Block, add, whole
from servemap.parsers.cells import key
from servemap.parsers.clean import numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

_ROOT = "<nvidia_smi_log"
_LISTS = {"mig_devices", "processes"}
_DEEPEST = 20


def parse_xml(text: str) -> Extract:
    """All of nvidia-smi -q -x: the elements of each GPU.

    As `nvidia-smi-q`, with the names of the XML: `gpus`, one each, `id` (PCI address), `complete`
    (false where the document ends within the GPU) and its elements: `fb_memory_usage`
    {`used_bytes`}, `utilization` {`gpu_util_percent`}, `gpu_power_readings` (`power_readings` in
    older ones) {`power_draw_watts`}. `mig_devices` and `processes` are lists, null where they are
    not known. Of several documents in one file (-l) `gpus` holds the GPUs of all.

    Raises:
        ParseError: there is neither an element `nvidia_smi_log` nor a message of nvidia-smi.
    """
    lead, *documents = text.split(_ROOT)
    around = [
        (number, row.strip())
        for number, row in numbered(lead)
        if not row.lstrip().startswith(("<?xml", "<!DOCTYPE"))
    ]
    said = [row for _, row in around if says_failure(row)]
    if not documents and not said:
        raise foreign("nvidia-smi -q -x", "element <nvidia_smi_log>")
    skipped = [
        Skipped(number, "before the document") for number, row in around if row not in said[:1]
    ]
    top: Block = {}
    gpus: list[Block] = []
    line = lead.count("\n") + 1
    for document in documents:
        fault = _read(_ROOT + document, top, gpus)
        if fault is not None:
            skipped.append(Skipped(line + fault - 1, "the document breaks off here"))
        line += document.count("\n")
    return Extract(whole(top, gpus or None, said[0] if said else None), skipped)


def _read(document: str, top: Block, gpus: list[Block]) -> int | None:
    """Add a document's facts and GPUs; return the line where it breaks off, None where it ends."""
    parser: ET.XMLPullParser[Any] = ET.XMLPullParser(events=("start", "end"))
    parser.feed(document)
    inside: list[ET.Element] = []
    root: ET.Element | None = None
    fault: int | None = None
    events: Iterator[Any] = parser.read_events()
    try:
        for event, element in events:
            if event == "start":
                root = element if root is None else root
                inside.append(element)
                if len(inside) > _DEEPEST:
                    break
            else:
                inside.pop()
                if not inside:
                    break
    except ET.ParseError as error:
        fault = error.position[0]
    if inside and fault is None:
        fault = document.rstrip("\n").count("\n") + 1
    cut = {id(element) for element in inside}
    for child in root if root is not None else ():
        if child.tag == "gpu":
            content = _content(child, cut)
            content = content if isinstance(content, dict) else {}
            gpus.append({"id": child.get("id"), "complete": id(child) not in cut, **content})
        elif id(child) not in cut and not len(child):
            top.update([field(child.tag, child.text or "")])
    return fault


def _content(element: ET.Element, cut: set[int]) -> Any:
    """Return an element's children as a block or list, without those that were cut."""
    name = key(element.tag)
    children = [child for child in element if len(child) or id(child) not in cut]
    if name in _LISTS:
        text = (element.text or "").strip()
        return [_content(child, cut) for child in children] if text in ("", "None") else None
    block: Block = {}
    for child in children:
        if len(child) or key(child.tag) in _LISTS:
            add(block, key(child.tag), _content(child, cut))
        else:
            add(block, *field(child.tag, child.text or "", name))
    return block
