"""The summary of a load client of others, made again under its own definitions.

`clients.yaml` beside this file says what each client means; the sums are here.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import yaml

from servemap.analysis.verdict import Check
from servemap.parsers.clients.records import ClientCall, ClientRun

CHECK = "client_summary"
_STATISTICS: dict[str, Callable[[Any], Any]] = {
    "mean": np.mean,
    "avg": np.mean,
    "median": np.median,
    "std": np.std,
    "min": np.min,
    "max": np.max,
}


class Compared(NamedTuple):
    """One figure of a client's summary: what it says, and what its requests give.

    `said` is None where the summary has no number for it though its requests give one.
    `rounding` is the relative difference that its files' rounding of times alone can make.
    """

    name: str
    said: float | None
    again: float
    rounding: float = 0.0

    @property
    def difference(self) -> float:
        """Relative to the larger of the two, beyond rounding of times; 0 where both are 0."""
        if self.said is None:
            return 1.0
        most = max(abs(self.said), abs(self.again))
        return max(abs(self.said - self.again) / most - self.rounding, 0.0) if most else 0.0


@cache
def client_table() -> dict[str, Any]:
    """Return clients.yaml."""
    file = resources.files("servemap.analysis").joinpath("clients.yaml")
    table: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return table


def compare(run: ClientRun, client: str) -> tuple[list[Compared], list[str]]:
    """Return the figures of a summary that can be made again, and the names of those that cannot.

    Figures that `clients.yaml` does not know are in neither.

    Args:
        run: a client's run.
        client: its name in clients.yaml.
    """
    rules = client_table()[client]["summary"]
    counted = [call for call in run.calls if call.counted]
    series, totals = _series(counted), _totals(run.calls, counted)
    compared: list[Compared] = []
    others = []
    for name in sorted(run.blank):
        again = _again(name, rules, series, totals, run.duration_s)
        if again is not None:
            compared.append(Compared(name, None, again))
    for name, said in run.summary.items():
        again = _again(name, rules, series, totals, run.duration_s)
        if again is not None:
            rate = name in rules["rates"] and run.duration_s
            compared.append(Compared(name, said, again, run.rounding_s / rate if rate else 0.0))
        elif re.fullmatch(rules["pattern"], name):
            others.append(name)
    return compared, others


def check_summary(run: ClientRun, client: str) -> tuple[Check, dict[str, Any]]:
    """Check a client's summary against its own requests; also return what metrics.json keeps.

    A summary of which no statistic of times can be made again is no proof, and fails.
    """
    table = client_table()[client]
    compared, others = compare(run, client)
    limit = float(table["tolerance"])
    worst = max(compared, key=lambda one: one.difference, default=None)
    timed = [one for one in compared if re.fullmatch(table["summary"]["pattern"], one.name)]
    if worst is None or not timed:
        note = "the client left no statistic of times that can be made again from its requests"
        check = Check(CHECK, None, limit, False, note)
    else:
        note = f"{len(compared)} figures of {client} made again from its requests"
        if worst.difference > limit:
            said = "no number" if worst.said is None else f"{worst.said:.6g}"
            note = f"{worst.name} is {said}, its requests give {worst.again:.6g}"
        check = Check(CHECK, worst.difference, limit, worst.difference <= limit, note)
    return check, {
        "client": client,
        "source": f"times and tokens of requests as {client} took them; percentiles and rates over "
        "them by servemap's definitions",
        "read_from": table["version"],
        "definitions": table["definitions"],
        "figures": {one.name: one.said for one in compared}
        | {name: run.summary[name] for name in others},
        "not_compared": others,
    }


def _again(
    name: str,
    rules: Mapping[str, Any],
    series: Mapping[str, list[float]],
    totals: Mapping[str, float | None],
    duration_s: float | None,
) -> float | None:
    """Return a figure made again; None where the client's requests do not give it."""
    if name in rules["totals"]:
        return totals[rules["totals"][name]]
    if name in rules["rates"]:
        total = totals[rules["rates"][name]]
        return total / duration_s if total is not None and duration_s else None
    found = re.fullmatch(rules["pattern"], name)
    if found is None:
        return None
    if re.fullmatch(rules["not_exact"].get(found["series"], "$^"), found["statistic"]):
        return None
    values = series[rules["series"][found["series"]]]
    if not values:
        return None
    return float(_statistic(found["statistic"], values) * rules["scale"])


def _statistic(name: str, values: list[float]) -> float:
    known = _STATISTICS.get(name)
    return float(known(values) if known is not None else np.percentile(values, float(name[1:])))


def _series(counted: list[ClientCall]) -> dict[str, list[float]]:
    """Return the samples under the clients' definitions, in seconds; empty where one is missing."""

    def each(value: Callable[[ClientCall], float | None], calls: list[ClientCall]) -> list[float]:
        values = [value(call) for call in calls]
        return [] if None in values else [item for item in values if item is not None]

    longer = [call for call in counted if (call.own_tokens or 0) > 1]
    return {
        "ttft": each(lambda call: call.ttft_s, counted),
        "latency": each(lambda call: call.latency_s, counted),
        "gap": [gap for call in counted for gap in call.gaps_s],
        "tpot": each(_tpot, longer),
    }


def _tpot(call: ClientCall) -> float | None:
    if call.latency_s is None or call.ttft_s is None or call.own_tokens is None:
        return None
    return (call.latency_s - call.ttft_s) / (call.own_tokens - 1)


def _totals(calls: list[ClientCall], counted: list[ClientCall]) -> dict[str, float | None]:
    given = _sum([call.input_tokens for call in counted])
    made = _sum([call.own_tokens for call in counted])
    return {
        "completed": len(counted),
        "failed": len(calls) - len(counted),
        "input": given,
        "output": made,
        "total": None if given is None or made is None else given + made,
    }


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
