"""The gates over baselines: whether they bear out what a server's spec requires of its paths.

They stand before the start of a server: where the network is not what it has to be, nothing is
launched and no case is measured.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from servemap.model.baselines import rows_of_size
from servemap.model.server_spec import ServerSpec, Topology
from servemap.model.transport import RequiredBaseline
from servemap.parsers.values import integer, mapping, number, sequence, text
from servemap.server.gates.checks import Check
from servemap.server.gates.transport import judge
from servemap.server.gates.transport_paths import Connected, connected, restored
from servemap.server.gates.transport_remedies import remedies

Record = Mapping[str, Any]
Value = tuple[str, float]
"""What a bandwidth is of, in words, and bytes/s."""

_WITH_A_LOG = ("nccl", "rccl")
"""Backends that log their connections, so that a record without any shows none."""
_AGAIN = "mend what it says; its next try comes with the same command, or with -f on its file"


def baseline_checks(server: ServerSpec, records: Mapping[str, Record | None]) -> list[Check]:
    """Return a check of each baseline that a server's spec requires.

    Args:
        server: the spec.
        records: newest record of each of those baselines; None where there is none.
    """
    required = server.transport.baselines if server.transport else []
    return [_check(server, one, records.get(one.id)) for one in required]


def _check(server: ServerSpec, required: RequiredBaseline, record: Record | None) -> Check:
    name = f"baseline {required.id}"
    if record is None:
        return Check(name, False, "it was not measured", f"name it in a phase; {_AGAIN}")
    if record.get("status") != "ok":
        reasons = [str(one) for one in sequence(record.get("reasons"))]
        said = f"it is {record.get('status')}: {reasons[0] if reasons else 'no reason is recorded'}"
        return Check(name, False, said, _AGAIN)
    results = [mapping(one) for one in sequence(record.get("results"))]
    if not results or any(one.get("status") == "failed" for one in results):
        return Check(name, False, "not all that it measures has results", _AGAIN)
    parts = list(_parts(server, record))
    if not parts:
        env = ", ".join(f"{name}={value}" for name, value in _swept(server, record).items())
        return Check(
            name,
            False,
            f"it was not measured with {env}, which server.env sets",
            f"add the value to baselines.{required.id}.sweep",
        )
    checks = [_paths(server, record, part) for part in parts]
    if required.floor_gb_s is not None:
        checks.append(_floor(server, required, record, parts))
    mark = "simulated: " if record.get("simulated") else ""
    failed = [check for check in checks if check.ok is False]
    if failed:
        found = dict.fromkeys(check.remedy for check in failed)
        evidence = "; ".join(one.evidence for one in failed)
        return Check(name, False, f"{mark}{evidence}", " ".join(found))
    said = "; ".join(dict.fromkeys(check.evidence for check in checks if check.evidence))
    return Check(name, True if any(check.ok for check in checks) else None, f"{mark}{said}")


def _swept(server: ServerSpec, record: Record) -> dict[str, str]:
    """Return the variables of a baseline's sweep that the server sets, with its values."""
    names = {
        name for part in sequence(record.get("results")) for name in mapping(part.get("settings"))
    }
    return {name: str(server.env[name]) for name in sorted(names) if name in server.env}


def _parts(server: ServerSpec, record: Record) -> Iterator[Record]:
    """Yield the parts of a record that are like the server: all, or those with its variables."""
    wanted = _swept(server, record)
    for part in map(mapping, sequence(record.get("results"))):
        settings = mapping(part.get("settings"))
        if all(str(settings.get(name)) == value for name, value in wanted.items()):
            yield part


def _paths(server: ServerSpec, record: Record, part: Record) -> Check:
    """Judge what NCCL logged while a part was measured, as the server's own log is judged."""
    place = _place(part)
    if server.transport is None or not server.transport.asks_paths:
        return Check("paths", None, "")
    backend = text(part.get("backend"))
    by_nccl = record.get("kind") == "collective" and backend in (None, *_WITH_A_LOG)
    nodes = [str(node) for node in sequence(part.get("nodes"))]
    seen = _seen(part)
    if seen is None and not by_nccl:
        said = backend or str(record.get("kind"))
        return Check("paths", None, f"{place}: the transport is not told ({said})")
    # Where the record does not say how many ranks there were, paths of each kind may be.
    ranks = len(sequence(part.get("ranks"))) or 2 * max(1, len(nodes))
    alike = server.model_copy(
        update={
            "topology": Topology(tp=ranks),
            "container": server.container if _in_container(record) else None,
        }
    )
    check = judge(alike, nodes, seen or connected(dict.fromkeys(nodes, "")), _envs(part))
    lost = "" if seen else "the record has no log of NCCL that can be read: "
    return Check("paths", check.ok, f"{place}: {lost}{check.evidence}", check.remedy)


def _in_container(record: Record) -> bool:
    return bool(mapping(mapping(record.get("spec")).get("server")).get("container"))


def _seen(part: Record) -> Connected | None:
    stored = mapping(part.get("transport"))
    try:
        return restored(stored) if stored else None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _envs(part: Record) -> list[dict[str, str]]:
    commands = map(mapping, sequence(part.get("commands")))
    return [{str(k): str(v) for k, v in mapping(one.get("env")).items()} for one in commands]


def _floor(
    server: ServerSpec, required: RequiredBaseline, record: Record, parts: Sequence[Record]
) -> Check:
    """Compare the slowest of what was measured with the floor."""
    floor = required.floor_gb_s or 0.0
    wanted = "the slowest pair"
    if required.operation is not None and required.size is not None:
        wanted = f"busbw of {required.operation} at {required.size}"
    values = [value for part in parts for value in _values(required, part)]
    silent = [_place(part) for part in parts if not any(_values(required, part))]
    silent += [
        f"{_place(part)}, card {pair.get('row')} and {pair.get('column')}"
        for part in parts
        for pair in map(mapping, sequence(part.get("pairs")))
        if number(pair.get("bandwidth_bytes_per_s")) is None
    ][:1]
    if silent:
        return Check(
            "floor",
            False,
            f"{wanted}: nothing was measured on {', '.join(silent)}",
            f"see the rows of baselines/{required.id}.json",
        )
    label, least = min(values, key=lambda value: value[1])
    said = f"{wanted}: {least / 1e9:.4g} GB/s ({label}), required: {floor:g} GB/s or more"
    if least / 1e9 >= floor:
        return Check("floor", True, said)
    slowest = [part for part in parts if any(v == (label, least) for v in _values(required, part))]
    seen = _seen(slowest[0]) or connected({})
    between = len(sequence(slowest[0].get("nodes"))) > 1 or "from" in slowest[0]
    kind = "slow-inter" if between else "slow-intra"
    container = server.container if _in_container(record) else None
    return Check(
        "floor", False, said, " ".join(remedies([kind], seen, _envs(slowest[0]), container))
    )


def _values(required: RequiredBaseline, part: Record) -> Iterator[Value]:
    """Yield the bandwidths of a part that a floor is about."""
    if required.operation is not None and required.size is not None:
        rows = map(mapping, sequence(part.get("rows")))
        ranks = integer(part.get("world")) or len(sequence(part.get("ranks")))
        for row in rows_of_size(rows, required.operation, required.size, ranks):
            rate = number(row.get("busbw_bytes_per_s"))
            if rate is not None:
                yield _place(part), rate
        return
    for pair in map(mapping, sequence(part.get("pairs"))):
        rate = number(pair.get("bandwidth_bytes_per_s"))
        if rate is not None:
            yield f"{_place(part)}, card {pair.get('row')} and {pair.get('column')}", rate
    rate = number(part.get("bandwidth_bytes_per_s"))
    if rate is not None:
        yield _place(part), rate


def _place(part: Record) -> str:
    """Return what a part is of: `n1, n2 NCCL_CROSS_NIC=1`, `n1 to n2`."""
    if "from" in part:
        return f"{part.get('from')} to {part.get('to')}"
    return " ".join([", ".join(map(str, sequence(part.get("nodes")))), *_settings(part)])


def _settings(part: Record) -> Iterable[str]:
    return (f"{name}={value}" for name, value in mapping(part.get("settings")).items())
