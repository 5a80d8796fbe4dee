"""docs/bugs-tested.md: every entry with the right value and the measured one.

`python tests/unit/onnode/bugs_page.py` runs all entries and writes the table. The test runs them,
too, and compares: the figures of one machine's time may differ, nothing else.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import bug_entries_recorded  # noqa: F401 - its entries are added to those of bug_entries
from bug_entries import ENTRIES, Entry

PAGE = Path("docs/bugs-tested.md")
TIMED = re.compile(r"\d+(?:\.\d+)? (ms|tok/s)")


def comparable(line: str) -> str:
    """Return a row without the times and rates that were measured, which no two runs share."""
    rest, bar, measured = line.rpartition(" | ")
    return rest + bar + TIMED.sub(r"# \1", measured)


def row(one: Entry, measured: str) -> str:
    return f"| {one.id} | {one.reports} | {one.given} | {one.right} | {measured} |"


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"\| [A-Z]-?[0-9a-z]+ \|", line)]


def main() -> None:
    """Run every entry and write the page."""
    lines = [
        "# Bug reports as tests",
        "",
        "Each line is a public report about a pipeline that measures LLM serving, met by",
        "`servemap reference-server` (A, B, S), or by made-up records that servemap's parsers and",
        "resume logic read (C, D). `test_bug[ID]` in `tests/unit/onnode/test_bugs.py` asserts the",
        "right value and that the last column still tells what comes out, its times and rates",
        "excepted. `python tests/unit/onnode/bugs_page.py` wrote this table (load average",
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: the times below hold that noise).",
        "What concerns GPUs is simulated: text as the tools print it.",
        "",
        "| id | report | given | right | measured |",
        "|---|---|---|---|---|",
    ]
    for one in ENTRIES:
        with tempfile.TemporaryDirectory() as folder:
            lines.append(row(one, one.run(Path(folder))))
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.stdout = sys.stderr
    main()
