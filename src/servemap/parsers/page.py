"""docs/parsers.md, written from the registry: `python -m servemap.parsers.page docs/parsers.md`."""

import sys
from pathlib import Path

from servemap.parsers.kinds import AREAS

_HEAD = """# What `servemap parse` reads

`servemap parse KIND FILE` prints as JSON what a recorded output holds; `-` as FILE is standard
input, and `servemap parse --list` names the kinds. The JSON has `schema`, `kind`, `data` as
described below, and `skipped`: the pieces of the input that gave nothing, each with its line
(1-based) and the reason. Their number is also said on standard error. The exit code is 1, with an
error in words, where the input holds nothing of its kind.

Units are in the names of the keys. A missing value (`N/A`, `-`, `[Not Supported]`) is null, never
0. Terminal colours, Windows line ends, byte order marks and an indent that all lines have are
removed first, and so is what was put before every line: times (`docker logs -t`, `kubectl logs
--timestamps`, syslog), the records of docker's json-file, and the label of one writer (`kubectl
logs --prefix`, docker compose, `srun --label`, `mpirun --tag-output`). Where labels name several
writers, the file is refused by all kinds but `nccl-tests` and `nccl-log`, which tell them apart.
A decimal comma is read as a decimal point.

This page is generated: `python -m servemap.parsers.page docs/parsers.md`.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for area, kinds in AREAS.items():
        parts.append(f"## {area}\n")
        for kind in kinds:
            about, _, rest = kind.documentation.partition("\n\n")
            parts.append(f"### {kind.name}\n\n{about}\n")
            parts.append(f"From: {_code(kind.command)}. Format: {kind.source}.\n")
            if rest:
                parts.append(f"{rest}\n")
    return "\n".join(parts)


def _code(commands: str) -> str:
    return ", ".join(f"`{command}`" for command in commands.split(", "))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
