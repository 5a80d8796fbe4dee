"""What the doctor looks at on the machine that it is called on: disk of the results, patches."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from servemap.measure.status import absent_sources
from servemap.model.results import RESULTS
from servemap.prepare import judge_machine
from servemap.prepare.lines import Line, ok, some
from servemap.server.context import Context

HERE = "(here)"


def patch_lines(context: Context) -> Iterator[Line]:
    """Yield whether the sources of the planned patches are on this machine, where there are any."""
    variants = context.plan.items().variants
    planned = {patch.id for name in variants for patch in context.server(name).patches}
    absent = absent_sources(context, variants)
    if absent:
        yield Line(
            HERE,
            "patches",
            "FAIL",
            f"not here: {some(f'{source} ({patch})' for patch, source in absent.items())}",
            "give sources as files or folders, relative to the folder that servemap is run from",
        )
    elif planned:
        yield ok(HERE, "patches", f"their sources are here: {some(sorted(planned))}")


def results_line(planned: int) -> Line:
    """Return whether the results fit on the disk of this machine."""
    folder = RESULTS.resolve()
    while not folder.is_dir():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    elsewhere = f"let {Path(RESULTS)} be a link to a folder on another disk"
    return judge_machine.room_line(HERE, "results disk", free, planned, elsewhere)
