"""From started ranks to a server that may be measured: readiness, gates, records."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from servemap.engines.base import Attachable, Effective
from servemap.engines.failures import is_idle
from servemap.engines.registry import get_adapter
from servemap.model.canon import write_json_atomic
from servemap.model.protocol import SCHEMA
from servemap.model.server_spec import ServerSpec
from servemap.nodes.base import Node
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_value
from servemap.server.context import Context
from servemap.server.gates.checks import (
    Check,
    Started,
    check_module,
    check_process,
    run_gates,
)
from servemap.server.gates.holders import Holders
from servemap.server.gates.judge import boot_pids
from servemap.server.gates.readback import read_back
from servemap.server.gates.ready import check_ready, probe_marks, wait_ready
from servemap.server.gates.transport import transport_gate
from servemap.server.launch import boots, process
from servemap.server.launch.diagnosis import diagnose_ranks, to_do, why_failed
from servemap.server.launch.ending import finish
from servemap.server.launch.logs import follow_logs, keep_log
from servemap.server.launch.node_gates import holders_on, only_ours
from servemap.server.launch.node_log import read_log
from servemap.server.launch.patch_hook import check_imports
from servemap.server.launch.ranks import ranks_down
from servemap.server.launch.served import Served, server_pids, server_url
from servemap.server.not_run import NotRunError
from servemap.server.patience import Patience

PROBE_TIMEOUT_S = 10.0
RESOLVE_S = 30.0

Ranks = dict[str, process.Running]


def admit(
    context: Context,
    server: ServerSpec,
    ranks: Ranks,
    boot: boots.Boot,
    before: list[Check],
    patched: Mapping[str, Mapping[str, Any]],
) -> Served:
    """Wait for readiness, run the gates, record both; a server that fails is stopped.

    `before` are the checks that were made before the start, `patched` the record of each node's
    patches.

    Raises:
        NotRunError: it did not become ready or failed a gate.
    """
    adapter = get_adapter(server)
    url = server_url(context, server)
    model = context.plan.campaign.model
    endpoints = adapter.endpoints(url)
    patience = Patience(context.run_dir, context.policy.lost_node_s)
    ready = wait_ready(
        lambda: patience.insist(
            context.head,
            lambda: check_ready(context.head, endpoints, model, PROBE_TIMEOUT_S),
        ),
        lambda: ranks_down(context, ranks, patience.insist) is None,
        follow_logs(context, ranks),
        start_timeout_s=context.policy.start_timeout_s,
        own_lines=probe_marks(endpoints),
        idle=lambda line: is_idle(line, server.engine),
    )
    checks = [*before, Check("ready", ready.ok, ready.reason or f"after {ready.waited_s:.2f} s")]
    effective = Effective()
    holders = holders_on(context, list(ranks)) if ready.ok else {}
    started = _all_started(context, server, ranks, holders) if ready.ok else {}
    imports: dict[str, list[dict[str, Any]]] = {}
    transport: dict[str, Any] | None = None
    if started is None:
        checks.append(Check("process", False, "it was ready, then a process of it was gone"))
    elif started:
        result = run_gates(context.head, adapter, url, model, started[context.plan.head])
        checks += result.checks
        checks += read_back(adapter, server, model, result.effective)
        checks += _check_workers(context, adapter, started)
        patches, imports = check_imports(context, boot.variant, boot.boot_id, patched, started)
        checks += patches
        envs = [rank["env"] for rank in boot.ranks]
        paths, transport = transport_gate(
            server, {node_id: one.log for node_id, one in started.items()}, envs
        )
        checks += paths
        checks += only_ours(context, server, boot.boot_id, holders)
        effective = result.effective
    failed = [check for check in checks if check.ok is False]
    diagnoses = diagnose_ranks(context, server.engine, ranks, ready=ready.ok) if failed else {}
    folder = boots.boot_dir(context.run_dir, boot.variant, boot.boot_id)
    write_json_atomic(
        folder / "gate.json",
        redact_value(
            {
                "schema": SCHEMA,
                "checks": [check.record() for check in checks],
                "effective": asdict(effective),
                "memory": {
                    node_id: [asdict(rank) for rank in adapter.memory(one.log)]
                    for node_id, one in (started or {}).items()
                },
                **({"imports": imports} if imports else {}),
                **({"transport": transport} if transport else {}),
                "diagnosis": {node_id: one.record() for node_id, one in diagnoses.items()},
            }
        ),
    )
    if failed:
        reason = why_failed(diagnoses, failed)
        finish(context, ranks, "failed", reason)
        raise NotRunError("launch", reason, str(folder), to_do(diagnoses, failed))
    boots.write_boot(
        context.run_dir,
        replace(
            boot,
            status="ready",
            ready_ns=time.time_ns(),
            engine_version=effective.engine_version,
        ),
    )
    each(list(ranks), lambda node_id: _keep(context, node_id, ranks[node_id]))
    return Served(
        url,
        boot.fingerprint,
        boot.boot_id,
        server.engine,
        effective.engine_version,
        server_pids(context, ranks),
        False,
        boot.drift,
        boot.argv,
        boot.ranks,
        [check.record() for check in checks],
    )


def _keep(context: Context, node_id: str, rank: process.Running) -> None:
    """Keep what a rank said, and note what it would leave behind if it crashed."""
    keep_log(context, node_id, rank)
    process.note_segments(context.nodes[node_id], context.workdir(node_id), rank)


def _all_started(
    context: Context, server: ServerSpec, ranks: Ranks, holders: Mapping[str, Holders]
) -> dict[str, Started] | None:
    """Return the ranks as the gates need them; None where a process is not known any more."""
    found = each(
        list(ranks),
        lambda node_id: _started(context, server, node_id, ranks[node_id], holders[node_id]),
    )
    started = {node_id: one for node_id, one in found.items() if one is not None}
    return started if len(started) == len(ranks) else None


def _started(
    context: Context, server: ServerSpec, node_id: str, rank: process.Running, holders: Holders
) -> Started | None:
    node, workdir = context.nodes[node_id], context.workdir(node_id)
    identity = process.server_process(process.supervisor_state(node, workdir, rank.boot_id))
    if identity is None:
        return None
    return Started(
        identity.pid,
        identity.start,
        server.bind,
        server.port,
        _resolved(node, server.package.root) if server.package else None,
        read_log(node, process.log_path(workdir, rank.boot_id)),
        holders.view,
        boot_pids(holders, rank.boot_id),
    )


def _resolved(node: Node, path: str) -> str:
    """Return an absolute path with its links followed on the node."""
    if node.here:
        return str(Path(path).resolve())
    done = node.run(["readlink", "-f", path], timeout_s=RESOLVE_S)
    return done.stdout.strip() or path


def _check_workers(
    context: Context, adapter: Attachable, started: dict[str, Started]
) -> list[Check]:
    """Check that the other ranks run what they should; only the head's answers requests."""
    checks = []
    for node_id, one in started.items():
        if node_id == context.plan.head:
            continue
        checks.append(replace(check_process(one), name=f"process {node_id}"))
        if one.package_root is not None:
            module = adapter.read_back(one.log, None, {}).module_path
            check = check_module(module, one.package_root, needed=False)
            checks.append(replace(check, name=f"module {node_id}"))
    return checks
