"""`servemap diagnose`: what logs of servers say about their failure."""

from pathlib import Path
from typing import Annotated

import typer

from servemap.engines.failures import EngineName
from servemap.model.files import read_bytes
from servemap.parsers.clean import decoded, printable
from servemap.parsers.frame import check_size
from servemap.parsers.prefixes import without_log_driver
from servemap.server.launch.diagnosis import Diagnosis, diagnose


def diagnose_logs(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG", help="Logs of servers.")],
    engine: Annotated[
        EngineName | None, typer.Option(help="Engine that wrote them; all are tried if absent.")
    ] = None,
    alive: Annotated[
        bool, typer.Option("--alive", help="The process still runs: a log that stands still hangs.")
    ] = False,
) -> None:
    """Say what logs of servers mean: causes first, with line and remedy."""
    said = []
    for log in logs:
        check_size(log.stat().st_size, str(log))
        text = without_log_driver(decoded(read_bytes(log)))
        ended = None if alive else "its process is taken to have ended"
        found = diagnose(text, engine, exit_words=ended, ready=False)
        words = diagnosis_text(found) if text.strip() else "  the log is empty"
        said.append(f"{log}\n{printable(words)}")
    typer.echo("\n\n".join(said))


def diagnosis_text(found: Diagnosis) -> str:
    """Return a diagnosis for people, a block for each finding."""
    blocks = [
        f"  {one.role}: {one.id} ({one.failure}), line {one.line_number}\n"
        f"    {one.line}\n    {one.means}\n    to do: {one.remedy}"
        for one in found.findings
    ]
    if found.unknown is not None:
        blocks.append("  no signature names a cause")
        if found.unknown.traceback is not None:
            first = found.unknown.traceback
            at = f"\n    at {first.frame}" if first.frame else ""
            blocks.append(f"  first traceback, line {first.line_number}\n    {first.exception}{at}")
        for title, lines in (
            ("last errors", found.unknown.errors),
            ("last lines", found.unknown.last_lines),
        ):
            if lines:
                blocks.append("\n    ".join([f"  {title}", *lines]))
    return "\n".join(blocks)
