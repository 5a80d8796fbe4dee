"""What a baseline's figures depend on, of the frozen facts: as texts that can be compared."""

import json
import re
from collections.abc import Mapping
from typing import Any

from servemap.model import results
from servemap.model.attempts import read_json
from servemap.model.baselines import BaselineSpec, CollectiveBaseline
from servemap.model.files import parse_json
from servemap.parsers.values import mapping, text
from servemap.server import freeze
from servemap.server.context import Context
from servemap.server.engine_facts import PYTHON, baseline_python

_DRIVER = re.compile(r"^\s*(?:Driver Version|Driver version)\s*:\s*(\S.{0,80}?)\s*$", re.MULTILINE)
_LIBRARIES = ("torch", "nvidia-nccl")
_LISTS = ("nvidia-smi -L", "ixsmi -L")
_QUERIES = ("nvidia-smi -q", "rocm-smi --showallinfo", "ixsmi -q")

NO_CARDS = "none"
TOLD = {
    "tcp": ("kernel", "nics"),
    "collective": ("kernel", "nics", "rdma", "accelerators", "driver"),
    "copies": ("kernel", "accelerators", "driver"),
}
"""Facts that have to be told for two environments to be the same, by kind of baseline: two that are
not told are equal, and say nothing."""
TOLD_OF_TORCH = ("libraries",)

Environment = dict[str, str | None]
"""{fact: its text}; null where it was not told."""


def environments(context: Context, spec: BaselineSpec) -> dict[str, Environment]:
    """Return the environment of each node of the campaign, of its frozen facts."""
    found = {}
    for node_id in context.plan.all_nodes():
        data = read_json(results.freeze_file(context.run, node_id)) or {}
        python = None
        if isinstance(spec, CollectiveBaseline):
            python = baseline_python(context, spec, node_id, freeze_base(context, node_id))
        facts = freeze.frozen(context, node_id) or {}
        found[node_id] = {
            "address": context.node_spec(node_id).address,
            **environment(facts, mapping(data.get("images")), python),
        }
    return found


def freeze_base(context: Context, node_id: str) -> str:
    """Return what relative paths begin with in the frozen facts of a node."""
    return "" if context.nodes[node_id].here else context.paths_from(node_id)


def environment(
    facts: Mapping[str, Any], images: Mapping[str, Any], python: str | None
) -> Environment:
    """Return what a node's frozen facts say that matters to communication.

    Args:
        facts: as of the agent's `facts`.
        images: {name: record} of the frozen images.
        python: interpreter that the ranks run under; None where none does.

    Returns:
        kernel, machine's cpu, nics and rdma (drivers, speeds, MTU, firmware), accelerators and
        driver (`none` where no tool for cards is there);
        with an interpreter its version and libraries, and the images.
    """
    nics = mapping(facts.get("nics"))
    keys = ("driver", "speed_mbit", "mtu", "bus_address")
    interfaces = {
        name: {key: mapping(one).get(key) for key in keys}
        for name, one in sorted(mapping(nics.get("interfaces")).items())
        # Bridges and ends of virtual cables come and go with containers.
        if mapping(one).get("driver") not in (None, "bridge") and name != "lo"
    }
    cards = mapping(facts.get("accelerators"))
    tools = mapping(cards.get("tools"))
    absent = NO_CARDS if cards.get("found") is False else None
    lists = [said for name in _LISTS if (said := _said(tools, name))]
    drivers = [found[1] for name in _QUERIES if (found := _DRIVER.search(_said(tools, name)))]
    found_here: Environment = {
        "kernel": text(mapping(facts.get("kernel")).get("release")),
        "cpu": _json(mapping(facts.get("cpu")).get("model")),
        "nics": _json(interfaces if "interfaces" in nics else None),
        "rdma": _json(_rdma(nics) if "rdma" in nics else None),
        "accelerators": "; ".join(" ".join(one.split()) for one in lists) or absent,
        "driver": "; ".join(drivers) or absent,
    }
    if python is not None:
        engine = mapping(mapping(facts.get(PYTHON)).get(python))
        packages = mapping(engine.get("packages"))
        found_here["python"] = text(engine.get("version"))
        found_here["libraries"] = _json(
            {n: v for n, v in sorted(packages.items()) if n.lower().startswith(_LIBRARIES)} or None
        )
        ids = {name: mapping(one).get("id") for name, one in sorted(images.items())}
        found_here["images"] = _json(ids or None)
    return found_here


def not_told(environment: Mapping[str, Any], spec: BaselineSpec) -> list[str]:
    """Return the facts that the figures of a baseline depend on and that were not told."""
    needed = TOLD[spec.kind]
    if isinstance(spec, CollectiveBaseline) and spec.tool == "torch":
        needed += () if _images_told(environment) else TOLD_OF_TORCH
    return [fact for fact in needed if environment.get(fact) is None]


def _images_told(environment: Mapping[str, Any]) -> bool:
    """Whether there are images, each known by its id: their libraries are in them."""
    try:
        ids = mapping(parse_json(text(environment.get("images")) or "null"))
    except ValueError:
        return False
    return bool(ids) and all(ids.values())


def _said(tools: Mapping[str, Any], name: str) -> str:
    return text(mapping(tools.get(name)).get("stdout")) or ""


def _rdma(nics: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "firmware": mapping(one).get("firmware"),
            "rates": [mapping(p).get("rate") for p in mapping(mapping(one).get("ports")).values()],
        }
        for name, one in sorted(mapping(nics.get("rdma")).items())
    }


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True)
