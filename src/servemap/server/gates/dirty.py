"""The dirty-node gate: what is ours is stopped and waited for, what is not fails it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from servemap.model.server_spec import NodeSpec
from servemap.nodes.base import Node
from servemap.server.gates.checks import Check
from servemap.server.gates.holders import SUDO, Holders, look
from servemap.server.gates.judge import Judgement, Port, judge

MEMORY_BACK_S = 30.0
"""Drivers give the memory of a killed process back some seconds after it is gone."""


def check_clean(
    holders: Holders, spec: NodeSpec, *, expected_boot: str, ports: Sequence[Port]
) -> Check:
    """Check after a start that only the server that was started holds cards and ports.

    Args:
        holders: what is on the node (see `dirty_holders.look`).
        spec: the node as the campaign describes it.
        expected_boot: the server's start.
        ports: ports that are ours, with the address that each is bound to.
    """
    return _judge(holders, spec, expected_boot, ports).check


def wait_clean(
    node: Node,
    spec: NodeSpec,
    workdirs: Sequence[str],
    *,
    ports: Sequence[Port],
    grace_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Check:
    """Check before a start and after a stop that nothing holds cards and ports.

    What is left of servers of this run is stopped. Then memory may take `grace_s` and a margin to
    come back. What is not ours and runs on fails the check at once.

    Args:
        node: the node.
        spec: the node as the campaign describes it.
        workdirs: the run's folders on the node.
        ports: ports that are ours, with the address that each is bound to.
        grace_s: seconds from TERM to KILL.
        clock: seconds, monotonic.
        sleep: waits for seconds.

    Raises:
        NodeError: the node itself did not do its part.
    """
    began = clock()
    stopped: set[str] = set()
    pause_s = 0.1
    while True:
        judgement = _judge(look(node, workdirs, become=spec.become), spec, None, ports)
        waited_s = clock() - began
        if judgement.check.ok is not False:
            return _with_history(judgement.check, stopped, waited_s)
        if judgement.boots - stopped:
            for boot_id in sorted(judgement.boots - stopped):
                _sweep(node, boot_id, grace_s, become=spec.become)
                stopped.add(boot_id)
            continue
        if not judgement.may_clear or waited_s >= grace_s + MEMORY_BACK_S:
            return _with_history(judgement.check, stopped, waited_s)
        sleep(pause_s)
        pause_s = min(pause_s * 1.5, 1.0)


def _judge(
    holders: Holders, spec: NodeSpec, expected_boot: str | None, ports: Sequence[Port]
) -> Judgement:
    return judge(
        holders,
        expected_boot=expected_boot,
        ports=ports,
        idle_memory_bytes=spec.idle_memory_bytes,
        accelerators=spec.accelerators,
    )


def _sweep(node: Node, boot_id: str, grace_s: float, *, become: bool) -> None:
    """End what is left of a start; whether all is gone is seen by looking again."""
    argv = node.agent_argv("sweep", "--boot-id", boot_id, "--grace", str(grace_s))
    node.run([*(SUDO if become else ()), *argv], timeout_s=grace_s + 30)


def _with_history(check: Check, stopped: set[str], waited_s: float) -> Check:
    """Return the check with what was done before it came out so."""
    if not stopped and waited_s < 1:
        return check
    done = f"stopped what was left of {', '.join(sorted(stopped))}; " if stopped else ""
    return replace(check, evidence=f"{done}after {waited_s:.1f} s: {check.evidence}")
