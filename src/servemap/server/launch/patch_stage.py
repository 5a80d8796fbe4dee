"""The `patch` stage: which variant's patches stand on a node, put in place, swapped, taken back."""

import time
from pathlib import Path
from typing import Any

from servemap.model.attempts import read_json
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ServemapError
from servemap.model.protocol import SCHEMA
from servemap.nodes.parallel import each
from servemap.server import patches
from servemap.server.context import Context
from servemap.server.events import append_event
from servemap.server.launch.ending import stop_server
from servemap.server.launch.ranks import standing
from servemap.server.launch.search_path import search_path, used_paths
from servemap.server.locks import server_lock
from servemap.server.not_run import NotRunError


def patch_variant(context: Context, variant: str, node_id: str, output: Path) -> None:
    """Apply and verify a variant's patches on a node and write the record.

    A patch that cannot be applied is recorded with `status: failed`; the launch then refuses.
    """
    record: dict[str, Any] = {"patches": []}
    reasons: list[str] = []
    with server_lock(context.run_dir, f"patch {variant}"):
        try:
            ranks = standing(context, [node_id])
            if any(rank.variant != variant for rank in ranks.values()):
                stop_server(context, f"the patches of variant {variant} are next")
            (context.run_dir / ".unpatched.json").unlink(missing_ok=True)
            record = swap_patches(context, variant, node_id)
        except ServemapError as error:
            reasons.append(str(error))
    write_json_atomic(
        output,
        {
            "schema": SCHEMA,
            "variant": variant,
            "node": node_id,
            "status": "failed" if reasons else "ok",
            "reasons": reasons,
            **record,
        },
    )


def swap_patches(context: Context, variant: str, node_id: str) -> dict[str, Any]:
    """Put the patches of a variant in place on a node, and those of another variant back.

    Returns the record that is stored in `server/VARIANT/patches/NODE.json`.

    Raises:
        NotRunError: `unpatch` took them back and `policy.on_unpatched` is `refuse`.
        PatchError: a patch does not lint, apply or verify, or another campaign has patched what
            the variant's server uses.
    """
    wanted = context.server(variant).patches
    marker = context.run_dir / ".unpatched.json"
    if wanted and context.policy.on_unpatched == "refuse" and read_json(marker) is not None:
        raise NotRunError(
            "patch",
            f"the patches of variant {variant} were taken back by `unpatch`",
            str(marker),
            "apply them with -f on server/VARIANT/patches/NODE.json, or set "
            "policy.on_unpatched: reapply",
        )
    record: dict[str, Any] = patches.apply_patches(
        context.nodes[node_id],
        wanted,
        context.workdir(node_id),
        search_path(context, variant, node_id) if wanted else (),
        used_paths(context, [variant], node_id),
    )
    if record["changed"]:
        append_event(context.run_dir, "patch", variant=variant, node=node_id)
    return record


def unpatch(context: Context) -> dict[str, Any]:
    """Stop the server, bring every original byte back, and return the proof per node.

    Raises:
        PatchError: an original could not be restored.
    """
    stop_server(context, "unpatch")
    proof = each(
        list(context.nodes),
        lambda node_id: patches.restore_all(context.nodes[node_id], context.workdir(node_id)),
    )
    write_json_atomic(context.run_dir / ".unpatched.json", {"t_ns": time.time_ns(), **proof})
    append_event(context.run_dir, "unpatch")
    return proof
