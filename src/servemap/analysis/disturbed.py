"""What disturbed a load so much that it is measured once more: judged when the attempt ends.

These are the checks of the verdict that another try may well pass, since they are about neither
server nor workload: a saturated client, and other programs on the measured machine.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from servemap.analysis.checks.client import check_client
from servemap.analysis.checks.foreign import check_foreign_load
from servemap.analysis.load_records import read_load
from servemap.analysis.requests import Request
from servemap.analysis.segments import segments_of
from servemap.analysis.telemetry import read_telemetry
from servemap.analysis.verdict import Check, resolve_limits, say
from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.parsers.values import mapping
from servemap.telemetry.clock import load_times

LAG = "client_lag_ms"
LATE = "client_late_ms"
SATURATION = (LAG, LATE, "client_cpu_share")


def disturbances(campaign: Campaign) -> Callable[[Path, Mapping[str, Any]], list[str]]:
    """Return what says in words how an attempt that went well otherwise was disturbed.

    It takes the attempt's raw folder and its facts as meta.json has them. Raw files that cannot be
    read are no disturbance: derive says what is wrong with them.
    """
    limits = resolve_limits(campaign.limits.model_dump())
    limits["foreign_cpu_share"] = max(
        limits["foreign_cpu_share"], campaign.policy.retry_foreign_share
    )

    def judge(raw: Path, facts: Mapping[str, Any]) -> list[str]:
        try:
            return _judge(raw, facts, limits, campaign.load_node or "")
        except Exception:  # noqa: BLE001 - a bad file must not cost the attempt that holds it
            return []

    return judge


def _judge(
    raw: Path, facts: Mapping[str, Any], limits: dict[str, float], load_node: str
) -> list[str]:
    client, load = (read_json(raw / f"{name}.json") or {} for name in ("client", "load"))
    clock = mapping(facts.get("clock"))
    saturated = _failed_client(client, [], limits)
    if any(check.name in (LAG, LATE) for check in saturated):
        # How late a client may be depends on how long its requests took.
        to_head = load_times(raw, client, load_node, clock)
        rows = read_load(raw, client, load, to_head, whole=True).requests.rows
        saturated = _failed_client(client, rows, limits)
    segments = segments_of(facts)
    telemetry = read_telemetry(
        raw / "telemetry", segments, mapping(facts.get("collectors")), clock, only="proc"
    )
    foreign = [
        check
        for check in check_foreign_load(telemetry.series, segments, client, limits)
        if check.ok is False
    ]
    return [
        *(f"the load client was saturated: {say(check)}" for check in saturated),
        *(f"other programs used the machine: {say(check)}" for check in foreign),
    ]


def _failed_client(
    client: dict[str, Any], rows: Sequence[Request], limits: dict[str, float]
) -> list[Check]:
    return [
        check
        for check in check_client(client, rows, limits)
        if check.ok is False and check.name in SATURATION
    ]
