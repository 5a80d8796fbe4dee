"""Log lines in which a model sums up its own modules: total, mean and number of calls.

People put such timers into a model's code and print running totals. How the lines look is theirs
to say: a regular expression with the groups `module`, one of `total_s`, `total_ms`, `total_us`,
and, if the line has them, one of `mean_s`, `mean_ms`, `mean_us`, and `count`, `phase`, `step`.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from servemap.model.errors import ConfigError

_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3}
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,2})?")
_LONGEST_LINE = 4000
_AGREE = 0.01
_LONGEST_NS = 1 << 62


@dataclass(frozen=True)
class ModuleTime:
    """The last total of one module in a log; `line` is counted from 1."""

    module: str
    phase: str | None
    total_ns: int
    mean_ns: float | None
    count: int | None
    step: int | None
    line: int


@dataclass(frozen=True)
class ModuleLog:
    """Modules by total, largest first; `skipped` counts lines that matched and were not used."""

    modules: list[ModuleTime]
    skipped: dict[str, int]


def module_pattern(text: str) -> re.Pattern[str]:
    """Return a declared pattern.

    Raises:
        ConfigError: it is no regular expression, or lacks a group that is needed.
    """
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"the pattern is no regular expression: {error}", text, "mend the pattern"
        ) from error
    groups = set(pattern.groupindex)
    totals = groups & {f"total_{unit}" for unit in _UNITS}
    if "module" not in groups or len(totals) != 1:
        raise ConfigError(
            "the pattern needs the groups `module` and one of `total_s`, `total_ms`, `total_us`",
            text,
            r"for example (?P<module>\S+) (?P<total_ms>[\d.]+)ms",
        )
    return pattern


def read_modules(lines: Iterable[str], pattern: re.Pattern[str]) -> ModuleLog:
    """Return the last total of each module of each phase; earlier ones are parts of it."""
    found: dict[tuple[str, str | None], ModuleTime] = {}
    skipped: Counter[str] = Counter()
    for number, line in enumerate(lines, 1):
        match = pattern.search(line[:_LONGEST_LINE])
        if match is None:
            continue
        groups = match.groupdict()
        total = _time(groups, "total")
        mean, count = _time(groups, "mean"), _whole(groups.get("count"))
        if total is None:
            skipped["its total is no number"] += 1
            continue
        if total > _LONGEST_NS:
            skipped["its total is impossible"] += 1
            continue
        if mean is not None and count and abs(mean * count - total) > _AGREE * total + mean:
            skipped["its total is not its mean times its count"] += 1
            continue
        one = ModuleTime(
            groups["module"] or "",
            groups.get("phase"),
            round(total),
            mean,
            count,
            _whole(groups.get("step")),
            number,
        )
        found[one.module, one.phase] = one
    ordered = sorted(found.values(), key=lambda one: -one.total_ns)
    return ModuleLog(ordered, dict(skipped))


def _time(groups: dict[str, str | None], name: str) -> float | None:
    """Return a time in ns, None if it is not given or is no number."""
    for unit, factor in _UNITS.items():
        text = groups.get(f"{name}_{unit}")
        if text is not None:
            return float(text) * factor if _NUMBER.fullmatch(text) else None
    return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text) else None
