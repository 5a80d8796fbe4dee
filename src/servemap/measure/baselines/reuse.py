"""The record of another run in place of a measurement, where its environment was the same."""

from collections.abc import Mapping
from typing import Any

from servemap.measure.baselines.environment import not_told
from servemap.model import results
from servemap.model.attempts import intact, read_json, read_records
from servemap.model.baselines import BaselineSpec
from servemap.model.errors import ResultsError
from servemap.parsers.values import mapping, number, sequence

TAKEN = ("results", "load_before", "simulated")


def reused_record(spec: BaselineSpec, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the record of `spec.reuse_from` puts into this run's record.

    `reused` says of which run it is, when it was measured, and where its raw files lie.

    Args:
        spec: the baseline, with `reuse_from`.
        record: this run's record so far; its `spec` and `environment` are compared.

    Raises:
        ResultsError: there is no good record, it is of another spec, or a frozen fact differs.
    """
    run = str(spec.reuse_from)
    path = results.run_dir(run) / "baselines" / f"{spec.id}.json"
    found = read_json(path)
    if found is None:
        raise _refused(run, "has no such record", str(path))
    if found.get("status") != "ok":
        raise _refused(run, f"has a record that is {found.get('status')}", str(path))
    folder = results.baseline_history(run, spec.id)
    tries = read_records(folder)
    if not tries or read_json(tries[-1].folder / "meta.json") != found or not intact(tries[-1]):
        raise _refused(run, f"is not what its newest try in {folder} measured", str(path))
    if not _whole(found):
        raise _refused(run, "has a record without figures for all that it measured", str(path))
    differences = different(spec, found, record)
    if differences:
        raise _refused(run, "is of something else: " + "; ".join(differences), str(path))
    origin = mapping(found.get("reused")) or {
        "run": run,
        "started_ns": found.get("started_ns"),
        "ended_ns": found.get("ended_ns"),
        "spec_sha256": found.get("spec_sha256"),
    }
    return {**{key: found.get(key) for key in TAKEN}, "status": "ok", "reused": origin}


def _whole(record: Mapping[str, Any]) -> bool:
    """Whether each result of a record is good and has a figure."""
    found = [mapping(one) for one in sequence(record.get("results"))]
    return bool(found) and all(
        one.get("status") == "ok"
        and (
            bool(sequence(one.get("rows")) or sequence(one.get("pairs")))
            or number(one.get("bandwidth_bytes_per_s")) is not None
        )
        for one in found
    )


def different(spec: BaselineSpec, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return in words how the record of another run is not what this one wants."""
    if not mapping(found.get("spec")) or not mapping(found.get("environment")):
        return ["it was written before records kept what they depend on"]
    there, here = _comparable(found), _comparable(wanted)
    said = [
        f"{key} was {_short(there.get(key))}, is {_short(here.get(key))}"
        for key in dict.fromkeys([*there, *here])
        if there.get(key) != here.get(key)
    ]
    nodes_there, nodes_here = mapping(found["environment"]), mapping(wanted["environment"])
    for node in dict.fromkeys([*nodes_there, *nodes_here]):
        if node not in nodes_here or node not in nodes_there:
            which = "there" if node in nodes_there else "here"
            said.append(f"node {node} is only {which}")
            continue
        before, after = mapping(nodes_there[node]), mapping(nodes_here[node])
        if before.get("kernel") is None or after.get("kernel") is None:
            said.append(f"the facts of node {node} were not frozen")
            continue
        untold = [*not_told(before, spec), *not_told(after, spec)]
        said += [f"{fact} of node {node} was not told" for fact in dict.fromkeys(untold)]
        said += [
            f"{key} of node {node} was {_short(before.get(key))}, is {_short(after.get(key))}"
            for key in dict.fromkeys([*before, *after])
            if before.get(key) != after.get(key)
        ]
    return said


def _comparable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record's spec says, without what may differ and the nodes' addresses."""
    spec = dict(mapping(record.get("spec")))
    baseline = {
        key: value
        for key, value in mapping(spec.pop("baseline", None)).items()
        if key not in ("reuse_from", "timeout_s")
    }
    spec.pop("nodes", None)  # their names and addresses stand in the environment
    return {**spec, **baseline}


def _short(value: Any) -> str:
    return "not told" if value is None else str(value)[:200]


def _refused(run: str, what: str, where: str) -> ResultsError:
    return ResultsError(
        f"the baseline of run {run!r} cannot be taken: it {what}",
        where,
        "remove reuse_from, so that this run measures it",
    )
