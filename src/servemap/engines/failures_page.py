"""The page on failure signatures, `docs/failures.md`, generated from the table and recorded logs.

`python -m servemap.engines.failures_page FOLDER`, run in the repository, writes it anew; FOLDER
holds logs of servers, `NAME.log`.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from servemap.engines.failures import explain, load_signatures
from servemap.engines.unknown import explain_unknown
from servemap.model.canon import write_text_atomic
from servemap.model.files import read_bytes

PAGE = Path("docs/failures.md")
UNKNOWN = "unknown"
"""What is said of a log that tells of an error which no signature knows."""

_HEAD = """\
# Failure signatures

Generated from `src/servemap/engines/failures.yaml` by `python -m servemap.engines.failures_page
FOLDER`; edit that file. A signature names a failure by what servers write to their logs. A start
that failed is explained by them in `launch.json` and in the report; `servemap diagnose LOG` does it
for any log. A cause explains a failure; a consequence follows from a cause named elsewhere; a stop
is an end that was asked for; a request is one that the server refused. A hang counts only for a
server whose process still runs (`--alive`). A failure that no signature knows is shown with its
first traceback and its last errors.

"""


def judge_logs(folder: Path) -> dict[str, list[str]]:
    """Return by name which signatures the logs of a folder match, whichever engine wrote them.

    `[UNKNOWN]` stands for a log that tells of an error that no signature knows, an empty list for
    one that tells of none.

    Raises:
        OSError: a log cannot be read.
    """
    found = {}
    for path in sorted(folder.glob("*.log")):
        text = read_bytes(path).decode("utf-8", "replace")
        found[path.stem] = [finding.id for finding in explain(text)]
        if not found[path.stem]:
            unknown = explain_unknown(text)
            found[path.stem] = [UNKNOWN] if unknown.errors or unknown.traceback else []
    return found


def page_text(recorded: Mapping[str, Sequence[str]]) -> str:
    """Return the page.

    Args:
        recorded: what `judge_logs` says of the recorded logs.
    """
    counts = Counter(name for names in recorded.values() for name in set(names))
    parts = [_HEAD]
    signatures = load_signatures()
    for failure in dict.fromkeys(signature.failure for signature in signatures):
        rows = [
            [
                f"`{one.id}`",
                one.role,
                ", ".join(one.engines) or "any",
                one.means,
                one.remedy,
                str(counts[one.id]),
            ]
            for one in signatures
            if one.failure == failure
        ]
        head = ["Signature", "Role", "Engines", "Means", "To do", "Logs"]
        parts += [f"## {failure.capitalize()}\n\n", _table(head, rows), "\n"]
    unknown = [name for name, found in recorded.items() if UNKNOWN in found]
    silent = [name for name, found in recorded.items() if not found]
    matched = len(recorded) - len(unknown) - len(silent)
    parts.append(
        f"## Recorded logs\n\nOf {len(recorded)} recorded logs of real servers {matched} match a "
        f"signature, {len(unknown)} tell of an error that none knows, and {len(silent)} of none: "
        "those are of servers that run, or a part of a log.\n\n"
    )
    rows = [[name, _said(found)] for name, found in recorded.items()]
    parts.append(_table(["Log", "Found"], rows))
    return "".join(parts)


def _said(found: Sequence[str]) -> str:
    if UNKNOWN in found:
        return "unknown: its first traceback and its last errors are shown"
    return ", ".join(f"`{name}`" for name in found) or "no error"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    write_text_atomic(PAGE, page_text(judge_logs(Path(sys.argv[1]))))
