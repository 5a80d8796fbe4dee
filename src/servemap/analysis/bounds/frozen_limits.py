"""Limits of an entity of telemetry that the frozen facts of its node tell."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from servemap.analysis.bounds.cards import GB, Sheet, card_names, sheet
from servemap.analysis.bounds.known import NotKnownError
from servemap.analysis.bounds.nvlink import nvlink_rates
from servemap.analysis.bounds.pcie import Link, links
from servemap.parsers.network.link_rate import read_rate
from servemap.parsers.values import integer, mapping, text

Facts = Mapping[str, Any]


class Limit(NamedTuple):
    """A limit in the metric's unit, and where it is from; both None where it is not known."""

    value: float | None
    source: str | None


UNKNOWN = Limit(None, None)


def frozen_limit(kind: str, facts: Facts, entity: str) -> Limit:
    """Return the limit of an entity of telemetry; `kind` is the `frozen` of use.yaml."""
    return _KINDS[kind](facts, entity)


def _port(facts: Facts, entity: str) -> Limit:
    """Return the rate of an HCA's port named DEVICE:PORT; not known while it is down."""
    device, _, port = entity.partition(":")
    found = mapping(mapping(mapping(facts.get("nics")).get("rdma")).get(device))
    record = mapping(mapping(found.get("ports")).get(port))
    active = (text(record.get("state")) or "").endswith("ACTIVE")
    bits = read_rate(text(record.get("rate")) or "") if active else None
    return UNKNOWN if bits is None else Limit(bits / 8, "frozen rate of the port")


def _interface(facts: Facts, entity: str) -> Limit:
    nics = mapping(mapping(facts.get("nics")).get("interfaces"))
    mbit = integer(mapping(nics.get(entity)).get("speed_mbit"))
    return Limit(mbit * 1e6 / 8, "frozen rate of the interface") if mbit else UNKNOWN


def _pcie(facts: Facts, entity: str) -> Limit:
    """Return what the link of a card carries in a direction."""
    link = _link(facts, entity)
    if link is None or link.bytes_per_s is None:
        return UNKNOWN
    source = f"frozen PCIe link: generation {link.generation}, {link.width} lanes"
    if link.width < link.max_width:
        source += f" of {link.max_width}: fewer than the card has"
    return Limit(link.bytes_per_s, source)


def _generation(facts: Facts, entity: str) -> Limit:
    link = _link(facts, entity)
    if link is None:
        return UNKNOWN
    return Limit(link.own_generation or link.generation, "frozen PCIe generation of the card")


def _lanes(facts: Facts, entity: str) -> Limit:
    link = _link(facts, entity)
    return UNKNOWN if link is None else Limit(link.max_width, "frozen PCIe lanes of the card")


def _nvlink(facts: Facts, entity: str) -> Limit:
    index = _index(entity)
    rates = nvlink_rates(facts).get(-1 if index is None else index)
    if rates:
        return Limit(sum(rates), f"{len(rates)} frozen NVLinks")
    card = _sheet(facts, entity)
    if card is None or card.link_gb_s is None:
        return UNKNOWN
    return Limit(card.link_gb_s * GB, _of_sheet(card))


def _board(facts: Facts, entity: str) -> Limit:
    card = _sheet(facts, entity)
    return UNKNOWN if card is None or card.power_w is None else Limit(card.power_w, _of_sheet(card))


def _of_sheet(card: Sheet) -> str:
    return f"{card.name}, {'; '.join((card.source, *card.others))}"


def _index(entity: str) -> int | None:
    """Return the number of a card named GPU0, gpu1 ..."""
    found = re.fullmatch(r"gpu ?(\d{1,4})", entity, re.IGNORECASE)
    return int(found[1]) if found else None


def _link(facts: Facts, entity: str) -> Link | None:
    index = _index(entity)
    return None if index is None else dict(enumerate(links(facts))).get(index)


def _sheet(facts: Facts, entity: str) -> Sheet | None:
    index = _index(entity)
    try:
        names = dict(enumerate(card_names(facts)))
        return None if index not in names else sheet(names[index])
    except NotKnownError:
        return None


_KINDS: dict[str, Callable[[Facts, str], Limit]] = {
    "hca": _port,
    "interface": _interface,
    "pcie": _pcie,
    "generation": _generation,
    "lanes": _lanes,
    "nvlink": _nvlink,
    "board": _board,
}
