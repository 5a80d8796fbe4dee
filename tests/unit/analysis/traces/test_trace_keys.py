"""docs/traces.md lists every key of analysis.json, as the code has them."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from servemap.analysis.captures import analyse_capture
from servemap.analysis.traces.analyse import Analysis
from servemap.analysis.traces.questions import Answer
from servemap.analysis.traces.record import analysis_record
from servemap.parsers.traces.modules import ModuleLog, ModuleTime

PAGE = Path(__file__).parents[4] / "docs/traces.md"
WHOLE = "`analysis.json`"
OF_A_CAPTURE = "`analysis.json` of a capture"


def documented() -> dict[str, list[str]]:
    section = PAGE.read_text(encoding="utf-8").partition("## The keys of analysis.json")[2]
    rows = re.findall(r"^\| (`.+) \| (`.+`) \| .+ \|$", section.partition("\n## ")[0], re.MULTILINE)
    return {place: re.findall(r"`(\w+)`", keys) for place, keys in rows}


def objects(kind: type[Any], place: str, seen: set[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield where each object below a class first stands, and its keys."""
    seen.add(kind)
    yield f"`{place}`", [field.name for field in fields(kind)]
    for name, hint in get_type_hints(kind).items():
        for inner, end in inner_classes(hint, ""):
            if inner not in seen:
                yield from objects(inner, f"{place}.{name}{end}".removeprefix("."), seen)


def inner_classes(hint: Any, end: str) -> Iterator[tuple[Any, str]]:
    if is_dataclass(hint):
        yield hint, end
    for one in get_args(hint):
        yield from inner_classes(one, "[]" if get_origin(hint) is list else end)


def test_every_key_is_documented_where_it_stands(tmp_path: Path) -> None:
    record = analysis_record(Analysis([], None, "one file", None), [], ModuleLog([], {}))
    nothing = analyse_capture(tmp_path / "capture.json", tmp_path / "analysis.json", 1)
    seen: set[Any] = set()
    expected = {
        WHOLE: list(record),
        OF_A_CAPTURE: [key for key in nothing if key not in record],
        **dict(objects(Analysis, "", seen)),
        **dict(objects(Answer, "questions[]", seen)),
        **dict(objects(ModuleTime, "modules.modules[]", seen)),
    }
    del expected["``"]  # it stands in the whole
    assert documented() == expected
