"""What a collector is: how it runs on a node, how its raw lines are read, what its tables show."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from servemap.parsers.fields import Reading

Kind = Literal["proc", "http", "command", "poll", "files", "log"]


class Metric(NamedTuple):
    """One metric of a table: its name (a prefix where it ends in *), unit and meaning.

    `entities` is an expression that the entity must match to be in this table.
    """

    metric: str
    unit: str
    what: str
    entities: str = ".*"

    def fits(self, metric: str, entity: str | None) -> bool:
        """Return whether a metric of an entity belongs here; any entity where None is given."""
        prefix = self.metric.removesuffix("*")
        named = metric == self.metric or (prefix != self.metric and metric.startswith(prefix))
        return named and (entity is None or re.fullmatch(self.entities, entity) is not None)


class Tool(NamedTuple):
    """A program of the node: one that prints until it is stopped, or that is run for each sample.

    Args:
        choices: the argv, and others for versions of the tool that do not know all its options.
        least_interval_s: the shortest interval that it can be asked for.
        each: what it is run for once each, `interfaces`; None for one run.
        unless: a program that tells the same for less: where it is, this one does not run.
        any_status: whether it may end with any status after it printed what it knows.
    """

    choices: tuple[tuple[str, ...], ...]
    least_interval_s: float
    each: str | None = None
    unless: str | None = None
    any_status: bool = False

    def possible_s(self, interval_s: float) -> float:
        """Return the shortest interval that the tool knows and that is not shorter than this."""
        longer_s = max(interval_s, self.least_interval_s)
        whole = any("{interval_s}" in word for argv in self.choices for word in argv)
        return float(math.ceil(longer_s)) if whole else longer_s

    def commands(self, interval_s: float) -> list[list[str]]:
        """Return the argv of each choice for an interval that is possible."""
        said = {"{interval_ms}": str(round(interval_s * 1000)), "{interval_s}": f"{interval_s:.0f}"}
        return [[_filled(word, said) for word in argv] for argv in self.choices]


def _filled(word: str, said: Mapping[str, str]) -> str:
    for name, value in said.items():
        word = word.replace(name, value)
    return word


class Probe(NamedTuple):
    """What tells before the first case whether a collector has something to read.

    Args:
        argv: a command that succeeds where it has.
        remedy: what to do where that fails.
        kind: the kind of `servemap parse` whose `status` must be `ok` besides; None if none.
    """

    argv: tuple[str, ...]
    remedy: str
    kind: str | None = None


class Collector(NamedTuple):
    """One collector: how it runs, its default interval (s), its parser and its tables.

    Args:
        missing: when it tells nothing though it runs, or what it does not tell.
        tool: of a `command` or a `poll`.
        paths: of `files` (glob).
        keep: of a `log` or a `poll`: words of which a line that is kept has one.
        log: of a `log`: its file where the campaign names one.
        engines: those that it has something to read of; all if empty.
        by_default: whether it runs where the campaign names no collectors.
        table: of one that a campaign declares, how its table is read, as the campaign says.
    """

    name: str
    kind: Kind
    interval_s: float
    parser: str
    required: bool
    families: dict[str, tuple[Metric, ...]]
    missing: str
    tool: Tool | None = None
    probe: Probe | None = None
    paths: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    log: str | None = None
    reading: Reading | None = None
    engines: tuple[str, ...] = ()
    by_default: bool = True
    table: Mapping[str, Any] | None = None
