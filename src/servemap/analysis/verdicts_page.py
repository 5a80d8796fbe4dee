"""The page on verdicts, `docs/verdicts.md`, generated from the tables of checks and limits.

`python -m servemap.analysis.verdicts_page`, run in the repository, writes it anew.
"""

from pathlib import Path

from servemap.analysis.check_table import check_texts
from servemap.analysis.communication.spread import LIMIT, comparisons
from servemap.analysis.verdict import default_limits
from servemap.model.canon import write_text_atomic

PAGE = Path("docs/verdicts.md")

_HEAD = """\
# Verdicts

Generated from `src/servemap/analysis/checks.yaml` and `limits.yaml` by `python -m
servemap.analysis.verdicts_page`; edit those. A measurement is `valid` if no check of it failed,
else `invalid` with the reasons. Each check stands in `metrics.json` with its value, its limit, `ok`
(null where it does not apply) and a note. All are derived from raw files: a campaign's `limits` may
override each limit by its name, and no case runs again for that.

Invalid and failed repeats stay in `summary.csv`, enter no plot, mean or comparison, and are listed
in the report.

## Tried once more

A required collector that died fails the attempt, and so do two checks that another try may well
pass: a saturated client (`client_lag_ms`, `client_late_ms`, `client_cpu_share`, by the campaign's
limits) and other programs on busy cores (`foreign_cpu`, above `policy.retry_foreign_share`, or
`limits.foreign_cpu_share` where that is more). The next command measures that repeat again; if it
is disturbed a second time, it stays failed with its reason. Its figures are derived as evidence and
are never valid, even under limits that were raised later.

## Checks

"""

_BASELINES = """\
## Baselines: slower than the others

Generated from `src/servemap/analysis/communication/spread.yaml`. What is alike in a baseline is
compared, each with the median of the others of its group; what is below that by more than
`slower_share` ({limit:g}) is named in the report and by `servemap gate`, which does not fail
for it. Every comparison is a row of `tables/baseline_spread.csv`.

"""


def page_text() -> str:
    """Return the page."""
    limits = default_limits()
    lines = [
        "| check | what must hold | default limits | protects | n/a |",
        "|---|---|---|---|---|",
    ]
    for check in check_texts():
        known = ", ".join(f"`{name}` {limits[name]:g}" for name in check.limits) or "–"
        cells = [f"`{check.name}`", check.asks, known, check.protects, check.not_applicable]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_BASELINES.format(limit=limits[LIMIT]).splitlines()]
    lines += [
        "| comparison | what is compared | what a slower one means | look at |",
        "|---|---|---|---|",
    ]
    for one in comparisons().values():
        lines.append(f"| `{one.name}` | {one.compares} | {one.means} | {one.remedy} |")
    return _HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    write_text_atomic(PAGE, page_text())


if __name__ == "__main__":
    main()
