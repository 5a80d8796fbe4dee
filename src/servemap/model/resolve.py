"""From the campaign as written to what is measured: variants applied, lengths in tokens."""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from servemap.model.base import tokens
from servemap.model.baselines import (
    BaselineSpec,
    CollectiveBaseline,
    CopiesBaseline,
    TcpBaseline,
    size_bytes,
)
from servemap.model.campaign import Campaign, Variant
from servemap.model.canon import file_sha256
from servemap.model.cases import (
    CaseSpec,
    ChatCase,
    FixedCase,
    LevelsCase,
    PrefixCase,
    RateCase,
    ReplayCase,
    SearchCase,
)
from servemap.model.clients import OWN
from servemap.model.errors import ConfigError
from servemap.model.replay import trace_here
from servemap.model.server_spec import NodeSpec, PatchSpec, ServerSpec
from servemap.model.wording import say_problems


def variant_server(campaign: Campaign, variant: Variant) -> ServerSpec:
    """Return the server spec of a variant.

    Raises:
        ConfigError: a key that the variant sets does not exist or its value does not fit.
    """
    if not variant.set:
        return campaign.server
    data = campaign.server.model_dump(mode="json")
    for key, value in variant.set.items():
        _assign(data, key, value, f"variants.{variant.id}.set.{key}")
    try:
        return ServerSpec.model_validate(data)
    except ValidationError as error:
        _, line, _ = say_problems(error.errors(), "server.")[0]
        raise ConfigError(
            f"variant {variant.id!r}: {line}",
            f"variants.{variant.id}.set",
            "give a value that the key allows; config/README.md lists them",
        ) from error


def _assign(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    *parents, last = key.split(".")
    node: Any = data
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    free_form = len(parents) == 1 and parents[0] in ("args", "env", "request")
    if not isinstance(node, dict) or (last not in node and not free_form):
        raise ConfigError(
            f"server has no key {key!r}",
            where,
            "use a dotted key below `server`, such as settings.max_active or args.NAME",
        )
    if free_form and value is None:
        if last not in node:
            raise ConfigError(
                f"server has no {key!r} to remove", where, "remove only what `server` gives"
            )
        del node[last]
    else:
        node[last] = value


def changed_keys(before: ServerSpec, after: ServerSpec) -> set[str]:
    """Return the dotted leaf keys in which two server specs differ."""
    flat_before, flat_after = flat_server(before), flat_server(after)
    keys = flat_before.keys() | flat_after.keys()
    return {key for key in keys if flat_before.get(key) != flat_after.get(key)}


def flat_server(server: ServerSpec) -> dict[str, Any]:
    """Return a server spec as its dotted leaf keys and their values."""
    return _flatten(server.model_dump(mode="json"))


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat.update(_flatten(item, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    return {prefix: value}


def resolved_case(campaign: Campaign, case: CaseSpec) -> dict[str, Any]:
    """Return a case with every length in tokens: what the load client is asked to do.

    Planning keys (`repeats`, `expected_s`, `expect`) are left out: they do not change what is
    measured, so changing them reruns nothing. `client` is there only where it is not servemap's
    own, with its name and all that the campaign says of it, and `cache` only where it is flushed,
    so that older specs stay what they are; so is `watching` where it is unusual. A trace is named
    by the sha256 of its file (null where that is not here), not by its path.
    """
    per_k = campaign.scale.tokens_per_k
    data = case.model_dump(mode="json", exclude={"repeats", "expected_s", "expect"})
    if case.cache == "keep":
        del data["cache"]
    if isinstance(case, FixedCase):
        if case.watching == "usual":
            del data["watching"]
        name = data.pop("client")
        if name != OWN:
            data["client"] = {"name": name, **campaign.clients[name].model_dump(mode="json")}
    if isinstance(case, FixedCase | PrefixCase | ChatCase):
        data["num_prompts"] = case.num_prompts or case.concurrency
        parts = [data] + ([data["fallback"]] if data.get("fallback") else [])
    elif isinstance(case, RateCase | LevelsCase):
        parts = [data]
    elif isinstance(case, ReplayCase):
        del data["trace"]
        trace = trace_here(case, per_k)
        data["trace_sha256"] = None if trace is None else trace.sha256
        parts = [data]
    else:
        data["background"]["num_prompts"] = (
            case.background.num_prompts or case.background.concurrency
        )
        parts = [data["background"], data["inject"]]
    if isinstance(case, SearchCase):
        data["slo"] = (case.slo or campaign.slo).model_dump(mode="json")
    for part in parts:
        for key in ("isl", "osl", "isl_cap", "osl_cap"):
            if part.get(key) is not None:
                part[key] = tokens(part[key], per_k)
    return data


def resolved_baseline(campaign: Campaign, baseline: BaselineSpec) -> dict[str, Any]:
    """Return what identifies a baseline: its spec, the nodes and, of a collective, what runs it.

    `reuse_from` is there only where it names a run, so that older specs stay what they are.
    """
    data = baseline.model_dump(mode="json")
    if baseline.reuse_from is None:
        del data["reuse_from"]
    found: dict[str, Any] = {
        "baseline": data,
        "nodes": [[node.id, node.address] for node in campaign.nodes],
    }
    if isinstance(baseline, TcpBaseline):
        return found
    found["node_env"] = {node.id: node.env for node in campaign.nodes}
    if isinstance(baseline, CopiesBaseline):
        return found
    server = campaign.server
    data["sizes"] = [size_bytes(size) for size in baseline.sizes]
    return {
        **found,
        "ranks": {node.id: ranks_on(baseline, node) for node in campaign.nodes},
        "server": {
            **server.model_dump(mode="json", include={"python", "container", "master_port"}),
            "env": plain_env(server),
        },
    }


def ranks_on(baseline: CollectiveBaseline, node: NodeSpec) -> int:
    """Return how many ranks of a baseline run on a node."""
    return baseline.ranks_per_node or max(node.accelerators, 1)


def plain_env(server: ServerSpec) -> dict[str, str]:
    """Return the variables of a server that are no secrets."""
    return {name: value for name, value in server.env.items() if isinstance(value, str)}


def resolved_server(campaign: Campaign, variant: Variant) -> dict[str, Any]:
    """Return all that identifies a variant's server: spec, model, nodes and patch contents.

    `transport` and its `baselines` are there only where they require something, so that older
    specs stay what they are.
    """
    server = variant_server(campaign, variant)
    names = set(server_nodes(campaign, server))
    data = server.model_dump(mode="json")
    if server.transport is None:
        del data["transport"]
    elif not server.transport.baselines:
        del data["transport"]["baselines"]
    data["patches"] = [
        {**patch.model_dump(mode="json"), "content_sha256": patch_digest(patch)}
        for patch in server.patches
    ]
    return {
        "server": data,
        "model": campaign.model.model_dump(mode="json"),
        "nodes": [
            node.model_dump(mode="json", include={"id", "role", "address", "env", "rails"})
            for node in campaign.nodes
            if node.id in names
        ],
    }


def server_nodes(campaign: Campaign, server: ServerSpec) -> list[str]:
    """Return the ids of the nodes that a server runs on, the head first."""
    if server.nodes:
        return list(server.nodes)
    return [next(node.id for node in campaign.nodes if node.role == "head")]


def patch_digest(patch: PatchSpec) -> str | None:
    """Return a digest of a patch's source, or None where there is no such file here."""
    return _source_digest(patch.source) if patch.kind != "symlink" else None


@cache
def _source_digest(source: str) -> str | None:
    path = Path(source)
    if path.is_file():
        return file_sha256(path)
    if path.is_dir():
        files = sorted(
            item for item in path.rglob("*") if item.is_file() and "__pycache__" not in item.parts
        )
        return ",".join(f"{item.relative_to(path)}:{file_sha256(item)}" for item in files)
    return None
