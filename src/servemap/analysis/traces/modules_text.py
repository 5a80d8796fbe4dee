"""What `servemap trace` prints of a model's own timers."""

from servemap.analysis.traces.classes import class_ids, class_of
from servemap.analysis.traces.text import grid, ms, short
from servemap.model.errors import printable
from servemap.parsers.traces.modules import ModuleLog


def modules_text(log: ModuleLog) -> str:
    """Return the table of a model's own timers; modules may lie within one another."""
    rows = [
        [
            one.phase or "-",
            short(one.module),
            class_ids()[class_of(one.module)],
            ms(one.total_ns),
            ms(one.mean_ns),
            "-" if one.count is None else str(one.count),
        ]
        for one in log.modules
    ]
    if not log.modules and not log.skipped:
        return "modules by the model's own timers: no line of the log matches --module-lines"
    left = [f"left out: {count} lines, {why}" for why, count in log.skipped.items()]
    heads = ["phase", "module", "class", "total ms", "mean ms", "calls"]
    said = "modules by the model's own timers; one may lie within another, so totals do not add up"
    return printable("\n".join([said, "", grid(rows, heads), *left]))
