"""The form in which an analysis is stored: `analysis.json`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from servemap.analysis.traces.analyse import Analysis
from servemap.analysis.traces.classes import class_ids, class_of, kernel_classes
from servemap.analysis.traces.gaps import NOT_TRACED, QUEUED, UNKNOWN, activities
from servemap.analysis.traces.questions import Answer
from servemap.parsers.traces.modules import ModuleLog

SCHEMA = 1
"""Number of this form; raised when a key changes its meaning."""

MEANINGS = {
    "exposed_ns": "time that belongs to this work alone: of work that runs at once, compute owns "
    "the time, then communication, then copies; of one kind the piece that began first",
    "total_ns": "time in which at least one piece of this work ran",
    "sum_ns": "lengths of all pieces added, also of such that overlap",
    "share": "exposed time over the time in which the device is busy",
    "span_ns": "from the first to the last work of the device",
    "hidden_ns": "communication that ran while compute ran",
    "graph_share": "kernels that a graph launched over all kernels",
    "waiting_ns": "time at collectives until the last rank arrived",
    QUEUED: "idle although the next work was launched: it waited for other work or for the device",
    NOT_TRACED: "idle before a launch, with nothing of the launching thread in the trace",
    UNKNOWN: "idle before work whose launch is not in the trace",
}


def analysis_record(
    analysis: Analysis, answers: Sequence[Answer], modules: ModuleLog | None
) -> dict[str, Any]:
    """Return the analysis as plain values; times are ns on each file's clock."""
    return {
        "schema": SCHEMA,
        "profiled": True,
        "definitions": {
            **MEANINGS,
            **{one.id: one.means for one in activities()},
            **{one.id: one.means for one in kernel_classes()},
        },
        **asdict(analysis),
        "questions": [asdict(one) for one in answers],
        "modules": None if modules is None else _modules(modules),
    }


def _modules(log: ModuleLog) -> dict[str, Any]:
    ids = class_ids()
    rows = [{**asdict(one), "class_id": ids[class_of(one.module)]} for one in log.modules]
    return {"modules": rows, "skipped": log.skipped}
