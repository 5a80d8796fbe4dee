"""From a capture's traces to `analysis.json`: what `servemap trace` says, for the report."""

from pathlib import Path
from typing import Any

from servemap.analysis.repeats import read_object
from servemap.analysis.traces.analyse import analyse
from servemap.analysis.traces.questions import answers
from servemap.analysis.traces.record import SCHEMA, analysis_record
from servemap.analysis.traces.timeline import timeline
from servemap.model.canon import file_sha256, write_json_atomic
from servemap.model.errors import ServemapError
from servemap.parsers.values import mapping, text

TRACES = (".json", ".json.gz", ".json.zst", ".sqlite")
LOAD = "load"


def analyse_capture(capture: Path, output: Path, token: int) -> dict[str, Any]:
    """Write the analysis of a capture, also where there is none to make; return it.

    Every file is compared with the sha256 that the capture recorded. Beside the analysis lies
    `timeline.json`, which Perfetto opens. What goes wrong is its status `failed` with the reason.

    Args:
        capture: `capture.json`; the traces lie beside it.
        output: `analysis.json`.
        token: of this derive job (see `model.derived`).
    """
    record, trouble = read_object(capture)
    about = {
        "schema": SCHEMA,
        "profiled": True,
        "token": token,
        "capture": {key: record.get(key) for key in ("variant", "case", "spec_sha256", "ended_ns")},
    }
    try:
        found = {**_analysed(capture, record, trouble, output), **about, "status": "ok"}
    except (ServemapError, OSError) as error:
        found = {**about, "status": "failed", "reasons": [str(error)]}
    except _NothingError as why:
        found = {**about, "status": "not_available", "reasons": [str(why)]}
    write_json_atomic(output, found)
    return found


class _NothingError(Exception):
    """There is nothing to analyse."""


def _analysed(
    capture: Path, record: dict[str, Any], trouble: str | None, output: Path
) -> dict[str, Any]:
    if trouble is not None:
        raise _NothingError(f"{capture.name}: {trouble}")
    if record.get("status") not in ("ok", "failed"):
        raise _NothingError("no capture was taken")
    paths = []
    for name, facts in mapping(record.get("files")).items():
        path = capture.parent / name
        if name.startswith(f"{LOAD}/") or not name.endswith(TRACES):
            continue
        if ".." in Path(name).parts or not path.is_file():
            raise _NothingError(f"{name} is not there")
        if file_sha256(path) != text(mapping(facts).get("sha256")):
            raise _NothingError(f"{name} is not the file that was captured")
        paths.append(path)
    if not paths:
        raise _NothingError("the capture left no trace")
    found = analyse(paths)
    write_json_atomic(output.parent / "timeline.json", timeline(found.timeline()))
    return analysis_record(found.analysis, answers(found.analysis), None)
